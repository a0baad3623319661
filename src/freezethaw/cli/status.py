"""The command `status`, once or continuously. It reads records only: no model is fitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freezethaw.cli import formatting
from freezethaw.cli.app import (
    JsonOption,
    NameOption,
    ReadsStore,
    StoreArgument,
    app,
    console,
    open_stored_study,
    print_json,
)
from freezethaw.plain import percent

if TYPE_CHECKING:
    from rich.console import Console, Group

    from freezethaw.records import StudyState
    from freezethaw.store import Storage

REFRESH_SECONDS = 1.0
RUNS_SHOWN = 12  # by --watch: those being trained and the best
CURVE_WIDTH = 40  # characters
DIRECTIONS = {"minimize": "minimised", "maximize": "maximised"}


@app.command(cls=ReadsStore)
def status(
    store: StoreArgument,
    name: NameOption = None,
    last: Annotated[int, typer.Option("--last", min=0, help="Number of decisions and events to show.")] = 5,
    watch: Annotated[bool, typer.Option("--watch", help="Update the screen until Ctrl-C, with curves.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the progress of a study.

    Prints its runs, budget, best loss, workers, last decisions with their reasons, and events.

    \b
    Examples:
      freezethaw status digits.db
      freezethaw status postgresql+psycopg://me@host/tuning --name mnist --last 20
      freezethaw status digits.db --json | jq .epochs
      freezethaw status digits.db --watch
    """
    from freezethaw.study.summary import summary, weights_over_time

    if watch:
        with open_stored_study(store, name) as (_, study):
            watch_study(study, console())
        return
    with open_stored_study(store, name) as (opened, study):
        state = study.load()
        found = summary(study, last, state) | {"store": opened.url, "weights": weights_over_time(study, state)}
    if as_json:
        print_json(found)
    else:
        _show(found)


def _show(found: Mapping[str, Any]) -> None:
    out = console()
    out.print(f"study {found['name']} in {found['store']}", style="bold")
    if found["tags"]:
        out.print(f"tags      {', '.join(found['tags'])}")
    added = f", {found['added_runs']} imported" if found["added_runs"] else ""
    out.print(f"runs      {sum(found['runs'].values())}: {_runs(found)}{added}")
    out.print(f"budget    {_budget(found)}")
    best = found["best"]
    if best is None:
        out.print(f"best      no {found['metric']} yet")
    else:
        where = f"run {best['run']}, epoch {best['epoch']} of {found['max_epochs']}"
        out.print(
            f"best      {found['metric']} {formatting.number(best['loss'])} ({DIRECTIONS[found['direction']]}): {where}"
        )
        out.print(f"          {formatting.config(best['config'])}")
    for name, weight in found["learns_from"].items():
        before = [entry["weights"][name] for entry in found["weights"]]
        over = f", since decision {found['weights'][0]['decision']}: {formatting.sparkline(before)}" if before else ""
        out.print(
            f"learns    from {name}" + ("" if weight is None else f": weight {percent(weight)} in the model{over}")
        )
    if found["checkpoint_bytes"]:
        limit = f" of {formatting.size(1e9 * found['disk_gb'])}" if found["disk_gb"] else ""
        out.print(f"disk      {formatting.size(found['checkpoint_bytes'])}{limit} used by checkpoints")
    for decision in found["pending"]:
        worker = decision["holder"] or "no worker: any worker may take it over"
        dead = ", which has ended: any worker may take it over" if decision["dead"] else ""
        out.print(
            f"training  run {decision['run']}, epoch {decision['epoch']} of {decision['to_epoch']}: {worker}{dead}"
        )
    if found["requests"]:
        out.print(f"requests  {found['requests']} waiting")
    if found["decisions"]:
        out.print("\nlast decisions", style="bold")
    rows = [
        (f"{d['number']:6d}", f"run {d['run']}", d["outcome"] or d["state"], d["reason"]) for d in found["decisions"]
    ]
    out.print(formatting.lines(rows))
    if found["events"]:
        out.print("\nevents", style="bold")
    events = [(f"  {e['at'].replace('T', ' ')[:19]}", f"{e['kind']}: {e['text']}") for e in found["events"]]
    out.print(formatting.lines(events))


def _runs(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{count} {state}" for state, count in found["runs"].items()) or "none yet"


def _budget(found: Mapping[str, Any]) -> str:
    budget = found["budget"]
    parts = [f"{found['epochs']}" + (f" of {budget['epochs']} epochs" if budget.get("epochs") else " epochs")]
    if budget.get("training_hours") or found["training_hours"] > 0:
        limit = f" of {budget['training_hours']:g} h" if budget.get("training_hours") else ""
        parts.append(f"{formatting.duration(3600 * found['training_hours'])}{limit} of training")
        parts.append(f"{formatting.duration(3600 * found['deciding_hours'])} of deciding")
    if budget.get("target") is not None:
        parts.append(f"target {formatting.number(budget['target'])}")
    if budget.get("worthwhile") is not None:
        parts.append(f"until the expected improvement is below {formatting.number(budget['worthwhile'])}")
    return ", ".join(parts)


# --watch


def watch_study(
    study: Storage, console: Console, updates: int | None = None, pause: Callable[[float], None] = time.sleep
) -> None:
    """Update the screen until interrupted, or `updates` times; print once if the output is not a terminal."""
    from rich.live import Live

    known = study.load()
    if not console.is_terminal:
        console.print(_screen(study, known))
        return
    try:
        with Live(_screen(study, known), console=console, auto_refresh=False, screen=False) as live:
            while updates is None or updates > 0:
                updates = None if updates is None else updates - 1
                pause(REFRESH_SECONDS)
                before, known = known, study.load(known)
                if before is not known:
                    live.update(_screen(study, known), refresh=True)
    except KeyboardInterrupt:
        return


def _screen(study: Storage, known: StudyState) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from freezethaw.records import best_of
    from freezethaw.runtime.progress import progress_bar
    from freezethaw.study.summary import summary

    found = summary(study, 5, known)
    limit = found["budget"].get("epochs")
    of = f" of {limit}" if limit else ""
    lines: list[Any] = [
        Text(f"study {found['name']}{', stopped' if found['stopped'] else ''}", style="bold"),
        Text(f"{found['epochs']}{of} epochs; runs: {_runs(found)}"),
    ]
    if limit:
        lines.append(progress_bar(found["epochs"], limit))
    sign = -1.0 if found["direction"] == "maximize" else 1.0
    pending = {entry["run"]: entry for entry in found["pending"]}
    ranked = sorted((run for run in known.runs if run.losses), key=lambda run: best_of(run, sign))
    shown = [run for run in ranked if run.number in pending][:RUNS_SHOWN]
    shown += [run for run in ranked if run.number not in pending][: RUNS_SHOWN - len(shown)]
    table = Table("run", f"best {found['metric']}", "epochs", "curve", "", box=None, padding=(0, 1))
    for run in sorted(shown, key=ranked.index):
        best = min(run.losses, key=lambda y: sign * y)
        state = f"to epoch {pending[run.number]['to_epoch']}" if run.number in pending else run.state
        curve = Text(formatting.sparkline(run.losses, CURVE_WIDTH), style="cyan")
        table.add_row(str(run.number), formatting.number(best), str(run.epoch), curve, state)
    if shown:
        lines.append(table)
    lines += [
        Text(f"{d['number']:5d}  run {d['run']:<4d} {d['reason']}", overflow="ellipsis", no_wrap=True)
        for d in found["decisions"]
    ]
    return Group(*lines)
