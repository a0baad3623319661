"""The commands `run` and `demo`, which search."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
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
    print_json,
    store_url,
)
from freezethaw.cli.training_source import (
    AcceptsCommand,
    EpochLimitOption,
    EveryOption,
    GraceOption,
    InMemoryOption,
    SpaceOption,
    TrainingArgument,
)
from freezethaw.errors import EXIT_STOPPED, TrainingError

if TYPE_CHECKING:
    from freezethaw.records import Budget, Checkpoints, Result


class Direction(StrEnum):
    """Whether smaller or larger losses are better."""

    minimize = "minimize"
    maximize = "maximize"


@app.command(cls=AcceptsCommand)
def run(
    ctx: typer.Context,
    what: TrainingArgument = None,
    space: SpaceOption = None,
    max_epochs: Annotated[int | None, typer.Option(min=1, help="Last epoch of a run.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Budget of the whole study, in epochs.")] = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Stop this call after this wall-clock time, deciding included: 90, 15m, 2h."),
    ] = None,
    training_hours: Annotated[
        float | None, typer.Option(help="Budget of the whole study, in hours of training of all workers.")
    ] = None,
    target: Annotated[float | None, typer.Option(help="Stop when a loss is at least this good.")] = None,
    worthwhile: Annotated[
        float | None, typer.Option(help="Stop when the expected improvement is smaller than this.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the study. A study of this name in the store is continued.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of processes that train in parallel.")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="FREEZETHAW_STORE",
            show_envvar=True,
            metavar="URL",
            callback=store_url,
            help="The store; by default the SQLite file NAME.db in the current folder.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of what the training reports; by default loss.")
    ] = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH", help="Values that the metric cannot leave: 0, for an error, 0,1 for an accuracy."
        ),
    ] = None,
    direction: Annotated[Direction | None, typer.Option(help="Whether smaller or larger losses are better.")] = None,
    checkpoints: Annotated[str | None, typer.Option(metavar="FOLDER", help="Folder of the checkpoints.")] = None,
    gb: Annotated[float | None, typer.Option(help="Disk budget of the checkpoints, in GB.")] = None,
    every: EveryOption = None,
    in_memory: InMemoryOption = None,
    epoch_limit: EpochLimitOption = None,
    grace: GraceOption = None,
    finish_best: Annotated[
        bool | None, typer.Option("--finish-best/--no-finish-best", help="Train the best run to the last epoch.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="How often a configuration may be started; for noisy trainings.")
    ] = None,
    learn_from: Annotated[
        list[str] | None,
        typer.Option(help="Store of an earlier study, with #NAME if it holds several; may be repeated."),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Tag of the study, for `freezethaw studies --tag`; may be repeated.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Search for the best configuration.

    Starts, freezes and thaws runs until the budget is spent. The same command continues the study. Options override
    the study file.

    \b
    Examples:
      freezethaw run study.toml
      freezethaw run study.toml --budget 500            # continue with a larger budget
      freezethaw run train.py:train --space space.toml --max-epochs 50 --budget 200 --workers 2
      freezethaw run study.toml --timeout 2h            # stop after two hours; the same command continues
      freezethaw run study.toml --name resnet-2026 --learn-from old.db#resnet-2025
      freezethaw run --space space.toml --max-epochs 20 --budget 100 -- ./train.sh --fast
    """
    with json_only(as_json):  # the training may print, also while it is imported
        entries = training_source.with_space(training_source.read_entries(ctx, what), space)
    entries |= training_source.given(max_epochs=max_epochs, name=name, workers=workers, store=store, seed=seed)
    entries |= training_source.given(direction=direction and direction.value, finish_best=finish_best, tags=tag or None)
    entries |= training_source.given(epoch_limit=epoch_limit, grace=grace, repeats=repeats, metric=metric)
    entries |= training_source.given(learn_from=learn_from or None)
    entries |= training_source.given(bounds=None if bounds is None else formatting.parse_bounds(bounds))
    if "bounds" in entries and not isinstance(entries["bounds"], tuple):
        entries["bounds"] = formatting.parse_bounds(entries["bounds"])
    if "max_epochs" not in entries:
        raise UsageError("--max-epochs is required: the last epoch of a run")
    entries |= training_source.given(timeout=timeout)
    seconds = formatting.parse_duration(entries["timeout"]) if "timeout" in entries else None
    given = {"epochs": budget, "training_hours": training_hours, "target": target, "worthwhile": worthwhile}
    limits = _budget(entries.get("budget"), seconds, given)
    kept = training_source.checkpoints(
        entries.get("checkpoints"), folder=checkpoints, gb=gb, every=every, in_memory=in_memory
    )
    study = str(entries.get("name", "study"))
    url = store_url(entries.get("store")) or training_source.default_store(study)
    with json_only(as_json):
        result = _search(entries, study, url, limits, seconds, kept, quiet or as_json)
    if as_json:
        print_json(_result(result, study, url))
    else:
        _show_result(result, study, url, int(entries["max_epochs"]))


