"""Follow a study in a terminal: what `status` says, with the curves of the best runs as lines of blocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from freezethaw.cli import words
from freezethaw.study.summary import summary

if TYPE_CHECKING:
    from rich.console import Console, Group

    from freezethaw.store import Snapshot, StoredStudy

PAUSE = 1.0  # seconds between two looks
SHOWN = 12  # runs, those at work and the best
WIDTH = 40  # of a curve


def follow(
    study: StoredStudy, console: Console, looks: int | None = None, pause: Callable[[float], None] = time.sleep
) -> None:
    """Look again and again until interrupted; where nobody looks at a screen, once."""
    from rich.live import Live

    known = study.load()
    if not console.is_terminal:
        console.print(picture(study, known))
        return
    try:
        with Live(picture(study, known), console=console, auto_refresh=False, screen=False) as live:
            while looks is None or looks > 0:
                looks = None if looks is None else looks - 1
                pause(PAUSE)
                seen, known = known, study.load(known)
                if seen is not known:
                    live.update(picture(study, known), refresh=True)
    except KeyboardInterrupt:
        return


def picture(study: StoredStudy, known: Snapshot) -> Group:
    """The study on one screen."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    found = summary(study, 5, known)
    limit = found["budget"].get("epochs")
    runs = ", ".join(f"{count} {state}" for state, count in found["runs"].items()) or "none yet"
    of = f" of {limit}" if limit else ""
    lines: list[Any] = [
        Text(f"study {found['name']}{', stopped' if found['stopped'] else ''}", style="bold"),
        Text(f"{found['epochs']}{of} epochs; runs: {runs}"),
    ]
    if limit:
        lines.append(ProgressBar(total=limit, completed=min(found["epochs"], limit), width=60))
    sign = -1.0 if found["direction"] == "maximize" else 1.0
    busy = {entry["run"]: entry for entry in found["pending"]}
    ranked = sorted((run for run in known.runs if run.losses), key=lambda run: min(sign * y for y in run.losses))
    chosen = [run for run in ranked if run.number in busy][:SHOWN]
    chosen += [run for run in ranked if run.number not in busy][: SHOWN - len(chosen)]
    table = Table("run", "best", "epochs", "curve", "", box=None, padding=(0, 1))
    for run in sorted(chosen, key=ranked.index):
        best = min(run.losses, key=lambda y: sign * y)
        state = f"to epoch {busy[run.number]['to_epoch']}" if run.number in busy else run.state
        curve = words.sparkline(run.losses, WIDTH)
        table.add_row(str(run.number), words.number(best), str(run.epoch), Text(curve, style="cyan"), state)
    if chosen:
        lines.append(table)
    lines += [
        Text(f"{d['number']:5d}  run {d['run']:<4d} {d['reason']}", overflow="ellipsis", no_wrap=True)
        for d in found["decisions"]
    ]
    return Group(*lines)
