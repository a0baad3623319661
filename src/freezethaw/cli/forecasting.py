"""The command `forecast`: where a run, a configuration, or the runs of a table from elsewhere would go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freezethaw.cli import elsewhere, words
from freezethaw.cli.app import (
    JsonOption,
    MaybeStoreOption,
    NameOption,
    UsageError,
    app,
    console,
    opened_study,
    print_json,
)
from freezethaw.errors import StudyError

if TYPE_CHECKING:
    from freezethaw.study import Study

BANDS = (0.05, 0.25, 0.75, 0.95)


@app.command()
def forecast(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|CONFIG|FILE",
            help="A run's number, name=value pairs, a configuration in JSON, or tables of runs from elsewhere.",
        ),
    ],
    store: MaybeStoreOption = None,
    name: NameOption = None,
    epochs: Annotated[
        str | None, typer.Option("--epochs", metavar="E,E,...", help="Epochs to forecast, besides the last one.")
    ] = None,
    max_epochs: Annotated[
        int | None, typer.Option("--max-epochs", min=1, metavar="N", help="Of a table: where its runs end.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", metavar="COLUMN", help="Of a table: the column that is the loss.")
    ] = None,
    maximize: Annotated[
        bool, typer.Option("--maximize", help="Of a table: losses are to be large, as an accuracy.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Forecast losses.

    Of a run, or of a configuration that was never trained: mean, 50 % and 90 % intervals. Of the runs of a table that
    another tool wrote: where each would end, and its chance to end best.

    \b
    Examples:
      freezethaw forecast 3 --store sqlite:///digits.db
      freezethaw forecast 3 --epochs 10,20 --store sqlite:///digits.db
      freezethaw forecast learning_rate=0.01 hidden=64 momentum=0.9 --store sqlite:///digits.db
      freezethaw forecast runs.csv --max-epochs 50 --metric val_loss
    """
    at = _epochs(epochs)
    if elsewhere.are_tables(what):
        if at:
            raise UsageError("--epochs is for the runs of a study; the runs of a table are forecast at --max-epochs")
        elsewhere.forecast_tables(what, max_epochs, metric, maximize, as_json)
        return
    if max_epochs is not None or metric is not None or maximize:
        raise UsageError(
            "--max-epochs, --metric and --maximize are for a table, such as runs.csv; the study knows them"
        )
    if store is None:
        raise UsageError("Missing option '--store' (env var: 'FREEZETHAW_STORE').")
    with opened_study(store, name) as study:
        found = _forecast(study, _run_or_config(what), at)
    if as_json:
        print_json(found)
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    from rich.table import Table

    out = console()
    subject = "a new run" if found["run"] is None else f"run {found['run']}, {found['state']}"
    out.print(f"{subject}: {words.config(found['config'])}", style="bold")
    if found["curve"]:
        shown = words.count(len(found["curve"]), "epoch")
        out.print(f"so far    {words.sparkline(found['curve'])}  {shown}, last loss {words.number(found['curve'][-1])}")
    out.print(f"forecast  {words.sparkline(found['path'])}  to epoch {found['max_epochs']}\n")
    table = Table("epoch", "mean", "50 %", "90 %", box=None)
    for entry in found["forecasts"]:
        bands = [f"{words.number(low)} to {words.number(high)}" for low, high in (entry["half"], entry["most"])]
        table.add_row(f"{entry['epoch']:g}", words.number(entry["mean"]), *bands)
    out.print(table)


def _epochs(text: str | None) -> list[float]:
    try:
        found = [float(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"--epochs is {text!r}; write numbers with commas, such as 10,20") from None
    if any(not 0 < epoch < 1e9 for epoch in found):
        raise UsageError(f"--epochs is {text!r}; epochs are positive")
    return found


def _run_or_config(given: Sequence[str]) -> int | dict[str, Any]:
    if len(given) == 1 and given[0].isdigit():
        return int(given[0])
    if len(given) == 1 and given[0].lstrip().startswith("{"):
        try:
            found: dict[str, Any] = json.loads(given[0])
        except ValueError as error:
            raise UsageError(f"the configuration is no JSON: {error}") from None
        return found
    return read_pairs(given)


def read_pairs(given: Sequence[str]) -> dict[str, Any]:
    """name=value pairs; a value is read as JSON where it is some, else as text."""
    found: dict[str, Any] = {}
    for part in given:
        key, sign, value = part.partition("=")
        if not sign or not key:
            raise UsageError(f"{part!r} is neither a run's number nor name=value")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def _forecast(study: Study, what: int | dict[str, Any], at: list[float]) -> dict[str, Any]:
    import numpy as np

    last = study.max_epochs
    if isinstance(what, int):
        if not 1 <= what <= len(study.runs):
            raise StudyError(f"there is no run {what}; the study has {words.count(len(study.runs), 'run')}")
        run = study.runs[what - 1]
        number, config, curve, state = run.number, dict(run.config), list(run.losses), str(run.state)
    else:
        number, config, curve, state = None, study.space.validate(what), [], ""
    rows = sorted({*at, float(last)})
    path = [float(e) for e in np.unique(np.linspace(min(len(curve) + 1, last), last, 60).round())]
    subject = number if number is not None else config
    ahead = study.forecast(subject, rows)
    quantiles = ahead.quantile(BANDS)
    return {
        "run": number,
        "state": state,
        "config": config,
        "max_epochs": last,
        "curve": curve,
        "path": [float(y) for y in study.forecast(subject, path).mean],
        "forecasts": [
            {
                "epoch": epoch,
                "mean": float(ahead.mean[i]),
                "std": float(ahead.std[i]),
                "half": [float(quantiles[1, i]), float(quantiles[2, i])],
                "most": [float(quantiles[0, i]), float(quantiles[3, i])],
            }
            for i, epoch in enumerate(rows)
        ],
    }
