"""Commands that look at what is recorded, and ask no model: studies, status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from freezethaw.cli import words
from freezethaw.cli.app import (
    JsonOption,
    NameOption,
    StoreOption,
    app,
    console,
    opened_store,
    opened_stored,
    print_json,
)


@app.command()
def studies(
    store: StoreOption,
    tag: Annotated[list[str] | None, typer.Option(help="Only those that have this tag.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the studies of a store.

    \b
    Examples:
      freezethaw studies --store sqlite:///digits.db
      freezethaw studies --store sqlite:///digits.db --tag baseline
    """
    with opened_store(store) as opened:
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


@app.command()
def status(
    store: StoreOption,
    name: NameOption = None,
    last: Annotated[int, typer.Option("--last", min=0, help="How many decisions and events to show.")] = 5,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it on the screen, with curves, until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show how far a study is.

    Runs, budget, best loss, who trains what, the last decisions and why, and events.

    \b
    Examples:
      freezethaw status --store sqlite:///digits.db
      freezethaw status --store postgresql+psycopg://me@host/tuning --name mnist --last 20
      freezethaw status --store sqlite:///digits.db --json | jq .epochs
      freezethaw status --store sqlite:///digits.db --watch
    """
    from freezethaw.study.summary import summary

    if watch:
        from freezethaw.cli.following import follow

        with opened_stored(store, name) as (_, study):
            follow(study, console())
        return
    with opened_stored(store, name) as (opened, study):
        found = summary(study, last) | {"store": opened.url}
    if as_json:
        print_json(found)
    else:
        _show_status(found)


def _show_status(found: Mapping[str, Any]) -> None:
    out = console()
    out.print(f"study {found['name']} in {found['store']}", style="bold")
    if found["tags"]:
        out.print(f"tags      {', '.join(found['tags'])}")
    runs = ", ".join(f"{count} {state}" for state, count in found["runs"].items()) or "none yet"
    added = f", {found['added_runs']} from elsewhere" if found["added_runs"] else ""
    out.print(f"runs      {sum(found['runs'].values())}: {runs}{added}")
    out.print(f"budget    {_budget_line(found)}")
    best = found["best"]
    if best is None:
        out.print("best      no loss yet")
    else:
        where = f"run {best['run']}, epoch {best['epoch']} of {found['max_epochs']}"
        out.print(f"best      {words.number(best['loss'])} ({words.DIRECTIONS[found['direction']]}): {where}")
        out.print(f"          {words.config(best['config'])}")
    if found["checkpoint_bytes"]:
        allowed = f", {words.size(1e9 * found['disk_gb'])} allowed" if found["disk_gb"] else ""
        out.print(f"disk      {words.size(found['checkpoint_bytes'])} of checkpoints{allowed}")
    for decision in found["pending"]:
        who = decision["holder"] or "nobody: any worker may take it over"
        dead = ", which has ended: any worker may take it over" if decision["dead"] else ""
        out.print(f"under way run {decision['run']}, epoch {decision['epoch']} of {decision['to_epoch']}: {who}{dead}")
    if found["wishes"]:
        out.print(f"wishes    {found['wishes']} waiting")
    if found["decisions"]:
        out.print("\nlast decisions", style="bold")
    for decision in found["decisions"]:
        state = decision["outcome"] or decision["state"]
        out.print(f"  {decision['number']:4d}  run {decision['run']:<4d} {state:11s} {decision['reason']}")
    if found["events"]:
        out.print("\nevents", style="bold")
    for event in found["events"]:
        out.print(f"  {event['at']}  {event['kind']}: {event['text']}")


def _budget_line(found: Mapping[str, Any]) -> str:
    budget = found["budget"]
    parts = [f"{found['epochs']}" + (f" of {budget['epochs']} epochs" if budget.get("epochs") else " epochs")]
    if budget.get("hours") or found["hours"] > 0:
        limit = f" of {budget['hours']:g} h" if budget.get("hours") else ""
        parts.append(f"{words.duration(3600 * found['hours'])}{limit} of training")
    if budget.get("target") is not None:
        parts.append(f"target {words.number(budget['target'])}")
    if budget.get("worthwhile") is not None:
        parts.append(f"until less than {words.number(budget['worthwhile'])} is expected")
    return ", ".join(parts)
