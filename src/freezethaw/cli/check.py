"""The command `check`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freezethaw.cli import formatting, training_source
from freezethaw.cli.app import JsonOption, app, console, json_only, print_json
from freezethaw.cli.forecast import parse_pairs
from freezethaw.cli.training_source import AcceptsCommand, SpaceOption, TrainingArgument

if TYPE_CHECKING:
    from freezethaw.space import Space
    from freezethaw.trainers import CommandTrainer, NamedTrainer


@app.command(cls=AcceptsCommand)
def check(
    ctx: typer.Context,
    what: TrainingArgument = None,
    space: SpaceOption = None,
    epochs: Annotated[int, typer.Option(min=2, help="Epochs to train; the run is frozen halfway.")] = 4,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Values to train with; by default the guesses or the middle of the space."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the training.")] = 0,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Largest relative difference of losses that passes.")
    ] = 1e-6,
    limit: Annotated[float | None, typer.Option(help="Time limit of each part, in seconds.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a training can be frozen and thawed.

    Trains, freezes, kills and thaws a run and compares it with an uninterrupted one. If they differ, the likely cause
    is printed and the exit code is 1.

    \b
    Examples:
      freezethaw check train.py:train --space space.toml
      freezethaw check study.toml --epochs 6 --config momentum=0.9
      freezethaw check --space space.toml -- ./train.sh
    """
    from freezethaw.runtime.check import check as check_training

    with json_only(as_json):  # the training may print, also while it is imported
        entries = training_source.with_space(training_source.read_entries(ctx, what), space)
    chosen = entries["space"].validate(_default_config(entries["space"]) | parse_pairs(config or []))
    with json_only(as_json):
        report = check_training(entries["trainer"], chosen, epochs, seed, tolerance, limit, say=_print_progress)
    if as_json:
        print_json(asdict(report) | {"passed": report.passed, "config": chosen})
    else:
        _show(report, chosen, entries["trainer"])
    if not report.passed:
        raise typer.Exit(1)


def _print_progress(what: str) -> None:
    typer.echo(f"{what} ...", err=True)


def _default_config(space: Space) -> dict[str, Any]:
    """The configuration of all guesses, with the middle of the range where there is none."""
    import numpy as np

    guesses = space.guesses()
    unit = np.array([guesses.get(name, 0.5) for name in space.parameters])
    return dict(space.config(unit))


def _show(report: Any, chosen: dict[str, Any], trainer: NamedTrainer | CommandTrainer) -> None:
    out = console()
    out.print(f"{trainer} with {formatting.config(chosen)}")
    for title, losses in (("uninterrupted", report.uninterrupted), ("frozen and thawed", report.thawed)):
        out.print(f"{title:18s} {', '.join(formatting.number(y, 8) for y in losses) or 'no loss'}")
    out.print(f"frozen and killed after epoch {report.frozen_at}, thawed in a fresh process")
    for finding in report.findings:
        out.print(f"\n{finding.what}: {finding.text}", style="red")
        out.print(f"  likely cause: {finding.cause}")
    for note in report.notes:
        out.print(f"\nnote: {note}")
    if report.passed:
        what = (
            "losses (see the note)"
            if report.notes
            else f"losses and {formatting.count(len(report.files), 'saved file')}"
        )
        out.print(
            f"\npassed: {formatting.count(report.epochs, 'epoch')}, {what} are identical",
            style="green",
        )
    else:
        out.print("\nfailed: a thawed run of this training differs from an uninterrupted one", style="bold")
