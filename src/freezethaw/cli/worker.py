"""The command `worker`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freezethaw.cli import formatting, training_source
from freezethaw.cli.app import (
    JsonOption,
    UsageError,
    app,
    console,
    json_only,
    mask,
    open_stored_study,
    print_json,
    store_url,
)
from freezethaw.cli.training_source import (
    AcceptsCommand,
    EpochLimitOption,
    EveryOption,
    GraceOption,
    InMemoryOption,
    TrainingArgument,
)
from freezethaw.errors import EXIT_STOPPED

if TYPE_CHECKING:
    from freezethaw.records import Checkpoints
    from freezethaw.runtime.worker_process import WorkerResult, WorkerSpec
    from freezethaw.store import Storage


@app.command(cls=AcceptsCommand)
def worker(
    ctx: typer.Context,
    what: TrainingArgument = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="FREEZETHAW_STORE",
            show_envvar=True,
            metavar="URL",
            callback=store_url,
            help="The store of the study.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the study; optional if the store has only one.")] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder of the checkpoints, the same for all workers: a path or an fsspec URL."
        ),
    ] = None,
    gb: Annotated[
        float | None, typer.Option(help="Disk budget of the checkpoints in GB; by default that of the study.")
    ] = None,
    every: EveryOption = None,
    in_memory: InMemoryOption = None,
    epoch_limit: EpochLimitOption = None,
    grace: GraceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train for a study that exists.

    Runs until the study ends, on any machine that can reach the store. SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C save and
    freeze the run and stop the worker. `freezethaw run` or `ft.tune` creates the study. The output of each run is
    written to a folder of the study in `logs`, beside the checkpoints.

    \b
    Examples:
      freezethaw worker study.toml
      freezethaw worker train.py:train --store postgresql+psycopg://me@host/tuning --name mnist --checkpoints /shared
      freezethaw worker --store sqlite:///digits.db -- ./train.sh --fast
    """
    from freezethaw.runtime.serialization import check_training
    from freezethaw.runtime.worker_process import WorkerSpec
    from freezethaw.store.urls import default_checkpoint_folder
    from freezethaw.trainers import limited

    with json_only(as_json):
        entries = training_source.read_entries(ctx, what)
    url = (
        store
        or store_url(entries.get("store"))
        or (training_source.default_store(entries["name"]) if "name" in entries else None)
    )
    if url is None:
        raise UsageError("--store is required, or FREEZETHAW_STORE in the environment")
    kept = training_source.checkpoints(
        entries.get("checkpoints"), folder=checkpoints, gb=gb, every=every, in_memory=in_memory
    )
    with open_stored_study(url, name or entries.get("name")) as (_, study):
        found, kept = study.name, _with_disk_budget(study, kept)
        folder = kept.folder or study.load().definition.get("checkpoint_folder") or default_checkpoint_folder(url)
        warning = check_training(study, entries["trainer"])
    if warning:
        typer.echo(f"freezethaw: {warning}", err=True)
    grace = grace or entries.get("grace")
    train, limit = limited(entries["trainer"], epoch_limit or entries.get("epoch_limit"), grace)
    spec = WorkerSpec(url, found, str(folder), kept, limit, grace)
    result, code = _work(spec, train, as_json)
    if as_json:
        print_json({"store": mask(url), "name": found} | asdict(result))
    else:
        console().print(f"ended: {result.reason}; this worker trained {formatting.count(result.epochs, 'epoch')}")
    raise typer.Exit(code)


def _with_disk_budget(study: Storage, kept: Checkpoints) -> Checkpoints:
    """Apply the disk budget of the study, or set it if --gb is given: all workers share one."""
    if kept.gb is None:
        return replace(kept, gb=study.load().definition.get("disk_gb"))
    study.set_disk_budget(kept.gb)
    return kept


def _work(spec: WorkerSpec, train: Any, as_json: bool) -> tuple[WorkerResult, int]:
    from freezethaw.runtime.signals import Leaving, on_signals
    from freezethaw.runtime.worker_process import work

    leaving = Leaving()
    with on_signals(leaving), json_only(as_json):
        result = work(spec, train, leaving)
    return result, EXIT_STOPPED if result.left else 0
