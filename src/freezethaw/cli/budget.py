"""The command `budget`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from freezethaw.cli.app import JsonOption, NameOption, ReadsStore, StoreArgument, app, open_study, print_json


@app.command(cls=ReadsStore)
def budget(
    store: StoreArgument,
    epochs: Annotated[int | None, typer.Argument(metavar="EPOCHS", min=1, help="Epochs of the whole study.")] = None,
    name: NameOption = None,
    training_hours: Annotated[
        float | None, typer.Option(help="Hours of training of all workers, in the whole study.")
    ] = None,
    target: Annotated[float | None, typer.Option(help="Stop when a loss is at least this good.")] = None,
    worthwhile: Annotated[
        float | None, typer.Option(help="Stop when the expected improvement is smaller than this.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show or change the budget of a study. What is not given stays.

    Workers that train use the new budget at their next decision. If they have ended, start them again.

    \b
    Examples:
      freezethaw budget digits.db
      freezethaw budget digits.db 500
      freezethaw budget digits.db --training-hours 2
    """
    given = {"epochs": epochs, "training_hours": training_hours, "target": target, "worthwhile": worthwhile}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    with open_study(store, name) as study:
        if changes:
            study.set_budget(replace(study.definition.budget, **changes))
        found, trained, study_name = (
            study.definition.budget,
            sum(r.epoch for r in study.runs if not r.added),
            study.name,
        )
    if as_json:
        print_json(asdict(found) | {"trained": trained})
        return
    texts = {
        "epochs": f"{found.epochs} epochs",
        "training_hours": f"{found.training_hours:g} hours of training" if found.training_hours else "",
        "target": f"target {found.target}",
        "worthwhile": f"until the expected improvement is below {found.worthwhile}",
    }
    limits = [text for key, text in texts.items() if getattr(found, key) is not None]
    typer.echo(f"study {study_name}: {', '.join(limits) or 'no limit'}; {trained} epochs are trained")
