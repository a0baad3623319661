"""The worker: carries out decisions of a study in a store, one run at a time, until the study ends or it must leave.

Every loss is recorded as soon as it is reported. A run is saved before it is frozen or given back, at each new best
loss of the study, and every so many epochs; while decisions continue the run in hand nothing is saved or loaded.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from freezethaw.errors import (
    AllPending,
    CheckpointError,
    Diverged,
    LeaseLost,
    OutOfMemory,
    Preempted,
    StoreError,
    StudyError,
    StudyFinished,
    TellError,
    TrainingError,
)
from freezethaw.records import Checkpoints, Decision
from freezethaw.runtime.keeper import CheckpointKeeper
from freezethaw.store import Closing, NewCheckpoint, Report, Snapshot, StoredCheckpoint
from freezethaw.study import Study
from freezethaw.trainers.protocol import Save, TrainingRun

Train = Callable[[TrainingRun], object]
Watch = Callable[[Decision, int, float], object]  # called with each loss: decision, epoch, loss
Mark = tuple[float, int, int]  # a loss (times the sign), its run and epoch

FINISHED = "study finished"  # events of this kind say why
FAILED = "run failed"
TAKEN = "run taken over"
PAUSE = 0.2  # seconds before asking again where everything is under way
HOPELESS = 3  # runs that failed, and none that trained an epoch: the training itself is at fault
DEADLY = 3  # workers that died in the same epoch of a run: the run itself is at fault


@dataclass(frozen=True)
class Habits:
    """How a worker works."""

    every: int = 10  # epochs between checkpoints of a run that is not frozen

    @classmethod
    def of(cls, checkpoints: Checkpoints) -> Habits:
        """From what the user said of checkpoints."""
        return cls() if checkpoints.every is None else cls(every=checkpoints.every)


class Worker:
    """One process's part in a study."""

    def __init__(
        self,
        study: Study,
        train: Train,
        keeper: CheckpointKeeper,
        habits: Habits | None = None,
        leaving: Callable[[], bool] = lambda: False,
        watch: Watch | None = None,
    ) -> None:
        self.study, self.train, self.keeper = study, train, keeper
        self.habits, self.leaving, self.watch = habits or Habits(), leaving, watch
        self._seen: Snapshot | None = None
        self._lowest: Mark | None = None

    def work(self) -> str:
        """Until the study is finished, or `leaving` says so; returns why it ended."""
        while not self.leaving():
            try:
                decision, inherited = self._next()
            except StudyFinished as end:
                self.study.shared.stored.add_event(FINISHED, end.reason)
                return end.reason
            except AllPending:
                time.sleep(PAUSE)
                continue
            if decision is not None:
                self.carry_out(decision, careful=inherited)
                self._check_hope()
        return "left: the study can be continued"

    def _next(self) -> tuple[Decision | None, bool]:
        """What a dead worker left (True), or a new decision; None where nobody should go on with what was left."""
        decision = self.study.take_over()
        if decision is None:
            return self.study.ask(), False
        epoch, deaths = self._deaths(decision)
        if deaths < DEADLY:
            return decision, deaths > 0
        text = (
            f"run {decision.run}: {deaths} workers in turn were killed or crashed after epoch {epoch}: out of memory, "
            "or a fault in a library"
        )
        with contextlib.suppress(LeaseLost):
            Sitting(self, decision).fail(text)
        return None, True

    def _deaths(self, decision: Decision) -> tuple[int, int]:
        """Epochs recorded of a run that was taken over, and how many workers have died there, one after the other.

        They died at the same place if not even a checkpoint was saved between: who inherits a run saves every epoch
        that has to be trained again.
        """
        shared = self.study.shared
        known, run, token = shared.snapshot(), decision.run, shared.lease(decision).token
        epoch = known.runs[run - 1].epoch
        saved = max((c.epoch for c in known.checkpoints if c.run == run), default=0)
        if not any(e.run == run and e.details.get("token") == token for e in shared.events("lease taken over")):
            return epoch, 0  # it was given back
        text = f"run {run} is taken over after epoch {epoch}; its last checkpoint is of epoch {saved}"
        shared.stored.add_event(TAKEN, text, run, epoch, {"saved": saved})
        taken = [(e.run, e.epoch, e.details.get("saved")) for e in shared.events(TAKEN)]
        return epoch, taken.count((run, epoch, saved))

    def carry_out(self, decision: Decision, careful: bool = False) -> None:
        """Train one run until it is frozen, ends or is lost. `careful`: save every epoch that is trained again."""
        sitting, process = Sitting(self, decision, careful), os.getpid()
        lease = self.study.shared.lease(decision)
        with self.keeper.load(lease) as loaded, sitting.unless_lost():
            if not sitting.begin(0 if loaded is None else loaded.epoch):
                return
            self.keeper.clean(lease)
            run = TrainingRun(
                decision.run,
                decision.config,
                self.study.training_seed(decision.run),
                sitting.epoch,
                None if loaded is None else loaded.folder,
                sitting.report,
                decision.to_epoch,
            )
            sitting.run = run
            run.leaving = self.leaving
            try:
                self.train(run)
            except BaseException as error:
                _end_if_forked(process)
                sitting.failed(error)
            else:
                _end_if_forked(process)
                sitting.returned()

    def lowest(self) -> Mark | None:
        """The lowest loss so far, as far as this worker has seen: nothing is read from the store."""
        known = self.study.shared.seen()
        if known is not self._seen:
            self._seen, self._lowest = known, _lowest(known, self.sign)
        return self._lowest

    def note(self, mark: Mark) -> None:
        """A loss of this worker's own, which the store has."""
        lowest = self.lowest()
        self._lowest = mark if lowest is None else min(lowest, mark)

    @property
    def sign(self) -> float:
        """Losses times this are to be small."""
        return 1.0 if self.study.direction == "minimize" else -1.0

    def make_room(self) -> None:
        """Keep the checkpoints within their budget. The best run, with the noise removed, is the last to go."""
        if self.keeper.is_full():
            chances = _chances(self.study)
            best = self.study.best
            if best is not None:
                chances[best.run] = math.inf
            lowest = self.lowest()
            self.keeper.make_room(chances, None if lowest is None else lowest[1:])

    def _check_hope(self) -> None:
        if any(run.losses for run in self.study.shared.seen().runs):
            return
        runs = [run for run in self.study.runs if not run.added]
        if len(runs) >= HOPELESS and all(run.state == "failed" and not run.losses for run in runs):
            raise StudyError(
                f"the training failed in all of the first {len(runs)} runs; nothing can be learnt from that. The last "
                f"error: {self.study.shared.last_event(FAILED)}"
            )


