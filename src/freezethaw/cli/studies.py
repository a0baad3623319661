"""The command `studies`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from freezethaw.cli.app import JsonOption, ReadsStore, StoreArgument, app, console, open_store, print_json


@app.command(cls=ReadsStore)
def studies(
    store: StoreArgument,
    tag: Annotated[list[str] | None, typer.Option(help="Only studies with this tag; may be repeated.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the studies of a store.

    \b
    Examples:
      freezethaw studies digits.db
      freezethaw studies digits.db --tag baseline
    """
    with open_store(store) as opened:
        found = [study for study in opened.studies() if set(tag or ()) <= set(study.tags)]
    if as_json:
        print_json([asdict(study) for study in found])
        return
    if not found:
        typer.echo("no study with this tag" if tag else "no study yet")
        return
    from rich.table import Table

    table = Table("study", "runs", "epochs", "decisions", "created", "tags", box=None)
    for study in found:
        counts = (str(study.runs), str(study.epochs), str(study.decisions))
        table.add_row(study.name, *counts, study.created, ", ".join(study.tags))
    console().print(table)
