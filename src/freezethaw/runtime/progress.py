"""The progress display: budget, best loss, pending runs with their reasons, and the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from freezethaw.plain import duration, percent
from freezethaw.records import Run, StudyState
from freezethaw.study import StudySession

PAUSE = 0.5  # seconds between two updates
LAST = 50  # decisions that may have been made since


class Progress:
    """A live display on a terminal or in a notebook; elsewhere a line for each epoch."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._clock, self._started = clock, clock()
        self._last_update = -PAUSE
        self._seen: dict[int, int] = {}  # run -> epochs shown; -1: its end
        self._reasons: dict[int, str] = {}  # run -> why it was last advanced
        self._first: int | None = None  # epochs that were trained before
        self._live: Live | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Progress:
        if self.console.is_terminal or self.console.is_jupyter:
            self._live = self._stack.enter_context(Live(console=self.console, refresh_per_second=4, transient=True))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def update(self, session: StudySession, always: bool = False) -> None:
        """Show what has changed."""
        if not always and self._clock() - self._last_update < PAUSE:
            return
        self._last_update = self._clock()
        state = session.refresh()
        runs = state.runs
        for record in session.storage.decisions(LAST):  # short ones begin and end between two updates
            self._reasons[record.decision.run] = record.decision.reason
        if self._first is None:
            self._first = sum(run.epoch for run in runs)
            self._seen = {run.number: -1 if run.state in ("diverged", "failed") else run.epoch for run in runs}
        for run in runs:
            self._print(run)
        if self._live is not None:
            self._live.update(self._summary(session, state))

    def _print(self, run: Run) -> None:
        before = self._seen.get(run.number, 0)
        if before >= 0 and (run.epoch > before or run.state in ("diverged", "failed")):
            loss = f"loss {run.losses[-1]:<10.5g}" if run.losses else " " * 15
            ended = "" if run.state in ("frozen", "pending", "finished") else f"{run.state}  "
            reason = self._reasons.get(run.number, "")
            self.console.print(f"  run {run.number:3d}  epoch {run.epoch:4d}  {loss}  {ended}{reason}")
            self._seen[run.number] = run.epoch if not ended else -1

    def _summary(self, session: StudySession, state: StudyState) -> Group:
        runs, done = state.runs, state.epochs_trained()
        table = Table.grid(padding=(0, 2))
        total = session.definition.budget.epochs
        table.add_row("epochs", f"{done}" if total is None else f"{done} of {total}", self._left(done, total))
        if state.lowest is not None:
            best, number, epoch = state.lowest
            table.add_row("best loss", f"{state.sign * best:.5g}", f"run {number}, epoch {epoch}")
        states = {
            state: sum(run.state == state for run in runs) for state in ("frozen", "finished", "diverged", "failed")
        }
        deciding, training = session.storage.deciding_seconds(), state.seconds_trained()
        share = f"{percent(deciding / (deciding + training))} deciding" if deciding + training > 0 else ""
        table.add_row("elapsed", duration(self._clock() - self._started), share)
        table.add_row("runs", str(len(runs)), ", ".join(f"{n} {state}" for state, n in states.items() if n))
        lines: list[Any] = [table]
        if total:
            lines.append(ProgressBar(total=total, completed=min(done, total), width=60))
        lines += [Text(f"run {d.run}: {d.reason}", overflow="ellipsis", no_wrap=True) for d in state.pending]
        return Group(*lines)

    def _left(self, done: int, total: int | None) -> str:
        """The remaining time, at the rate so far."""
        trained, elapsed = done - (self._first or 0), self._clock() - self._started
        if total is None or trained < 5:
            return ""
        seconds = elapsed / trained * max(total - done, 0)
        return f"about {seconds:.0f} s left" if seconds < 100 else f"about {seconds / 60:.0f} min left"
