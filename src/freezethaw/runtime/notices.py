"""Telling callbacks what happens in a study, whichever process it happens in: all of it is read from the store."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from freezethaw.errors import StoreError, StudyError
from freezethaw.records import Notice
from freezethaw.runtime.sitting import FAILED
from freezethaw.store import StoredDecision
from freezethaw.study import Study

Callback = Callable[[Notice], object]
TROUBLE = "callback failed"


class Teller:
    """Calls callbacks with all that happened since the last look; for each run in the order in which it happened."""

    def __init__(self, study: Study, callbacks: Sequence[Callback]) -> None:
        for callback in callbacks:
            if not callable(callback):
                raise StudyError(f"a callback is called with each notice; {callback!r} cannot be called")
        self._study, self._callbacks = study, tuple(callbacks)
        known = study.shared.snapshot()
        self._change, self._decisions = known.change, known.decisions
        self._open = {decision.number for decision in known.pending}
        self._epochs = {run.number: run.epoch for run in known.runs}
        self._reported: set[tuple[int, type[Exception]]] = set()

    @contextmanager
    def until_the_end(self) -> Iterator[Callable[[str], None]]:
        """Tell the rest when this context is left, and why the study ended: what it gives takes the reason."""
        reason = ["interrupted"]
        try:
            yield lambda text: reason.__setitem__(0, text)
        except BaseException as error:
            reason = [str(error) or type(error).__name__]
            raise
        finally:
            with suppress(StoreError):  # a database that is away has been heard of
                self.look()
            self._tell(Notice("ended", text=reason[0]))

    def look(self) -> None:
        """Tell what is new."""
        if not self._callbacks:
            return
        shared = self._study.shared
        known = shared.snapshot()
        if known.change == self._change:
            return
        self._change = known.change
        numbers = sorted(self._open) + list(range(self._decisions + 1, known.decisions + 1))
        taken = {number: shared.stored.decision(number) for number in numbers}
        begun = {found.committed for found in taken.values()}
        for number, found in taken.items():
            self._tell_decision(found, new=number > self._decisions, continued=found.closed in begun)
        self._decisions = known.decisions

    def _tell_decision(self, found: StoredDecision, new: bool, continued: bool) -> None:
        """`continued`: the next decision went on with the same run, which was not frozen between."""
        decision = found.decision
        run = self._study.shared.snapshot().runs[decision.run - 1]
        about: dict[str, Any] = {"run": run.number, "config": run.config, "decision": decision.number}
        if new:
            self._tell(Notice("decided", **about, epoch=decision.from_epoch, text=decision.reason))
        done = run.epoch if found.reached is None else found.reached
        for epoch in range(self._epochs.get(run.number, 0) + 1, done + 1):
            self._tell(Notice("epoch", **about, epoch=epoch, loss=run.losses[epoch - 1]))
        self._epochs[run.number] = max(done, self._epochs.get(run.number, 0))
        if found.state == "pending":
            self._open.add(decision.number)
            return
        self._open.discard(decision.number)
        if found.outcome == "diverged":
            self._tell(Notice("diverged", **about, epoch=done))
        elif found.outcome in ("failed", "out_of_memory"):
            said = [event.text for event in self._study.shared.events(FAILED) if event.run == run.number]
            self._tell(Notice("failed", **about, epoch=done, text=said[-1] if said else found.outcome))
        elif done >= self._study.max_epochs:
            self._tell(Notice("finished", **about, epoch=done, loss=run.losses[done - 1]))
        elif not continued:
            self._tell(Notice("frozen", **about, epoch=done, loss=run.losses[done - 1] if done else None))

    def _tell(self, notice: Notice) -> None:
        for place, callback in enumerate(self._callbacks):
            try:
                callback(notice)
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)  # as if it were pressed: runs are saved and frozen first
            except Exception as error:  # a study of days does not end for a message that could not be sent
                self._report(place, callback, notice, error)

    def _report(self, place: int, callback: Callback, notice: Notice, error: Exception) -> None:
        """Once for each callback and kind of error."""
        if (place, type(error)) in self._reported:
            return
        self._reported.add((place, type(error)))
        name = getattr(callback, "__name__", type(callback).__name__)
        text = f"the callback {name} raised {type(error).__name__}: {error} at the notice {notice.kind!r}"
        details = {"traceback": "".join(traceback.format_exception(error))}
        with suppress(StoreError):
            self._study.shared.stored.add_event(TROUBLE, text, notice.run, notice.epoch or None, details)
        sys.stderr.write(f"freezethaw: {text}; the study goes on\n")
