"""The progress display: what was trained and why, the best so far, pending runs, and the remaining time."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from freezethaw.plain import duration, number, percent
from freezethaw.records import Decision, Run, StudyState
from freezethaw.runtime.training_session import FAILED
from freezethaw.study import StudySession

PAUSE = 0.5  # seconds between two updates
ENDED = ("diverged", "failed")


class Progress:
    """A live display on a terminal or in a notebook; elsewhere a line for each decision that was trained."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._clock, self._started = clock, clock()
        self._last_update = -PAUSE
        self._first: int | None = None  # epochs that were trained before
        self._broken = False
        self._shown = 0  # epochs of the study's history
        self._ended: set[int] = set()  # runs whose end was shown, or happened before
        self._live: Live | None = None
        self._notebook: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> Progress:
        if "ipykernel" in sys.modules:
            self._notebook = _notebook_display()
        elif self.console.is_terminal:
            self._live = self._stack.enter_context(Live(console=self.console, refresh_per_second=4, transient=True))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def update(self, session: StudySession, always: bool = False) -> None:
        """Show what has changed."""
        if self._broken or (not always and self._clock() - self._last_update < PAUSE):
            return
        self._last_update = self._clock()
        try:
            self._show(session)
        except SystemExit:  # raised by the terminal library if the output is closed: no reason to end a training
            self._broken = True

    def _show(self, session: StudySession) -> None:
        state = session.refresh()
        if self._notebook is not None:
            self._notebook(session.name, state)
            return
        if self._first is None:
            self._first, self._shown = state.epochs_trained(), len(session.history().epochs)
            self._ended = {run.number for run in state.runs if run.state in ENDED}
        self._print_new(session, state)
        if self._live is not None:
            self._live.update(self._summary(session, state))

    def _print_new(self, session: StudySession, state: StudyState) -> None:
        """A line for each decision, with the epochs trained since the last update and the loss of the last one."""
        history = session.history()
        decisions: dict[int, list[Decision]] = {}
        for record in history.decisions:
            decisions.setdefault(record.decision.run, []).append(record.decision)
        trained: dict[tuple[int, int], list[int]] = {}  # run and number of the decision -> epochs
        for _, run, epoch in history.epochs[self._shown :]:
            if run > len(state.runs) or epoch > state.run(run).epoch:  # recorded since the state was read
                break
            self._shown += 1
            own = [d.number for d in decisions.get(run, ()) if d.from_epoch < epoch]
            if own:  # else it was imported
                trained.setdefault((run, own[-1]), []).append(epoch)
        for (run, decision), epochs in trained.items():
            loss = f"{state.metric} {number(state.run(run).losses[epochs[-1] - 1]):<9s}"
            place = f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]}-{epochs[-1]}"
            self._print(f"run {run:3d}  epoch {place:>5s}  {loss}", history.decisions[decision - 1].decision.reason)
        for ended in state.runs:
            if ended.state in ENDED and ended.number not in self._ended:
                self._ended.add(ended.number)
                self._print(f"run {ended.number:3d}  {ended.state} after epoch {ended.epoch}", _why(session, ended))

    def _print(self, what: str, reason: str) -> None:
        """On a terminal on one line, with as much of the reason as fits; elsewhere all of it."""
        line = f"{what}  {reason}".rstrip()
        if self.console.is_terminal and len(line) > self.console.width:
            line = line.partition("; next best")[0]
        fits = len(line) <= self.console.width or not self.console.is_terminal
        self.console.print(Text(line if fits else line[: self.console.width - 1].rstrip() + "…"))

    def _summary(self, session: StudySession, state: StudyState) -> Group:
        done, total = state.epochs_trained(), session.definition.budget.epochs
        table = Table.grid(padding=(0, 2))
        table.add_row("epochs", f"{done}" if total is None else f"{done} of {total}", self._left(done, total))
        if state.lowest is not None:
            _, run, epoch = state.lowest
            table.add_row(f"best {state.metric}", number(state.best_loss), f"run {run}, epoch {epoch}")
        deciding, training = session.storage.deciding_seconds(), state.seconds_trained()
        share = f"{percent(deciding / (deciding + training))} deciding" if deciding + training > 0 else ""
        table.add_row("elapsed", duration(self._clock() - self._started), share)
        states = Counter(run.state for run in state.runs if run.state != "pending")
        table.add_row("runs", str(len(state.runs)), ", ".join(f"{n} {name}" for name, n in states.items()))
        lines: list[Any] = [Text(""), table]
        if total:
            lines.append(progress_bar(done, total))
        lines += [Text(f"run {d.run}: {d.reason}", overflow="ellipsis", no_wrap=True) for d in state.pending]
        return Group(*lines)

    def _left(self, done: int, total: int | None) -> str:
        """The remaining time, at the rate so far."""
        trained, elapsed = done - (self._first or 0), self._clock() - self._started
        if total is None or trained < 5:
            return ""
        seconds = elapsed / trained * max(total - done, 0)
        return f"about {seconds:.0f} s left" if seconds < 100 else f"about {seconds / 60:.0f} min left"


def progress_bar(done: float, total: float) -> Table:
    """A bar on a line of its own: in a group of lines, the library's bar would continue on the next line."""
    table = Table.grid()
    table.add_row(ProgressBar(total=total, completed=min(done, total), width=60))
    return table


def _why(session: StudySession, run: Run) -> str:
    """The first line of the event of a failure."""
    found = [event.text for event in session.events(FAILED) if event.run == run.number]
    return found[-1].partition("\n")[0] if found else ""


def _notebook_display() -> Callable[[str, StudyState], None]:
    """A function that shows a study in one output of a notebook; without widgets, which may not be installed."""
    from freezethaw.notebook import study_html

    shown: Any = import_module("IPython.display")
    handle = shown.display(shown.HTML("starting …"), display_id=True)

    def show(name: str, state: StudyState) -> None:
        if handle is not None:  # None if the library is installed but this process is no kernel
            handle.update(shown.HTML(study_html(name, state)))

    return show
