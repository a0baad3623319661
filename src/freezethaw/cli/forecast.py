"""The command `forecast`: of a run, of a configuration, or of the runs in a table of another tool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from freezethaw.cli import formatting
from freezethaw.cli.app import (
    TABLE_SUFFIXES,
    JsonOption,
    NameOption,
    UsageError,
    app,
    console,
    default_store,
    may_be_store,
    open_study,
    print_json,
    store_url,
)
from freezethaw.errors import StudyError

if TYPE_CHECKING:
    from freezethaw.study import Study

QUANTILES = (0.05, 0.25, 0.75, 0.95)


@app.command()
def forecast(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="STORE RUN|CONFIG | FILE",
            help="A store and a run number, name=value pairs or a configuration in JSON; or tables of another tool. "
            "FREEZETHAW_STORE in the environment is the default of the store.",
        ),
    ],
    name: NameOption = None,
    epochs: Annotated[
        str | None, typer.Option("--epochs", metavar="E,E,...", help="Epochs to forecast in addition to the last.")
    ] = None,
    max_epochs: Annotated[
        int | None, typer.Option("--max-epochs", min=1, metavar="N", help="For a table: the last epoch of its runs.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", metavar="COLUMN", help="For a table: the column with the loss.")
    ] = None,
    maximize: Annotated[
        bool, typer.Option("--maximize", help="For a table: larger values are better, as for an accuracy.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Forecast learning curves.

    For a run of a study or an untrained configuration: mean, 50 % and 90 % intervals of the loss. For the runs of a
    table: the loss at the last epoch and the probability to be the best there.

    \b
    Examples:
      freezethaw forecast digits.db 3
      freezethaw forecast digits.db 3 --epochs 10,20
      freezethaw forecast digits.db learning_rate=0.01 hidden=64 momentum=0.9
      freezethaw forecast runs.csv --max-epochs 50 --metric val_loss
    """
    at = _parse_epochs(epochs)
    if _are_tables(what):
        if at:
            raise UsageError("--epochs is for runs of a study; runs of a table are forecast at --max-epochs")
        _forecast_tables(what, max_epochs, metric, maximize, as_json)
        return
    if max_epochs is not None or metric is not None or maximize:
        raise UsageError("--max-epochs, --metric and --maximize are for a table, such as runs.csv")
    store, *subject = what if may_be_store(what[0]) else [default_store(f"forecast STORE {what[0]}"), *what]
    if not subject:
        raise UsageError(f"Missing argument 'RUN|CONFIG': {store!r} alone is neither a run number nor name=value")
    with open_study(str(store_url(store)), name) as study:
        found = _forecast(study, run_or_config(subject), at)
    if as_json:
        print_json(found)
    else:
        _show(found)


# A run or a configuration of a study.


