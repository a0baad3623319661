"""The commands `stop` and `resume`, which end and continue the decisions of a study."""

from __future__ import annotations

import typer

from freezethaw.cli.app import JsonOption, NameOption, ReadsStore, StoreArgument, app, open_stored_study, print_json


@app.command(cls=ReadsStore)
def stop(store: StoreArgument, name: NameOption = None, as_json: JsonOption = False) -> None:
    """Stop a study: no more is decided.

    Workers finish what they were granted; their runs are saved and frozen. `freezethaw resume`, or the command that
    started the study, continues it.

    \b
    Example:
      freezethaw stop digits.db
    """
    _set_stopped(store, name, True, as_json)


@app.command(cls=ReadsStore)
def resume(store: StoreArgument, name: NameOption = None, as_json: JsonOption = False) -> None:
    """Decide again after `stop`. Workers that have ended must be started again.

    \b
    Example:
      freezethaw resume digits.db
    """
    _set_stopped(store, name, False, as_json)


def _set_stopped(store: str, name: str | None, stopped: bool, as_json: bool) -> None:
    with open_stored_study(store, name) as (_, study):
        study.amend({"stopped": stopped})
        found = study.name
    if as_json:
        print_json({"name": found, "stopped": stopped})
    elif stopped:
        typer.echo(f"study {found} is stopped: pending runs are trained as far as they were granted, then frozen")
    else:
        typer.echo(f"study {found} may continue: start its workers again, with the command that started them")
