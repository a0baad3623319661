"""One run in the hands of a worker, from start or thaw until it is frozen, ends or is lost.

Every loss is recorded as soon as it is reported. A run is saved before it is frozen or given back, at each new best
loss of the study, and every so many epochs; while decisions continue the run in hand nothing is saved or loaded.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from freezethaw.errors import (
    CheckpointError,
    Diverged,
    LeaseLost,
    OutOfMemory,
    Preempted,
    StoreError,
    TellError,
    TrainingError,
)
from freezethaw.records import Decision
from freezethaw.runtime.alarm import Alarm, where_it_is
from freezethaw.store import Closing, NewCheckpoint, Report, StoredCheckpoint
from freezethaw.trainers.protocol import Save, TrainingRun

if TYPE_CHECKING:
    from freezethaw.runtime.worker import Worker

FAILED = "run failed"  # events of this kind say why
NO_MEMORY = "memory given up"
PREEMPTED = "run pre-empted"
PATIENCE = 5  # times that a run may be pre-empted at the same place


class Sitting:
    """One run in the hands of a worker, from start or thaw until it is frozen, ends or is lost."""

    def __init__(self, worker: Worker, decision: Decision, careful: bool = False) -> None:
        self.worker, self.decision, self.careful = worker, decision, careful
        self.run: TrainingRun | None = None
        self.epoch = 0
        self.over = False
        self.alarm: Alarm | None = None
        self.recalled = False  # whether what is trained came from memory, not from a checkpoint
        self._process = os.getpid()
        runs = worker.study.shared.seen().runs  # as of the decision, or of its being taken over
        self._recorded = runs[decision.run - 1].epoch if decision.run <= len(runs) else 0  # epochs in the store
        self._begun = 0  # the epoch that was loaded
        self._saved = 0  # epoch of the last checkpoint
        self._newest: NewCheckpoint | None = None  # the last checkpoint that was saved here
        self._clock = time.perf_counter()

    def begin(self, epoch: int, recalled: bool = False) -> bool:
        """Training continues after this epoch; False where there is nothing to train."""
        self.recalled = recalled
        self.epoch = self._begun = self._saved = epoch
        if epoch >= self.decision.to_epoch:  # a worker was killed when it had saved, and not told yet
            self._end("told")
        elif self.worker.leaving():
            self._end("interrupted")
        self._clock = time.perf_counter()
        return not self.over

    @contextlib.contextmanager
    def unless_lost(self) -> Iterator[None]:
        """Where another worker has the run by now, it is no longer this one's; after a mishap anybody may have it."""
        shared = self.worker.study.shared
        try:
            yield
        except LeaseLost:
            self.over = True
        except BaseException:
            with contextlib.suppress(StoreError, TellError):
                shared.stored.release(shared.lease(self.decision))
            raise
        finally:
            shared.let_go(self.decision)

    def report(self, epoch: int, loss: object, save: Save | None, metrics: Mapping[str, object]) -> bool:
        """Record a loss; says whether to go on with this run."""
        seconds = time.perf_counter() - self._clock
        if os.getpid() != self._process:
            raise TrainingError(f"run {self.decision.run}: a loss was reported by a forked process, not by its worker")
        if self.alarm is not None:
            self.alarm.stop()
        checked = number(loss, f"the loss of run {self.decision.run} at epoch {epoch}")
        others = {name: plain(value, f"{name} of run {self.decision.run}") for name, value in metrics.items()}
        go_on = self._advanced(epoch, checked, Report(epoch, (checked,), (seconds,), (others,) if others else ()), save)
        self.over = not go_on
        self.worker.epochs += 1
        if self.alarm is not None and go_on:
            self.alarm.start()
        self._clock = time.perf_counter()
        return go_on

    def _advanced(self, epoch: int, loss: float, report: Report, save: Save | None) -> bool:
        self.epoch = epoch
        if not math.isfinite(loss):
            self._end("diverged")
            return False
        if self.worker.leaving() and not (self.run is not None and self.run.more):
            # first the loss: saving may take longer than whoever wants us gone will wait
            self._write(report)
            self._end("interrupted", save)
            return False
        due = self._is_best(loss) or epoch - self._saved >= self.worker.habits.every
        # what was trained again is saved, once or at each epoch: else it might never get further than the last time
        again = epoch == self._recorded or (self.careful and epoch < self._recorded)
        self._write(report, save if again or (due and epoch < self.decision.to_epoch) else None)
        self.worker.note((self.worker.sign * loss, self.decision.run, epoch))
        self.worker.look()
        if epoch < self.decision.to_epoch:
            return True
        further = self.worker.study.go_on(self.decision)
        if further is not None:
            self.decision = further
            if self.run is not None:
                self.run.to_epoch = further.to_epoch
            if due:
                self._write(None, save)
            return True
        self._end("told", save)
        self._stay_in_memory()
        return False

    def returned(self) -> None:
        """The training function came back."""
        if self.over:
            return
        if self.epoch > self._begun:
            self.fail(
                f"the training of run {self.decision.run} returned at epoch {self.epoch}, before the run was "
                "frozen: loop over run.epochs() until it ends"
            )
        else:
            self.fail(f"the training of run {self.decision.run} returned without reporting a loss")

    def failed(self, error: BaseException) -> None:
        """The training function raised; what is no fault of its own is raised again."""
        if self.over:
            return
        run = self.decision.run
        if self._caused_by_memory(error):
            self._give_memory_up(error)
            return
        match error:
            case StoreError() if not isinstance(error, CheckpointError) or error.__cause__ is not None:
                raise error  # the lease is lost, the disk is full, the database is away
            case Diverged():
                self._end("diverged")
            case Preempted():
                self._preempted(error)
            case KeyboardInterrupt():
                self._end("interrupted")
                raise error
            case SystemExit():
                self.fail(f"the training of run {run} ended its process: exit({error.code!r})")
            case _ if _out_of_memory(error):
                self.fail(f"run {run} ran out of memory: {error}", "out_of_memory")
            case _:
                where = "".join(traceback.format_exception(error))
                self.fail(f"run {run}: {type(error).__name__}: {error}", "failed", where)

    def _preempted(self, error: Preempted) -> None:
        """Freeze the run; where it never gets anywhere it has failed, or the search would choose it for ever."""
        shared, run, place = self.worker.study.shared, self.decision.run, {"saved": self._saved}
        if self.worker.leaving():
            self._end("interrupted")
            return
        shared.stored.add_event(PREEMPTED, f"run {run}: {str(error) or 'pre-empted'}", run, self._recorded, place)
        here = [e for e in shared.events(PREEMPTED) if (e.run, e.epoch, e.details) == (run, self._recorded, place)]
        if len(here) < PATIENCE:
            self._end("interrupted")
        else:
            self.fail(
                f"run {run} was pre-empted {len(here)} times after epoch {self._recorded} and never got any further; "
                "a training raises Preempted (a command exits with 12) only where its machine is wanted elsewhere"
            )

    def overdue(self, seconds: float) -> None:
        """The epoch takes too long: the run has failed. From another thread, while the training hangs."""
        text = f"run {self.decision.run}: longer than {seconds:g} s for one epoch (epoch {self.epoch + 1})"
        self.fail(text, "failed", where_it_is())

    def fail(self, text: str, how: Closing = "failed", details: str = "") -> None:
        """End the run, and say why."""
        stored = self.worker.study.shared.stored
        stored.add_event(FAILED, text, self.decision.run, self.epoch, {"traceback": details} if details else None)
        self._end(how)

    def _write(self, report: Report | None, save: Save | None = None) -> None:
        shared = self.worker.study.shared
        checkpoint, replaced = self._checkpoint(save)
        numbers = [old.number for old in replaced]
        found = shared.stored.record(shared.lease(self.decision), report, checkpoint, replaced=numbers)
        self._recorded = found.epoch
        self._tidy(checkpoint, replaced)

    def _end(self, how: Closing, save: Save | None = None) -> None:
        shared = self.worker.study.shared
        checkpoint, replaced = self._checkpoint(save)
        close: Closing = "interrupted" if how == "told" and self._recorded <= self.decision.from_epoch else how
        shared.stored.record(shared.lease(self.decision), None, checkpoint, close, [old.number for old in replaced])
        shared.let_go(self.decision)
        self.over = True
        self._tidy(checkpoint, replaced)

    def _tidy(self, checkpoint: NewCheckpoint | None, replaced: tuple[StoredCheckpoint, ...]) -> None:
        """After a checkpoint was recorded."""
        if checkpoint is not None:
            self._saved, self._newest = checkpoint.epoch, checkpoint
            self.worker.keeper.remove(replaced)
            self.worker.make_room()

    def _stay_in_memory(self) -> None:
        """Keep what was trained, if it may be wanted again and is exactly what was saved."""
        held = None if self.run is None else self.run.kept
        finished = self.epoch >= self.worker.study.shared.seen().definition["max_epochs"]
        if held is not None and not finished and self._newest is not None and self._newest.epoch == self.epoch:
            self.worker.memory.keep(self.decision.run, self._newest, held)

    def _caused_by_memory(self, error: BaseException) -> bool:
        """Whether the cache may be at fault, not the training: it took the room, or gave out what cannot go on."""
        if not isinstance(error, Exception) or isinstance(error, StoreError | Diverged | Preempted):
            return False
        return (_out_of_memory(error) and len(self.worker.memory) > 0) or (self.recalled and self.epoch == self._begun)

    def _give_memory_up(self, error: BaseException) -> None:
        text = f"run {self.decision.run}: {type(error).__name__}: {error}; tried again with no frozen run in memory"
        self.worker.study.shared.stored.add_event(NO_MEMORY, text, self.decision.run, self.epoch)
        self.worker.memory.give_up()
        self._end("interrupted")

    def _checkpoint(self, save: Save | None) -> tuple[NewCheckpoint | None, tuple[StoredCheckpoint, ...]]:
        """Save the run as it is now, unless it was saved at this epoch already; with those that it replaces."""
        if save is None or self._saved == self.epoch:
            return None, ()
        lease = self.worker.study.shared.lease(self.decision)
        new = self.worker.keeper.save(lease, self.epoch, save)
        return new, self.worker.keeper.replaced(lease.run, self.worker.best_marks())

    def _is_best(self, loss: float) -> bool:
        """Whether this is a new best loss of the study, or that very epoch trained again."""
        lowest = self.worker.lowest()
        mine = (self.worker.sign * loss, self.decision.run, self.epoch)
        return lowest is None or mine[0] < lowest[0] or mine[1:] == lowest[1:]


def number(value: object, what: str) -> float:
    """A loss as a float; NaN and infinities too. Anything that is a number to Python will do, but no text."""
    if not isinstance(value, str | bytes | bytearray | bool | None):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return float(value)  # type: ignore[arg-type]
    raise TrainingError(f"{what} must be a number, not {value!r:.200}")


def plain(value: object, what: str) -> object:
    """A metric as it can be kept: a number, a text, True, False or None."""
    return value if value is None or isinstance(value, str | bool | int) else number(value, what)


def _out_of_memory(error: BaseException) -> bool:
    """Also of libraries that have an error of their own for it."""
    return isinstance(error, MemoryError | OutOfMemory) or type(error).__name__ == "OutOfMemoryError"
