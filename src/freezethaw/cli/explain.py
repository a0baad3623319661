"""The commands `explain` and `replay`, which examine one decision."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from freezethaw.cli import formatting
from freezethaw.cli.app import (
    JsonOption,
    NameOption,
    ReadsStore,
    StoreArgument,
    app,
    console,
    open_stored_study,
    open_study,
    print_json,
)

NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="Number of the decision.")]


@app.command(cls=ReadsStore)
def explain(store: StoreArgument, number: NumberArgument, name: NameOption = None, as_json: JsonOption = False) -> None:
    """Show why a decision was taken.

    Lists the basket: the candidates that were compared, best first, with their scores.

    \b
    Example:
      freezethaw explain digits.db 17
    """
    with open_stored_study(store, name) as (_, study):
        found = study.decision(number)
    decision = found.decision
    if as_json:
        basket = [asdict(entry) for entry in found.basket]
        print_json(asdict(decision) | {"state": found.state, "outcome": found.outcome, "basket": basket})
        return
    from rich.table import Table

    out = console()
    out.print(f"decision {number}: {decision.reason}", style="bold")
    out.print(
        f"{decision.kind} run {decision.run}, epoch {decision.from_epoch} to {decision.to_epoch}; "
        f"{found.outcome or found.state}\n{formatting.config(decision.config)}\n"
    )
    if not found.basket:
        out.print("no basket: this decision compared no candidates")
        return
    table = Table("", "candidate", "epoch", "best up to", "score", "probability", "configuration", box=None)
    for rank, entry in enumerate(found.basket, 1):
        candidate = "new" if entry.run is None else f"run {entry.run}"
        scores = (formatting.number(entry.score, 3), formatting.percent(entry.chance))
        epochs = (str(entry.epoch), str(entry.to_epoch))
        table.add_row(str(rank), candidate, *epochs, *scores, formatting.config(entry.config))
    out.print(table)


@app.command(cls=ReadsStore)
def replay(store: StoreArgument, number: NumberArgument, name: NameOption = None, as_json: JsonOption = False) -> None:
    """Repeat a decision and compare.

    Decides again from the data that was available then. The exit code is 1 if the result differs.

    \b
    Example:
      freezethaw replay digits.db 17
    """
    with open_study(store, name) as study:
        from freezethaw.study import session_of

        session = session_of(study)
        taken = session.storage.decision(number).decision
        again = session.replay(number)
    run = taken.run if again.run is None and taken.from_epoch == 0 else again.run
    pairs = {
        "run": (taken.run, run),
        "config": (dict(taken.config), dict(again.config)),
        "to_epoch": (taken.to_epoch, again.to_epoch),
        "reason": (taken.reason, again.reason),
    }
    differences = {key: {"taken": old, "replayed": new} for key, (old, new) in pairs.items() if old != new}
    if as_json:
        print_json({"number": number, "same": not differences, "reason": taken.reason, "differences": differences})
    else:
        out = console()
        out.print(f"decision {number}: {taken.reason}")
        out.print("replayed: different" if differences else "replayed: identical", style="bold")
        for key, values in differences.items():
            out.print(f"  {key}: was {values['taken']}, now {values['replayed']}")
    if differences:
        raise typer.Exit(1)
