"""Commands that search: run, check, demo."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freezethaw.cli import trainings, words
from freezethaw.cli.app import LEFT, JsonOption, UsageError, app, console, masked, only_json, print_json, url_of
from freezethaw.cli.trainings import (
    EpochLimitOption,
    EveryOption,
    InMemoryOption,
    SpaceOption,
    WhatArgument,
    WithCommand,
)
from freezethaw.errors import TrainingError

if TYPE_CHECKING:
    from freezethaw.records import Budget, Checkpoints, Result
    from freezethaw.space import Space
    from freezethaw.trainers import CommandTrainer, NamedTrainer


class Direction(StrEnum):
    """Whether losses are to be small or large."""

    minimize = "minimize"
    maximize = "maximize"


@app.command(cls=WithCommand)
def run(
    ctx: typer.Context,
    what: WhatArgument = None,
    space: SpaceOption = None,
    max_epochs: Annotated[int | None, typer.Option(min=1, help="The last epoch of a run.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Epochs of the whole study.")] = None,
    hours: Annotated[float | None, typer.Option(help="Hours of training of the whole study.")] = None,
    target: Annotated[float | None, typer.Option(help="Stop at a loss this good.")] = None,
    worthwhile: Annotated[float | None, typer.Option(help="Stop when less improvement than this is expected.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the study; the same one in the same store continues.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that train side by side.")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="FREEZETHAW_STORE",
            show_envvar=True,
            metavar="URL",
            callback=url_of,
            help="sqlite:///NAME.db here unless said.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of all randomness.")] = None,
    direction: Annotated[Direction | None, typer.Option(help="Whether losses are to be small or large.")] = None,
    checkpoints: Annotated[str | None, typer.Option(metavar="FOLDER", help="Where checkpoints are kept.")] = None,
    gb: Annotated[float | None, typer.Option(help="Disk budget of the checkpoints.")] = None,
    every: EveryOption = None,
    in_memory: InMemoryOption = None,
    epoch_limit: EpochLimitOption = None,
    finish_best: Annotated[
        bool | None, typer.Option("--finish-best/--no-finish-best", help="Train the winner to the end.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="How often a configuration may be started, where luck matters.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A word by which to find the study again.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Search for the best configuration.

    Starts runs, freezes them, thaws those worth it, until the budget is spent. The same command again continues.
    Options given here come before those of the study file.

    \b
    Examples:
      freezethaw run study.toml
      freezethaw run study.toml --budget 500            # raise the budget: it goes on
      freezethaw run train.py:train --space space.toml --max-epochs 50 --budget 200 --workers 2
      freezethaw run --space space.toml --max-epochs 20 --budget 100 -- ./train.sh --fast
    """
    with only_json(as_json):  # what the training prints, also when it is imported, is no JSON
        entries = trainings.with_space(trainings.entries_of(ctx, what), space)
    entries |= trainings.said(max_epochs=max_epochs, name=name, workers=workers, store=store, seed=seed)
    entries |= trainings.said(direction=direction and direction.value, finish_best=finish_best, tags=tag or None)
    entries |= trainings.said(epoch_limit=epoch_limit, repeats=repeats)
    if "max_epochs" not in entries:
        raise UsageError("how long is a training? --max-epochs says the last epoch of a run")
    limits = _budget(entries.get("budget"), epochs=budget, hours=hours, target=target, worthwhile=worthwhile)
    kept = trainings.checkpoints_of(
        entries.get("checkpoints"), folder=checkpoints, gb=gb, every=every, in_memory=in_memory
    )
    study = str(entries.get("name", "study"))
    url = url_of(entries.get("store")) or trainings.store_of(study)
    with only_json(as_json):
        result = _search(entries, study, url, limits, kept, quiet or as_json)
    if as_json:
        print_json(_result(result, study, url))
    else:
        _show_result(result, study, url, int(entries["max_epochs"]))
    from freezethaw.runtime.worker import UNFINISHED

    if result.reason == UNFINISHED:
        raise typer.Exit(LEFT)


def _search(entries: dict[str, Any], study: str, url: str, limits: Budget, kept: Checkpoints, quiet: bool) -> Result:
    import freezethaw as ft  # importing freezethaw.tune by that name would put the module in the function's place

    try:
        return ft.tune(
            entries["trainer"],
            entries["space"],
            entries["max_epochs"],
            limits,
            name=study,
            workers=int(entries.get("workers", 1)),
            store=url,
            seed=entries.get("seed", 0),
            direction=entries.get("direction", "minimize"),
            checkpoints=kept,
            finish_best=entries.get("finish_best", True),
            epoch_limit=entries.get("epoch_limit"),
            repeats=entries.get("repeats", 1),
            tags=entries.get("tags"),
            progress=not quiet,
        )
    except KeyboardInterrupt as asked:
        typer.echo("frozen: the same command continues the study", err=True)
        raise typer.Exit(LEFT if str(asked) in ("SIGTERM", "SIGUSR1") else 130) from None


def _budget(told: Any, **given: float | None) -> Budget:
    from freezethaw.records import Budget

    fields = trainings.merged("budget", told, "epochs", given)
    if not fields:
        raise UsageError("when to stop? --budget EPOCHS, --hours, --target or --worthwhile")
    return Budget(**fields)