def _parse_epochs(text: str | None) -> list[float]:
    try:
        found = [float(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"--epochs is {text!r}; expected numbers separated by commas, such as 10,20") from None
    if any(not 0 < epoch < 1e9 for epoch in found):
        raise UsageError(f"--epochs is {text!r}; epochs must be positive")
    return found


def run_or_config(given: Sequence[str]) -> int | dict[str, Any]:
    """The number of a run, or a configuration."""
    if len(given) == 1 and given[0].isdigit():
        return int(given[0])
    if len(given) == 1 and given[0].lstrip().startswith("{"):
        try:
            found: dict[str, Any] = json.loads(given[0])
        except ValueError as error:
            raise UsageError(f"the configuration is not valid JSON: {error}") from None
        return found
    return parse_pairs(given)


def parse_pairs(given: Sequence[str]) -> dict[str, Any]:
    """Parse name=value pairs. A value that is valid JSON is decoded; any other value is a text."""
    found: dict[str, Any] = {}
    for part in given:
        key, sign, value = part.partition("=")
        if not sign or not key:
            raise UsageError(f"{part!r} is neither a run number nor name=value")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def _forecast(study: Study, what: int | dict[str, Any], at: list[float]) -> dict[str, Any]:
    import numpy as np

    last = study.definition.max_epochs
    if isinstance(what, int):
        if not 1 <= what <= len(study.runs):
            raise StudyError(f"there is no run {what}; the study has {formatting.count(len(study.runs), 'run')}")
        run = study.runs[what - 1]
        number, config, curve, state = run.number, dict(run.config), list(run.losses), str(run.state)
    else:
        number, config, curve, state = None, study.definition.space.validate(what), [], ""
    rows = sorted({*at, float(last)})
    path = [float(e) for e in np.unique(np.linspace(min(len(curve) + 1, last), last, 60).round())]
    subject = number if number is not None else config
    ahead = study.forecast(subject, rows)
    quantiles = ahead.quantile(QUANTILES)
    return {
        "run": number,
        "metric": study.definition.metric,
        "state": state,
        "config": config,
        "max_epochs": last,
        "curve": curve,
        "path": [float(y) for y in study.forecast(subject, path).mean],
        "forecasts": [
            {
                "epoch": epoch,
                "measured": epoch <= len(curve) and epoch == int(epoch),
                "mean": float(ahead.mean[i]),
                "std": float(ahead.std[i]),
                "half": [float(quantiles[1, i]), float(quantiles[2, i])],
                "most": [float(quantiles[0, i]), float(quantiles[3, i])],
            }
            for i, epoch in enumerate(rows)
        ],
    }


def _show(found: dict[str, Any]) -> None:
    from rich.table import Table

    out, number = console(), formatting.number
    subject = "a new run" if found["run"] is None else f"run {found['run']}, {found['state']}"
    out.print(f"{subject}: {formatting.config(found['config'])}", style="bold")
    if found["curve"]:
        trained = formatting.count(len(found["curve"]), "epoch")
        last = f"{trained}, last {found['metric']} {number(found['curve'][-1])}"
        out.print(f"measured  {formatting.sparkline(found['curve'])}  {last}")
    if len(found["curve"]) < found["max_epochs"]:
        out.print(f"forecast  {formatting.sparkline(found['path'])}  to epoch {found['max_epochs']}")
    out.print("")
    table = Table("epoch", "mean", "50 %", "90 %", box=None)
    for entry in found["forecasts"]:
        intervals = [f"{number(low)} to {number(high)}" for low, high in (entry["half"], entry["most"])]
        intervals = ["measured", ""] if entry["measured"] else intervals
        table.add_row(f"{entry['epoch']:g}", number(entry["mean"]), *intervals)
    out.print(table)


# The runs of a table; no store is needed.


def _are_tables(given: Sequence[str]) -> bool:
    """Whether all arguments are files, rather than a run or a configuration."""
    return all(
        part.lower().endswith(TABLE_SUFFIXES) and "=" not in Path(part).name and "{" not in part for part in given
    )


def _forecast_tables(
    files: Sequence[str], max_epochs: int | None, metric: str | None, maximize: bool, as_json: bool
) -> None:
    for file in files:
        if not Path(file).is_file():
            raise UsageError(f"there is no file {file!r}")
    if max_epochs is None:
        raise UsageError("forecasts of a table need --max-epochs, the last epoch of its runs")
    found = _table_forecasts(files, max_epochs, metric, maximize)
    if as_json:
        print_json(found)
        return
    from rich.table import Table

    out, number = console(), formatting.number
    out.print(f"{formatting.count(len(found['runs']), 'run')}, forecast at epoch {max_epochs}\n", style="bold")
    table = Table("run", "epoch", "last loss", "median", "90 %", "P(best)", "configuration", box=None)
    for run in found["runs"]:
        interval = f"{number(run['low'])} to {number(run['high'])}"
        measured = (str(run["epoch"]), "diverged" if run["diverged"] else number(run["last_loss"]))
        ahead = (number(run["median"]), interval, formatting.percent(run["chance"]))
        table.add_row(run["name"], *measured, *ahead, formatting.config(run["config"]))
    out.print(table)


def _table_forecasts(files: Sequence[str], max_epochs: int, metric: str | None, maximize: bool) -> dict[str, Any]:
    """The forecasts of all runs, best first."""
    from freezethaw.integrations import read_table, study_from_curves

    direction: Literal["minimize", "maximize"] = "maximize" if maximize else "minimize"
    curves = [curve for file in files for curve in read_table(file, metric)]
    study = study_from_curves(curves, max_epochs, direction)
    chances = study.p_min()
    runs: list[dict[str, Any]] = []
    for number, curve in enumerate(curves, 1):
        low, median, high = (float(q) for q in study.forecast(number).quantile([0.05, 0.5, 0.95])[:, 0])
        runs.append(
            {
                "name": curve.name,
                "config": curve.config,
                "epoch": len(curve.losses),
                "last_loss": curve.losses[-1],
                "diverged": curve.diverged,
                "median": median,
                "low": low,
                "high": high,
                "chance": chances.get(number, 0.0),
            }
        )
    sign = -1.0 if maximize else 1.0
    runs.sort(key=lambda run: (run["diverged"], sign * run["median"]))
    return {"max_epochs": max_epochs, "direction": direction, "runs": runs}