class Sitting:
    """One run in the hands of a worker, from start or thaw until it is frozen, ends or is lost."""

    def __init__(self, worker: Worker, decision: Decision, careful: bool = False) -> None:
        self.worker, self.decision, self.careful = worker, decision, careful
        self.run: TrainingRun | None = None
        self.epoch = 0
        self.over = False
        self._process = os.getpid()
        runs = worker.study.shared.seen().runs  # as of the decision, or of its being taken over
        self._recorded = runs[decision.run - 1].epoch if decision.run <= len(runs) else 0  # epochs in the store
        self._begun = 0  # the epoch that was loaded
        self._saved = 0  # epoch of the last checkpoint
        self._clock = time.perf_counter()

    def begin(self, epoch: int) -> bool:
        """Training continues after this epoch; False where there is nothing to train."""
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
        checked = number(loss, f"the loss of run {self.decision.run} at epoch {epoch}")
        others = {name: plain(value, f"{name} of run {self.decision.run}") for name, value in metrics.items()}
        go_on = self._advanced(epoch, checked, Report(epoch, (checked,), (seconds,), (others,) if others else ()), save)
        self.over = not go_on
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
        again = self.careful and epoch <= self._recorded
        self._write(report, save if again or (due and epoch < self.decision.to_epoch) else None)
        self.worker.note((self.worker.sign * loss, self.decision.run, epoch))
        if self.worker.watch is not None:
            self.worker.watch(self.decision, epoch, loss)
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
        match error:
            case StoreError() if not isinstance(error, CheckpointError) or error.__cause__ is not None:
                raise error  # the lease is lost, the disk is full, the database is away
            case Diverged():
                self._end("diverged")
            case Preempted():
                self._end("interrupted")
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
        if checkpoint is not None:
            self._saved = checkpoint.epoch
            self.worker.keeper.remove(replaced)
            self.worker.make_room()

    def _end(self, how: Closing, save: Save | None = None) -> None:
        shared = self.worker.study.shared
        checkpoint, replaced = self._checkpoint(save)
        close: Closing = "interrupted" if how == "told" and self._recorded <= self.decision.from_epoch else how
        shared.stored.record(shared.lease(self.decision), None, checkpoint, close, [old.number for old in replaced])
        shared.let_go(self.decision)
        self.over = True
        if checkpoint is not None:
            self.worker.keeper.remove(replaced)
            self.worker.make_room()

    def _checkpoint(self, save: Save | None) -> tuple[NewCheckpoint | None, tuple[StoredCheckpoint, ...]]:
        """Save the run as it is now, unless it was saved at this epoch already; with those that it replaces."""
        if save is None or self._saved == self.epoch:
            return None, ()
        lease, lowest = self.worker.study.shared.lease(self.decision), self.worker.lowest()
        new = self.worker.keeper.save(lease, self.epoch, save)
        return new, self.worker.keeper.replaced(lease.run, None if lowest is None else lowest[1:])

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


def _lowest(known: Snapshot, sign: float) -> Mark | None:
    """The lowest of all losses, its run and epoch."""
    return min(
        ((sign * loss, run.number, epoch) for run in known.runs for epoch, loss in enumerate(run.losses, 1)),
        default=None,
    )


def _end_if_forked(process: int) -> None:
    """A training that forks, and whose child comes back from it as well: one worker is enough."""
    if os.getpid() != process:
        os._exit(0)


def _chances(study: Study) -> dict[int, float]:
    """How likely each run is to thaw: that it would end lowest, as far as the model knows; none for runs that ended."""
    with contextlib.suppress(StudyError):
        return study.p_min()
    return {}


def _out_of_memory(error: BaseException) -> bool:
    """Also of libraries that have an error of their own for it."""
    return isinstance(error, MemoryError | OutOfMemory) or type(error).__name__ == "OutOfMemoryError"
