"""Commands that ask a study what it has found and why it decided so: best, explain, replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freezethaw.cli import words
from freezethaw.cli.app import (
    JsonOption,
    NameOption,
    StoreOption,
    app,
    console,
    opened_stored,
    opened_study,
    print_json,
)
from freezethaw.errors import StudyError

if TYPE_CHECKING:
    from freezethaw.study import Study


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
    from freezethaw.runtime.places import beside

    with opened_study(store, name) as study:
        found = _best(study, (checkpoints or beside(store)).rstrip("/"))
    if as_json:
        print_json(found)
    else:
        _show_best(found)


def _best(study: Study, folder: str) -> dict[str, Any]:
    from freezethaw.runtime.keeper import nearest

    best = study.best
    if best is None:
        raise StudyError(f"study {study.name!r} has no finite loss yet")
    end, saved = best.forecast, nearest(study, best)
    low, high = (float(end.quantile(q)[0]) for q in (0.05, 0.95))
    return {
        "run": best.run,
        "epoch": best.epoch,
        "config": dict(best.config),
        "loss": best.loss,
        "expected": best.expected,
        "end": {"epoch": study.max_epochs, "mean": float(end.mean[0]), "low": low, "high": high},
        "checkpoint": None if saved is None else f"{folder}/{saved.place}",
        "checkpoint_epoch": None if saved is None else saved.epoch,
    }


def _show_best(found: Mapping[str, Any]) -> None:
    out, end = console(), found["end"]
    out.print(f"run {found['run']}, epoch {found['epoch']}: loss {words.number(found['loss'])}", style="bold")
    out.print(f"expected    {words.number(found['expected'])} with the noise removed")
    band = f"90 % between {words.number(end['low'])} and {words.number(end['high'])}"
    out.print(f"at epoch {end['epoch']:<3d} {words.number(end['mean'])} forecast, {band}")
    for key, value in found["config"].items():
        out.print(f"  {key} = {value!r}")
    if found["checkpoint"] is None:
        out.print("checkpoint  none is kept: a thaw would train this run again from its start")
    else:
        other = "" if found["checkpoint_epoch"] == found["epoch"] else f" (of epoch {found['checkpoint_epoch']})"
        out.print(f"checkpoint  {found['checkpoint']}{other}")


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
