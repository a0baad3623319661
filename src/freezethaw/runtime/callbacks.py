"""Tell the user what happens in a study, in whichever process: callbacks, events on standard error, and the display.

All of it is read from storage.
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from freezethaw.errors import StoreError, StudyError, described
from freezethaw.records import DecisionRecord, Notice
from freezethaw.runtime.serialization import CHANGED
from freezethaw.runtime.training_session import FAILED, NOT_SAVED
from freezethaw.study import StudySession

Callback = Callable[[Notice], object]
CALLBACK_FAILED = "callback failed"
ANNOUNCED = (NOT_SAVED, CHANGED)  # kinds of events that are printed at once
ANNOUNCE_PAUSE = 1.0  # seconds between two checks for them


class Callbacks:
    """Calls callbacks with everything that happened since the last update; for each run in order."""

    def __init__(self, session: StudySession, callbacks: Sequence[Callback]) -> None:
        for callback in callbacks:
            if not callable(callback):
                raise StudyError(f"a callback is called with each notice; {callback!r} cannot be called")
        self._session, self._callbacks = session, tuple(callbacks)
        state = session.refresh()
        self._change, self._decisions = state.change, state.decisions
        self._open = {decision.number for decision in state.pending}
        self._epochs = {run.number: run.epoch for run in state.runs}
        self._reported: set[tuple[int, type[Exception]]] = set()

    @contextmanager
    def until_the_end(self) -> Iterator[Callable[[str], None]]:
        """At the end of this context, report the rest, and the reason that was passed to the yielded function."""
        reason = ["interrupted"]
        try:
            yield lambda text: reason.__setitem__(0, text)
        except BaseException as error:
            reason = [str(error) or described(error)]
            raise
        finally:
            with suppress(StoreError):  # an unavailable database was reported already
                self.update()
            self._call(Notice("ended", text=reason[0]))

    def update(self) -> None:
        """Report what is new."""
        if not self._callbacks:
            return
        state = self._session.refresh()
        if state.change == self._change:
            return
        self._change = state.change
        numbers = sorted(self._open) + list(range(self._decisions + 1, state.decisions + 1))
        records = {number: self._session.storage.decision(number) for number in numbers}
        begun = {(record.committed, record.decision.run) for record in records.values()}
        for number, record in records.items():
            continued = (record.closed, record.decision.run) in begun
            self._report_decision(record, new=number > self._decisions, continued=continued)
        self._decisions = state.decisions

    def _report_decision(self, found: DecisionRecord, new: bool, continued: bool) -> None:
        """`continued`: the next decision continued the same run, which was not frozen between."""
        decision, state = found.decision, self._session.state
        run = state.run(decision.run)
        about: dict[str, Any] = {"run": run.number, "config": run.config, "decision": decision.number}
        if new:
            self._call(Notice("decided", **about, epoch=decision.from_epoch, text=decision.reason))
        done = run.epoch if found.reached is None else found.reached
        for epoch in range(self._epochs.get(run.number, 0) + 1, done + 1):
            self._call(Notice("epoch", **about, epoch=epoch, loss=run.losses[epoch - 1]))
        self._epochs[run.number] = max(done, self._epochs.get(run.number, 0))
        if found.state == "pending":
            self._open.add(decision.number)
            return
        self._open.discard(decision.number)
        if found.outcome == "diverged":
            self._call(Notice("diverged", **about, epoch=done))
        elif found.outcome in ("failed", "out_of_memory"):
            said = [event.text for event in self._session.events(FAILED) if event.run == run.number]
            self._call(Notice("failed", **about, epoch=done, text=said[-1] if said else found.outcome))
        elif done >= state.max_epochs:
            self._call(Notice("finished", **about, epoch=done, loss=run.losses[done - 1]))
        elif not continued:
            self._call(Notice("frozen", **about, epoch=done, loss=run.losses[done - 1] if done else None))

    def _call(self, notice: Notice) -> None:
        for place, callback in enumerate(self._callbacks):
            try:
                callback(notice)
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)  # as for Ctrl-C: runs are saved and frozen first
            except Exception as error:  # a long study does not end because a callback failed
                self._report(place, callback, notice, error)

    def _report(self, place: int, callback: Callback, notice: Notice, error: Exception) -> None:
        """Once for each callback and kind of error."""
        if (place, type(error)) in self._reported:
            return
        self._reported.add((place, type(error)))
        name = getattr(callback, "__name__", type(callback).__name__)
        text = f"the callback {name} raised {described(error)} at the notice {notice.kind!r}"
        details = {"traceback": "".join(traceback.format_exception(error))}
        with suppress(StoreError):
            self._session.storage.add_event(CALLBACK_FAILED, text, notice.run, notice.epoch or None, details)
        sys.stderr.write(f"freezethaw: {text}; the study continues\n")


class Announcements:
    """Prints new events of the kinds `ANNOUNCED` on standard error."""

    def __init__(self, session: StudySession) -> None:
        self._session, self._looked = session, time.monotonic()
        last = session.storage.last_events(1)
        self._seen = last[-1].number if last else 0

    def update(self, always: bool = False) -> None:
        """Print what is new."""
        if not always and time.monotonic() - self._looked < ANNOUNCE_PAUSE:
            return
        self._looked = time.monotonic()
        for event in self._session.storage.events(self._seen):
            self._seen = event.number
            if event.kind in ANNOUNCED:
                sys.stderr.write(f"freezethaw: {event.text}\n")


@contextmanager
def observed(
    session: StudySession, callbacks: Sequence[Callback], progress: bool | None
) -> Iterator[tuple[Callable[[], None], Callable[[str], None]]]:
    """Everything that `tune` shows: yields a function to call repeatedly, and one to call with the reason at the end.

    `progress`: whether to show a display; None: on a terminal and in a notebook.
    """
    called, announced = Callbacks(session, callbacks), Announcements(session)
    with _displayed(session, progress) as display, called.until_the_end() as ended:

        def update() -> None:
            display()
            called.update()
            announced.update()

        yield update, ended
        announced.update(always=True)


@contextmanager
def _displayed(session: StudySession, wanted: bool | None) -> Iterator[Callable[[], None]]:
    """A function that updates the progress display."""
    if not (_is_interactive() if wanted is None else wanted):
        yield lambda: None
        return
    from freezethaw.runtime.progress import Progress  # the terminal library is imported only if it is used

    display = Progress()
    with display:
        display.update(session, always=True)  # what was trained before is not printed again
        yield lambda: display.update(session)
        display.update(session, always=True)


def _is_interactive() -> bool:
    """Whether this is a terminal or a notebook."""
    return sys.stdout.isatty() or "ipykernel" in sys.modules
