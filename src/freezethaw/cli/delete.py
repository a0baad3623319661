"""The command `delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from freezethaw.cli.app import (
    JsonOption,
    NameOption,
    ReadsStore,
    StoreArgument,
    UsageError,
    app,
    open_store,
    print_json,
    study_name,
)


@app.command(cls=ReadsStore)
def delete(
    store: StoreArgument,
    name: NameOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a study with its runs, losses and decisions. Files of checkpoints stay.

    \b
    Example:
      freezethaw delete digits.db --name digits
    """
    with open_store(store) as opened:
        found = study_name(opened, name)
        info = next((study for study in opened.studies() if study.name == found), None)
        if info is not None and not yes:  # an unknown study is an error below
            if as_json:
                raise UsageError("--json does not ask: --yes is required")
            typer.confirm(f"Delete study {found} with {info.runs} runs and {info.epochs} epochs?", abort=True)
        opened.delete(found)
    if as_json:
        print_json({"name": found, "deleted": True})
    else:
        typer.echo(f"study {found} is deleted; the files of its checkpoints are not")
