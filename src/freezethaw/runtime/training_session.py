"""One run trained by a worker, from start or thaw until it is frozen, ends or is lost.

Every loss is recorded as soon as it is reported. A run is saved before it is frozen or released, at each new best loss
of the study, and every few epochs. The decision after the last granted epoch is made here: if it continues the run,
training goes straight on; else the run is saved, and its end is committed together with the next decision.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from freezethaw.errors import (
    AllPending,
    CheckpointError,
    Diverged,
    LeaseLost,
    OutOfMemory,
    Preempted,
    StoreError,
    StudyFinished,
    TellError,
    TrainingError,
    described,
)
from freezethaw.records import Checkpoint, Closing, Decision, Lease, Report
from freezethaw.runtime.signals import EpochTimeout, main_thread_stack
from freezethaw.study.session import Saved
from freezethaw.trainers.protocol import Save, TrainingRun

if TYPE_CHECKING:
    from freezethaw.runtime.worker import Worker

FAILED = "run failed"  # events of this kind say why
LATE_ERROR = "error after training"
CACHE_OFF = "models no longer kept in memory"
PREEMPTED = "run preempted"
NOT_SAVED = "run not saved"
MOST_PREEMPTIONS = 5  # of a run at the same place
NOTHING_SAVED: Saved = (None, ())


class TrainingSession:
    """One run trained by a worker, from start or thaw until it is frozen, ends or is lost."""

    def __init__(self, worker: Worker, decision: Decision, careful: bool = False) -> None:
        self.worker, self.session = worker, worker.session
        self.decision, self.careful = decision, careful
        self.run: TrainingRun | None = None
        self.epoch = 0
        self.over = False
        self.timeout: EpochTimeout | None = None
        self.from_cache = False  # whether the model came from memory, not from a checkpoint
        self._process = os.getpid()
        runs = self.session.state.runs  # as of the decision, or of its being taken over
        self._recorded = runs[decision.run - 1].epoch if decision.run <= len(runs) else 0  # epochs in storage
        self._loaded = 0  # the epoch that was loaded
        self._saved = 0  # epoch of the last checkpoint
        self._unrecorded: Saved | None = None  # a checkpoint that was written and not recorded yet
        self._newest: Checkpoint | None = None  # the last checkpoint that was recorded here
        self._replaced: list[Checkpoint] = []  # whose files are to be removed
        self._cleaning = False
        self._internal_error: Exception | None = None  # of deciding, not of the training
        self._next: Decision | None = None  # the next decision, if it was made when this one ended
        self._why_no_decision: Callable[[], StudyFinished | AllPending] | None = None  # why there is none
        self._saving = 0.0  # seconds that the last save took
        self._clock = time.perf_counter()

    def begin(self, epoch: int, from_cache: bool = False) -> bool:
        """Training continues after this epoch; False if there is nothing to train."""
        self.from_cache = from_cache
        self.epoch = self._loaded = self._saved = epoch
        if epoch >= self.decision.to_epoch:  # a worker was killed after it had saved, before it closed the decision
            self._close("told")
        elif self.worker.leaving():
            self._close("interrupted")
        self._clock = time.perf_counter()
        return not self.over

    @contextlib.contextmanager
    def holding_lease(self) -> Iterator[None]:
        """Stop if another worker took the run over; release the lease if anything else goes wrong."""
        try:
            yield
        except LeaseLost:
            self.over = True
        except BaseException:
            for decision in (self.decision, self._next):
                if decision is not None:
                    with contextlib.suppress(StoreError, TellError):
                        self.session.release(decision)
            raise
        finally:
            self.session.let_go(self.decision)

    def next_decision(self) -> Decision | None:
        """The next decision, if it was made when this one ended; raises StudyFinished or AllPending likewise."""
        if self._why_no_decision is not None:
            raise self._why_no_decision()
        return self._next

    def report(self, epoch: int, loss: object, save: Save | None, metrics: Mapping[str, object]) -> bool:
        """Record a loss; returns whether to continue this run."""
        seconds = time.perf_counter() - self._clock
        if os.getpid() != self._process:
            raise TrainingError(f"run {self.decision.run}: a loss was reported by a forked process, not by its worker")
        if self.timeout is not None:
            self.timeout.stop()
        checked = number(loss, f"the loss of run {self.decision.run} at epoch {epoch}")
        others = {name: metric(value, f"{name} of run {self.decision.run}") for name, value in metrics.items()}
        report = Report(epoch, (checked,), (seconds,), (others,) if others else ())
        continues = self._advance(epoch, checked, report, save)
        self.over = not continues
        self.worker.epochs += 1
        self.worker.after_epoch()
        if self.timeout is not None and continues:
            self.timeout.start()
        self._clock = time.perf_counter()
        return continues

    def _advance(self, epoch: int, loss: float, report: Report, save: Save | None) -> bool:
        self.epoch = epoch
        if not math.isfinite(loss):
            self._close("diverged")
            return False
        if self.worker.leaving() and not (self.run is not None and self.run.more):
            self._record(report)  # first the loss: saving may take longer than there is time
            self._close("interrupted", save)
            self._say_if_not_saved(save)
            return False
        due = self._is_best(loss) or epoch - self._saved >= self.worker.options.every
        # save what was trained again, once or at each epoch: else it might never get further than the last time
        now = epoch == self._recorded or (self.careful and epoch < self._recorded)
        now = now or self.worker.options.is_long(report.seconds[0], self._saving)
        last = epoch >= self.decision.to_epoch
        lease = self._record(report, save if now or (due and not last) else None, deciding=last)
        self.worker.note((self.session.definition.sign * loss, self.decision.run, epoch))
        if not last:
            return True
        return self._decide(lease, due, save)

    def _decide(self, lease: Lease | None, due: bool, save: Save | None) -> bool:
        """Make the next decision and close this one; returns whether it continues this run."""
        failed_saves: list[Exception] = []

        def saved(continues: bool) -> Saved:
            try:
                return self._save(save if due or not continues else None)
            except Exception as error:
                failed_saves.append(error)
                raise

        try:
            decision = self.session.next_decision(self.decision, lease, saved)
        except (StudyFinished, AllPending) as end:
            self._why_no_decision = partial(
                type(end), str(end)
            )  # not the exception itself, whose frames hold the model
            self._close("told", save)
            self._say_if_not_saved(save)
            self._keep_model()
            return False
        except Exception as error:
            self._internal_error = None if error in failed_saves else error
            raise
        continues = decision.run == self.decision.run
        if continues:
            self.decision = decision
            if self.run is not None:
                self.run.to_epoch = decision.to_epoch
        else:
            self._next, self.over = decision, True
        self._mark_recorded()
        self._clean_up()
        if not continues:
            self._say_if_not_saved(save)
            self._keep_model()
        elif self.worker.leaving():  # asked to while deciding: the next epoch may take long
            self._close("interrupted", save)
            return False
        return continues

    def _say_if_not_saved(self, save: Save | None) -> None:
        """Once for each study: a training that never saves is correct, and expensive."""
        if save is None and not self._saved and self.epoch < self.session.state.max_epochs:
            run = self.decision.run
            text = (
                f"run {run} was frozen after epoch {self.epoch} without a checkpoint, because the training calls "
                "run.report(loss) without save: each thaw of a run trains it again from epoch 1. Pass a function that "
                "saves, run.report(loss, save=...), and load run.checkpoint if it is set"
            )
            self.session.storage.add_event(NOT_SAVED, text, run, self.epoch, once=True)

    def returned(self) -> None:
        """The training function returned."""
        if self.over:
            return
        if self.epoch > self._loaded:
            self.fail(
                f"the training of run {self.decision.run} returned at epoch {self.epoch}, before the run was "
                "frozen: loop over run.epochs() until it ends"
            )
        else:
            self.fail(f"the training of run {self.decision.run} returned without reporting a loss")

    def failed(self, error: BaseException) -> None:
        """The training function raised; what is not its own fault is raised again."""
        run = self.decision.run
        if self.over:
            self._late_error(error)
            return
        if error is self._internal_error:
            raise error
        if self._caused_by_cache(error):
            self._disable_cache(error)
            return
        match error:
            case StoreError() if not isinstance(error, CheckpointError) or error.__cause__ is not None:
                raise error  # the lease is lost, the disk is full, the database is away
            case Diverged():
                self._close("diverged")
            case Preempted():
                self._preempted(error)
            case KeyboardInterrupt():
                self._close("interrupted")
                raise error
            case SystemExit():
                text = f"the training of run {run} ended its process: exit({error.code!r})"
                self.fail(text, "failed", _traceback(error))
            case _ if _out_of_memory(error):
                text = f"run {run} ran out of memory: {str(error) or type(error).__name__}"
                self.fail(text, "out_of_memory", _traceback(error))
            case _:
                self.fail(f"run {run}: {described(error)}", "failed", _traceback(error))

    def _late_error(self, error: BaseException) -> None:
        """The training raised after its run was frozen or ended: what was recorded stands, and the error is kept."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        if isinstance(error, Exception) or (isinstance(error, SystemExit) and error.code):
            text = f"run {self.decision.run}: {described(error)} (after its last report)"
            details = {"traceback": _traceback(error)}
            self.session.storage.add_event(LATE_ERROR, text, self.decision.run, self.epoch, details)

    def _preempted(self, error: Preempted) -> None:
        """Freeze the run; if it never gets any further it has failed, or the search would choose it for ever."""
        run, place = self.decision.run, {"saved": self._saved}
        if self.worker.leaving():
            self._close("interrupted")
            return
        text = f"run {run}: {str(error) or 'preempted'}"
        self.session.storage.add_event(PREEMPTED, text, run, self._recorded, place)
        here = (run, self._recorded, place)
        times = sum((e.run, e.epoch, e.details) == here for e in self.session.events(PREEMPTED))
        if times < MOST_PREEMPTIONS:
            self._close("interrupted")
        else:
            self.fail(
                f"run {run} was preempted {times} times after epoch {self._recorded} and never got any further; "
                "raise Preempted (a command exits with 12) only if the machine is needed elsewhere"
            )

    def timed_out(self, seconds: float) -> None:
        """The epoch takes too long: the run has failed. Called from another thread, while the training hangs."""
        text = f"run {self.decision.run}: longer than {seconds:g} s for one epoch (epoch {self.epoch + 1})"
        self.fail(text, "failed", main_thread_stack())

    def fail(self, text: str, how: Closing = "failed", details: str = "") -> None:
        """End the run as failed, with an event that says why."""
        kept = {"traceback": details} if details else None
        self.session.storage.add_event(FAILED, text, self.decision.run, self.epoch, kept)
        self._close(how)

    def _record(self, report: Report, save: Save | None = None, deciding: bool = False) -> Lease | None:
        """Record a loss, with a checkpoint if `save` is given; returns the decision lease if it was acquired."""
        found = self.session.record(self.decision, report, self._save(save), deciding=deciding)
        self._recorded = found.epoch
        self._mark_recorded()
        if not deciding:  # else after the decision: others wait for the lease
            self._clean_up()
        return found.decision_lease

    def _close(self, how: Closing, save: Save | None = None) -> None:
        close: Closing = "interrupted" if how == "told" and self._recorded <= self.decision.from_epoch else how
        self.session.record(self.decision, None, self._save(save), close)
        self.over = True
        self._mark_recorded()
        self._clean_up()

    def _save(self, save: Save | None) -> Saved:
        """Write a checkpoint of the run as it is now, unless there is one of this epoch; with those it replaces."""
        if self._unrecorded is not None:
            checkpoint, _ = self._unrecorded
            if checkpoint is not None and checkpoint.epoch <= self._recorded:  # a transaction that is tried again
                return self._unrecorded
            self._unrecorded, self._replaced = None, []  # the loss of its epoch was never recorded
        if save is None or self._saved == self.epoch:
            return NOTHING_SAVED
        lease, begin = self.session.lease(self.decision), time.perf_counter()
        new = self.worker.checkpoints.save(lease, self.epoch, save)
        self._saving = time.perf_counter() - begin
        replaced = self.worker.checkpoints.replaced(lease.run, self.worker.protected())
        self._replaced += replaced
        self._unrecorded = new, [old.number for old in replaced]
        return self._unrecorded

    def _mark_recorded(self) -> None:
        """The checkpoint that was written is recorded now."""
        if self._unrecorded is not None and self._unrecorded[0] is not None:
            self._newest, self._cleaning = self._unrecorded[0], True
            self._saved, self._unrecorded = self._newest.epoch, None

    def _clean_up(self) -> None:
        """After a checkpoint was recorded: remove the files of those it replaces, and keep to the disk budget."""
        if self._cleaning:
            self._cleaning = False
            self.worker.checkpoints.remove(self._replaced)
            self._replaced = []
            self.worker.evict()

    def _keep_model(self) -> None:
        """Keep the model in memory, if it may be needed again and is exactly what was saved."""
        model = None if self.run is None else self.run.kept
        finished = self.epoch >= self.session.state.max_epochs
        if model is not None and not finished and self._newest is not None and self._newest.epoch == self.epoch:
            self.worker.models.keep(self._newest, model)

    def _caused_by_cache(self, error: BaseException) -> bool:
        """Whether models kept in memory may be at fault: they took the memory, or cannot be trained further."""
        if not isinstance(error, Exception) or isinstance(error, StoreError | Diverged | Preempted):
            return False
        return (_out_of_memory(error) and len(self.worker.models) > 0) or (
            self.from_cache and self.epoch == self._loaded
        )

    def _disable_cache(self, error: BaseException) -> None:
        text = f"run {self.decision.run}: {described(error)}; tried again with no model kept in memory"
        self.session.storage.add_event(CACHE_OFF, text, self.decision.run, self.epoch)
        self.worker.models.disable()
        self._close("interrupted")

    def _is_best(self, loss: float) -> bool:
        """Whether this is a new best loss of the study, or that very epoch trained again."""
        lowest = self.worker.lowest()
        mine = (self.session.definition.sign * loss, self.decision.run, self.epoch)
        return lowest is None or mine[0] < lowest[0] or mine[1:] == lowest[1:]


def _traceback(error: BaseException) -> str:
    """The user's whole traceback, as Python prints it."""
    return "".join(traceback.format_exception(error))


def number(value: object, what: str) -> float:
    """A loss as a float; NaN and infinities too. Anything that Python converts to a float, except text."""
    if not isinstance(value, str | bytes | bytearray | bool | None):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return float(value)  # type: ignore[arg-type]
    raise TrainingError(f"{what} must be a number, not {value!r:.200}")


def metric(value: object, what: str) -> object:
    """A metric that can be stored: a number, a text, True, False or None."""
    return value if value is None or isinstance(value, str | bool | int) else number(value, what)


def _out_of_memory(error: BaseException) -> bool:
    """Also of libraries that have an error of their own for it."""
    return isinstance(error, MemoryError | OutOfMemory) or type(error).__name__ == "OutOfMemoryError"
