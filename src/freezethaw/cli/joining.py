"""The command `worker`: join a study from any machine that reaches its store."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freezethaw.cli import trainings, words
from freezethaw.cli.app import (
    LEFT,
    JsonOption,
    UsageError,
    app,
    console,
    masked,
    only_json,
    opened_stored,
    print_json,
    url_of,
)
from freezethaw.cli.trainings import EpochLimitOption, EveryOption, InMemoryOption, WhatArgument, WithCommand

if TYPE_CHECKING:
    from freezethaw.records import Checkpoints
    from freezethaw.runtime.worker_process import Place, Served
    from freezethaw.store import StoredStudy


@app.command(cls=WithCommand)
def worker(
    ctx: typer.Context,
    what: WhatArgument = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="FREEZETHAW_STORE", show_envvar=True, metavar="URL", callback=url_of, help="Where the study is."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Which study; not needed where the store has only one.")] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Of all checkpoints, the same for all workers: a path, or a URL that fsspec knows."
        ),
    ] = None,
    gb: Annotated[
        float | None, typer.Option(help="Disk budget of the checkpoints; the study's own unless said.")
    ] = None,
    every: EveryOption = None,
    in_memory: InMemoryOption = None,
    epoch_limit: EpochLimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Join a study and train for it.

    Until the study ends. SIGTERM, SIGUSR1 and Ctrl-C save, freeze and leave. The study must exist: `run` or
    `ft.tune` makes it. What the training prints goes into a file for each run, in `logs` beside the checkpoints.

    \b
    Examples:
      freezethaw worker study.toml
      freezethaw worker train.py:train --store postgresql+psycopg://me@host/tuning --name mnist --checkpoints /shared
      freezethaw worker --store sqlite:///digits.db -- ./train.sh --fast
    """
    from freezethaw.runtime.places import beside
    from freezethaw.runtime.worker_process import Place
    from freezethaw.trainers import limited

    with only_json(as_json):
        entries = trainings.entries_of(ctx, what)
    url = store or url_of(entries.get("store")) or (trainings.store_of(entries["name"]) if "name" in entries else None)
    if url is None:
        raise UsageError("where is the study? --store URL, or FREEZETHAW_STORE in the environment")
    kept = trainings.checkpoints_of(
        entries.get("checkpoints"), folder=checkpoints, gb=gb, every=every, in_memory=in_memory
    )
    with opened_stored(url, name or entries.get("name")) as (_, study):
        found, kept = study.name, _agreed(study, kept)
    train, limit = limited(entries["trainer"], epoch_limit or entries.get("epoch_limit"))
    place = Place(url, found, str(kept.folder or beside(url)), kept, limit)
    served, code = _served(place, train, as_json)
    if as_json:
        print_json({"store": masked(url), "name": found} | asdict(served))
    else:
        console().print(f"ended: {served.reason}; trained {words.count(served.epochs, 'epoch')} here")
    raise typer.Exit(code)


def _agreed(study: StoredStudy, kept: Checkpoints) -> Checkpoints:
    """All workers keep to one disk budget: one that is told here is the study's from now on, else the study's holds."""
    if kept.gb is None:
        return replace(kept, gb=study.disk_budget())
    study.set_disk_budget(kept.gb)
    return kept


def _served(place: Place, train: Any, as_json: bool) -> tuple[Served, int]:
    from freezethaw.runtime.signals import Leaving, on_signals
    from freezethaw.runtime.worker_process import work

    leaving = Leaving()
    with on_signals(leaving), only_json(as_json):
        served = work(place, train, leaving)
    return served, 130 if leaving.why == "SIGINT" else LEFT if served.left else 0