def _result(result: Result, study: str, url: str) -> dict[str, Any]:
    best = result.best
    found: dict[str, Any] = {"store": masked(url), "name": study, "reason": result.reason, "epochs": result.epochs}
    found |= {"runs": len(result.runs), "best": None}
    if best is not None:
        place = None if best.checkpoint is None else str(best.checkpoint)
        found["best"] = {"run": best.run, "epoch": best.epoch, "loss": best.loss, "expected": best.expected}
        found["best"] |= {"config": dict(best.config), "checkpoint": place}
    return found


def _show_result(result: Result, study: str, url: str, max_epochs: int) -> None:
    out = console()
    out.print(f"\nended: {result.reason}")
    full = max_epochs * len(result.runs)
    spent = f"{words.count(result.epochs, 'epoch')} over {words.count(len(result.runs), 'run')}"
    out.print(f"{spent}; training all of them to the end would have cost {full}")
    best = result.best
    if best is None:
        out.print("no run gave a finite loss", style="bold")
    else:
        out.print(f"best: run {best.run}, epoch {best.epoch}, loss {words.number(best.loss)}", style="bold")
        for key, value in best.config.items():
            out.print(f"  {key} = {value!r}")
        if best.checkpoint is not None:
            out.print(f"  checkpoint: {best.checkpoint}")
    if result.reason.startswith("budget spent"):
        out.print("\nto go on: the same command with a larger budget")
    out.print(f"\nnext: freezethaw status --store {masked(url)} --name {study}")


@app.command(cls=WithCommand)
def check(
    ctx: typer.Context,
    what: WhatArgument = None,
    space: SpaceOption = None,
    epochs: Annotated[int, typer.Option(min=2, help="Epochs to train; frozen half way.")] = 4,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="What to train with; the middle of the space unless said."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the training.")] = 0,
    tolerance: Annotated[float, typer.Option(min=0.0, help="By how much losses may differ, relatively.")] = 1e-6,
    limit: Annotated[float | None, typer.Option(help="Seconds that one part may take.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a training can be thawed.

    Trains, freezes, kills, thaws, and compares with an uninterrupted training. Exit code 1 where something differs,
    with what usually causes it.

    \b
    Examples:
      freezethaw check train.py:train --space space.toml
      freezethaw check study.toml --epochs 6 --config momentum=0.9
      freezethaw check --space space.toml -- ./train.sh
    """
    from freezethaw.cli.forecasting import read_pairs
    from freezethaw.runtime import checking

    with only_json(as_json):  # what the training prints, also when it is imported, is no JSON
        entries = trainings.with_space(trainings.entries_of(ctx, what), space)
    chosen = entries["space"].validate(_middle(entries["space"]) | read_pairs(config or []))
    with only_json(as_json):
        report = checking.check(entries["trainer"], chosen, epochs, seed, tolerance, limit, say=_say)
    if as_json:
        print_json(asdict(report) | {"passed": report.passed, "config": chosen})
    else:
        _show_check(report, chosen, entries["trainer"])
    if not report.passed:
        raise typer.Exit(1)


def _say(what: str) -> None:
    typer.echo(f"{what} ...", err=True)


def _middle(space: Space) -> dict[str, Any]:
    """The guesses where there are some, else the middle."""
    import numpy as np

    guesses = space.guesses()
    unit = np.array([guesses.get(name, 0.5) for name in space.parameters])
    return dict(space.config(unit))


def _show_check(report: Any, chosen: dict[str, Any], trainer: NamedTrainer | CommandTrainer) -> None:
    out = console()
    out.print(f"{trainer} with {words.config(chosen)}")
    for title, losses in (("uninterrupted", report.uninterrupted), ("frozen and thawed", report.thawed)):
        out.print(f"{title:18s} {', '.join(words.number(y, 8) for y in losses) or 'no loss'}")
    out.print(f"frozen and killed after epoch {report.frozen_at}, thawed in a fresh process")
    for finding in report.findings:
        out.print(f"\n{finding.what}: {finding.text}", style="red")
        out.print(f"  usually: {finding.cause}")
    for note in report.notes:
        out.print(f"\nnote: {note}")
    if report.passed:
        out.print(
            f"\npassed: {words.count(report.epochs, 'epoch')}, losses and saved state are the same", style="green"
        )
    else:
        out.print("\nfailed: a frozen run of this training would not go on as if nothing had happened", style="bold")


@app.command()
def demo(
    epochs: Annotated[int | None, typer.Option(min=1, help="The budget, in epochs.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Tune a small network, to see how it goes.

    On scikit-learn's digits.

    \b
    Example:
      freezethaw demo --epochs 100
    """
    from freezethaw.trainers import NamedTrainer

    file = _example("digits.py")
    try:
        main: Any = NamedTrainer(str(file), "main", str(file.parent)).function()
    except TrainingError as error:
        if isinstance(error.__cause__, ImportError):
            raise TrainingError(f"the demo needs {error.__cause__.name}: pip install 'freezethaw[demo]'") from None
        raise
    with only_json(as_json):
        result = main() if epochs is None else main(epochs=epochs)
    if as_json:
        print_json(_result(result, "digits", "sqlite:///freezethaw-demo/study.db"))


def _example(name: str) -> Path:
    """In an installed package beside this one, in a clone of the repository at its top."""
    package = Path(__file__).parents[1]
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / name).is_file():
            return folder / name
    raise TrainingError(f"the example {name} is not installed")
