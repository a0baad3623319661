"""The command `enqueue`."""

from __future__ import annotations

from typing import Annotated

import typer

from freezethaw.cli import formatting
from freezethaw.cli.app import JsonOption, NameOption, ReadsStore, StoreArgument, app, open_study, print_json
from freezethaw.cli.forecast import run_or_config


@app.command(cls=ReadsStore)
def enqueue(
    store: StoreArgument,
    what: Annotated[
        list[str],
        typer.Argument(metavar="RUN|CONFIG", help="A run number, name=value pairs, or a configuration in JSON."),
    ],
    name: NameOption = None,
    to_epoch: Annotated[
        int | None,
        typer.Option(
            "--to-epoch", min=1, help="Train to this epoch; by default 1 for a configuration, the end for a run."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a configuration, or thaw a run, at the next decision.

    \b
    Examples:
      freezethaw enqueue digits.db learning_rate=0.01 hidden=64 --to-epoch 5
      freezethaw enqueue digits.db 3 --to-epoch 20
    """
    subject = run_or_config(what)
    with open_study(store, name) as study:
        last = study.definition.max_epochs
        if isinstance(subject, int):
            end = last if to_epoch is None else to_epoch
            study.thaw(subject, end)
            text, config = f"run {subject}", {}
        else:
            end = 1 if to_epoch is None else to_epoch
            config = dict(study.definition.space.validate(subject))
            study.enqueue(config, end)
            text = formatting.config(config)
    if as_json:
        print_json({"run": subject if isinstance(subject, int) else None, "config": config, "to_epoch": end})
    else:
        typer.echo(f"requested: {text}, to epoch {end}")