def _search(
    entries: dict[str, Any],
    study: str,
    url: str,
    limits: Budget,
    timeout: float | None,
    kept: Checkpoints,
    quiet: bool,
) -> Result:
    import freezethaw as ft

    try:
        return ft.tune(
            entries["trainer"],
            entries["space"],
            entries["max_epochs"],
            limits,
            timeout=timeout,
            name=study,
            workers=int(entries.get("workers", 1)),
            store=url,
            seed=entries.get("seed", 0),
            metric=entries.get("metric", "loss"),
            direction=entries.get("direction", "minimize"),
            bounds=entries.get("bounds"),
            checkpoints=kept,
            finish_best=entries.get("finish_best", True),
            epoch_limit=entries.get("epoch_limit"),
            grace=entries.get("grace"),
            repeats=entries.get("repeats", 1),
            learn_from=entries.get("learn_from", ()),
            tags=entries.get("tags"),
            progress=not quiet,
        )
    except ft.Interrupted:
        raise typer.Exit(EXIT_STOPPED) from None
    except KeyboardInterrupt:
        typer.echo("interrupted at once; the same command continues the study from its checkpoints", err=True)
        raise typer.Exit(130) from None


def _budget(entry: Any, timeout: float | None, options: dict[str, Any]) -> Budget:
    from freezethaw.records import Budget

    fields = training_source.merge("budget", entry, "epochs", options)
    if not fields and timeout is None:
        raise UsageError(
            "a limit is required: --budget EPOCHS, --timeout TIME, --training-hours, --target or --worthwhile"
        )
    return Budget(**fields)


def _result(result: Result, study: str, url: str) -> dict[str, Any]:
    found: dict[str, Any] = {"store": mask(url), "name": study, "reason": result.reason, "epochs": result.epochs}
    found |= {"runs": len(result.runs), "best": None}
    if not result.no_best:
        best = result.best
        checkpoint = None if best.checkpoint is None else str(best.checkpoint)
        found["best"] = {"run": best.run, "epoch": best.epoch, "loss": best.loss, "expected": best.expected}
        found["best"] |= {"config": dict(best.config), "checkpoint": checkpoint}
    return found


def _show_result(result: Result, study: str, url: str, max_epochs: int) -> None:
    out = console()
    out.print(f"\nended: {result.reason}")
    full = max_epochs * len(result.runs)
    spent = f"{formatting.count(result.epochs, 'epoch')} in {formatting.count(len(result.runs), 'run')}"
    out.print(f"{spent}; training all of them to the end would take {full}")
    if result.no_best:
        out.print(result.no_best, style="bold")
    else:
        best = result.best
        out.print(
            f"best: run {best.run}, epoch {best.epoch}, {result.metric} {formatting.number(best.loss)}", style="bold"
        )
        for key, value in best.config.items():
            out.print(f"  {key} = {value!r}")
        other = result.recommended
        if (other.run, other.epoch) != (best.run, best.epoch):
            expected = f"expected {result.metric} {formatting.number(other.expected)} without noise"
            out.print(f"  recommended: run {other.run}, epoch {other.epoch}, {expected}")
        if best.checkpoint is not None:
            out.print(f"  checkpoint: {best.checkpoint}", soft_wrap=True)  # to be copied
    if result.reason.startswith("budget spent"):
        out.print("\nto continue: the same command with a larger budget")
    out.print(f"\nnext: freezethaw status {mask(url).removeprefix('sqlite:///')} --name {study}", soft_wrap=True)


@app.command()
def demo(
    epochs: Annotated[int | None, typer.Option(min=1, help="Budget, in epochs.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Tune a small network on scikit-learn's digits.

    Needs scikit-learn: pip install 'freezethaw[demo]'.

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
    with json_only(as_json):
        result = main() if epochs is None else main(epochs=epochs)
    if as_json:
        print_json(_result(result, "digits", "sqlite:///freezethaw-demo/study.db"))


def _example(name: str) -> Path:
    """The path of an example, in an installed package or in a clone of the repository."""
    package = Path(__file__).parents[1]
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / name).is_file():
            return folder / name
    raise TrainingError(f"the example {name} is not installed")
