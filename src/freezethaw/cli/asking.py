"""Commands that ask a study what it believes and why it decided so: best, forecast, explain, replay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freezethaw.cli import elsewhere, words
from freezethaw.cli.app import (
    JsonOption,
    MaybeStoreOption,
    NameOption,
    StoreOption,
    UsageError,
    app,
    console,
    opened_stored,
    opened_study,
    print_json,
)
from freezethaw.errors import StudyError

if TYPE_CHECKING:
    from freezethaw.study import Study

BANDS = (0.05, 0.25, 0.75, 0.95)


@app.command()
def best(
    store: StoreOption,
    name: NameOption = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(help="The folder of the checkpoints; beside an SQLite file unless said.", metavar="FOLDER"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the best configuration.

    With its loss, what is expected with the noise removed, and its checkpoint.

    \b
    Examples:
      freezethaw best --store sqlite:///digits.db
      freezethaw best --store sqlite:///digits.db --json | jq .config
    """
    from freezethaw.runtime.keeper import nearest
    from freezethaw.runtime.places import beside

    with opened_study(store, name) as study:
        found = study.best
        if found is None:
            raise StudyError(f"study {study.name!r} has no finite loss yet")
        run, last = found.run, study.max_epochs
        end = found.forecast
        losses, sign = study.runs[run - 1].losses, -1.0 if study.direction == "maximize" else 1.0
        saved = nearest(study.shared.stored.checkpoints(run), found, losses, sign)
    place = None if saved is None else f"{(checkpoints or beside(store)).rstrip('/')}/{saved.place}"
    result = {
        "run": run,
        "epoch": found.epoch,
        "config": dict(found.config),
        "loss": found.loss,
        "expected": found.expected,
        "end": {"epoch": last, "mean": float(end.mean[0]), "low": _at(end, 0.05), "high": _at(end, 0.95)},
        "checkpoint": place,
        "checkpoint_epoch": None if saved is None else saved.epoch,
    }
    if as_json:
        print_json(result)
        return
    out = console()
    out.print(f"run {run}, epoch {found.epoch}: loss {words.number(found.loss)}", style="bold")
    out.print(f"expected    {words.number(found.expected)} with the noise removed")
    out.print(f"at epoch {last:<3d}{_interval(end)}")
    for key, value in found.config.items():
        out.print(f"  {key} = {value!r}")
    if saved is None:
        out.print("checkpoint  none is kept: a thaw would train this run again from its start")
    else:
        out.print(f"checkpoint  {place}" + ("" if saved.epoch == found.epoch else f" (of epoch {saved.epoch})"))


def _at(forecast: Any, q: float, entry: int = 0) -> float:
    return float(forecast.quantile(q)[entry])


def _interval(end: Any) -> str:
    low, high = words.number(_at(end, 0.05)), words.number(_at(end, 0.95))
    return f" {words.number(float(end.mean[0]))} forecast, 90 % between {low} and {high}"


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
        return
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


NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="The decision's number.")]


@app.command()
def explain(number: NumberArgument, store: StoreOption, name: NameOption = None, as_json: JsonOption = False) -> None:
    """Show what a decision compared.

    The basket, best first, with its numbers.

    \b
    Example:
      freezethaw explain 17 --store sqlite:///digits.db
    """
    with opened_stored(store, name) as (_, study):
        found = study.decision(number)
    decision = found.decision
    if as_json:
        print_json(asdict(decision) | {"state": found.state, "outcome": found.outcome, "basket": list(found.basket)})
        return
    from rich.table import Table

    out = console()
    out.print(f"decision {number}: {decision.reason}", style="bold")
    out.print(
        f"{decision.kind} run {decision.run}, epoch {decision.from_epoch} to {decision.to_epoch}; "
        f"{found.outcome or found.state}\n{words.config(decision.config)}\n"
    )
    if not found.basket:
        out.print("no basket: nothing was compared for it")
        return
    table = Table("", "candidate", "epoch", "best up to", "score", "chance", "configuration", box=None)
    for place, entry in enumerate(found.basket, 1):
        candidate = "new" if entry["run"] is None else f"run {entry['run']}"
        numbers = (words.number(_float(entry["score"]), 3), words.percent(_float(entry["chance"])))
        table.add_row(
            str(place), candidate, str(entry["epoch"]), str(entry["to_epoch"]), *numbers, words.config(entry["config"])
        )
    out.print(table)


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)


@app.command()
def replay(number: NumberArgument, store: StoreOption, name: NameOption = None, as_json: JsonOption = False) -> None:
    """Take a decision again.

    From what was known then; says whether it is the same. Exit code 1 where it differs.

    \b
    Example:
      freezethaw replay 17 --store sqlite:///digits.db
    """
    with opened_study(store, name) as study:
        taken = study.shared.stored.decision(number).decision
        again = study.replay(number)
    run = taken.run if again.run is None and taken.from_epoch == 0 else again.run
    pairs = {
        "run": (taken.run, run),
        "config": (dict(taken.config), dict(again.config)),
        "to_epoch": (taken.to_epoch, again.to_epoch),
        "reason": (taken.reason, again.reason),
    }
    differs = {key: {"taken": old, "replayed": new} for key, (old, new) in pairs.items() if old != new}
    if as_json:
        print_json({"number": number, "same": not differs, "reason": taken.reason, "differences": differs})
    else:
        out = console()
        out.print(f"decision {number}: {taken.reason}")
        out.print("taken again: the same" if not differs else "taken again: it differs", style="bold")
        for key, values in differs.items():
            out.print(f"  {key}: was {values['taken']}, now {values['replayed']}")
    if differs:
        raise typer.Exit(1)
