"""The worker: carries out decisions of a study in a store, one run at a time, until the study ends or it must leave.

Every loss is recorded as soon as it is reported. A run is saved before it is frozen or given back, at each new best
loss of the study, and every so many epochs; while decisions continue the run in hand nothing is saved or loaded.
"""

from __future__ import annotations

import contextlib
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from freezethaw.errors import (
    AllPending,
    Diverged,
    LeaseLost,
    OutOfMemory,
    Preempted,
    StudyError,
    StudyFinished,
)
from freezethaw.records import Checkpoints, Decision
from freezethaw.runtime.keeper import CheckpointKeeper
from freezethaw.store import Closing, NewCheckpoint, Report
from freezethaw.study import Study
from freezethaw.trainers.protocol import Save, TrainingRun

Train = Callable[[TrainingRun], object]
Watch = Callable[[Decision, int, float], object]  # called with each loss: decision, epoch, loss

FINISHED = "study finished"  # events of this kind say why
FAILED = "run failed"
PAUSE = 0.2  # seconds before asking again where everything is under way
HOPELESS = 3  # runs that failed, and none that trained an epoch: the training itself is at fault


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

    def work(self) -> str:
        """Until the study is finished, or `leaving` says so; returns why it ended."""
        while not self.leaving():
            try:
                decision = self.study.take_over() or self.study.ask()
            except StudyFinished as end:
                self.study.shared.stored.add_event(FINISHED, end.reason)
                return end.reason
            except AllPending:
                time.sleep(PAUSE)
                continue
            self.carry_out(decision)
            self._check_hope()
        return "left: the study can be continued"

    def carry_out(self, decision: Decision) -> None:
        """Train one run until it is frozen, ends or is lost."""
        sitting = Sitting(self, decision)
        lease = self.study.shared.lease(decision)
        with self.keeper.load(lease) as loaded:
            sitting.begin(0 if loaded is None else loaded.epoch)
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
            try:
                self.train(run)
            except BaseException as error:
                sitting.failed(error)
                if not isinstance(error, Exception):
                    raise
            else:
                sitting.returned()

    def _check_hope(self) -> None:
        runs = [run for run in self.study.runs if not run.added]
        if len(runs) >= HOPELESS and all(run.state == "failed" and not run.losses for run in runs):
            raise StudyError(
                f"the training failed in all of the first {len(runs)} runs; nothing can be learnt from that. The last "
                f"error: {self.study.shared.last_event(FAILED)}"
            )


class Sitting:
    """One run in the hands of a worker, from start or thaw until it is frozen, ends or is lost."""

    def __init__(self, worker: Worker, decision: Decision) -> None:
        self.worker, self.decision = worker, decision
        self.run: TrainingRun | None = None
        self.epoch = 0
        self.over = False
        self._saved = 0  # epoch of the last checkpoint
        self._clock = time.perf_counter()

    def begin(self, epoch: int) -> None:
        """Training continues after this epoch."""
        self.epoch = self._saved = epoch
        self._clock = time.perf_counter()

    def report(self, epoch: int, loss: float, save: Save | None, metrics: dict[str, float]) -> bool:
        """Record a loss; says whether to go on with this run."""
        seconds = time.perf_counter() - self._clock
        go_on = self._recorded(epoch, float(loss), seconds, save, metrics)
        self.over = not go_on
        self._clock = time.perf_counter()
        return go_on

    def _recorded(self, epoch: int, loss: float, seconds: float, save: Save | None, metrics: dict[str, float]) -> bool:
        self.epoch = epoch
        if not math.isfinite(loss):
            self._end("diverged")
            return False
        report = Report(epoch, (loss,), (seconds,), (metrics,) if metrics else ())
        if self.worker.leaving():
            # first the loss: saving may take longer than whoever wants us gone will wait
            self._write(report)
            self._end("interrupted", self._checkpoint(save))
            return False
        due = self._is_best(loss) or epoch - self._saved >= self.worker.habits.every
        self._write(report, self._checkpoint(save) if due and epoch < self.decision.to_epoch else None)
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
                self._write(None, self._checkpoint(save))
            return True
        self._end("told", self._checkpoint(save))
        return False

    def returned(self) -> None:
        """The training function came back."""
        if self.over:
            return
        if self.epoch > self.decision.from_epoch:
            self._fail(
                f"the training of run {self.decision.run} returned at epoch {self.epoch}, before the run was "
                "frozen: loop over run.epochs() until it ends"
            )
        else:
            self._fail(f"the training of run {self.decision.run} returned without reporting a loss")

    def failed(self, error: BaseException) -> None:
        """The training function raised."""
        if self.over:
            return
        match error:
            case LeaseLost():
                self.worker.study.shared.let_go(self.decision)
                self.over = True
            case Diverged():
                self._end("diverged")
            case Preempted() | KeyboardInterrupt() | SystemExit():
                self._end("interrupted")
            case _ if _out_of_memory(error):
                self._fail(f"run {self.decision.run} ran out of memory: {error}", "out_of_memory")
            case _:
                where = traceback.format_exception(error)
                self._fail(f"run {self.decision.run}: {type(error).__name__}: {error}", "failed", "".join(where))

    def _fail(self, text: str, how: Closing = "failed", details: str = "") -> None:
        stored = self.worker.study.shared.stored
        stored.add_event(FAILED, text, self.decision.run, self.epoch, {"traceback": details} if details else None)
        self._end(how)

    def _write(self, report: Report | None, checkpoint: NewCheckpoint | None = None) -> None:
        shared = self.worker.study.shared
        shared.stored.record(shared.lease(self.decision), report, checkpoint)
        if checkpoint is not None:
            self._saved = checkpoint.epoch
            self._tidy()

    def _end(self, how: Closing, checkpoint: NewCheckpoint | None = None) -> None:
        shared = self.worker.study.shared
        if checkpoint is not None:
            self._write(None, checkpoint)
        recorded = shared.facts().run(self.decision.run).epoch
        close: Closing = "interrupted" if how == "told" and recorded <= self.decision.from_epoch else how
        shared.stored.record(shared.lease(self.decision), close=close)
        shared.let_go(self.decision)
        self.over = True

    def _checkpoint(self, save: Save | None) -> NewCheckpoint | None:
        """Save the run as it is now, unless it was saved at this epoch already."""
        if save is None or self._saved == self.epoch:
            return None
        return self.worker.keeper.save(self.worker.study.shared.lease(self.decision), self.epoch, save)

    def _tidy(self) -> None:
        study = self.worker.study
        best = _best(study)
        self.worker.keeper.tidy(study.shared.lease(self.decision), best)
        if self.worker.keeper.limited:
            self.worker.keeper.make_room(_chances(study), best)

    def _is_best(self, loss: float) -> bool:
        """Whether this is a new best loss of the study."""
        sign = 1.0 if self.worker.study.direction == "minimize" else -1.0
        losses = [sign * y for run in self.worker.study.runs for y in run.losses]
        return bool(losses) and sign * loss < min(losses)


def _best(study: Study) -> tuple[int, int] | None:
    """Run and epoch of the lowest loss."""
    sign = 1.0 if study.direction == "minimize" else -1.0
    found = [(sign * y, run.number, epoch) for run in study.runs for epoch, y in enumerate(run.losses, 1)]
    return min(found)[1:] if found else None


def _chances(study: Study) -> dict[int, float]:
    """How likely each run is to thaw: that it would end lowest, as far as the model knows; none for runs that ended."""
    with contextlib.suppress(StudyError):
        return study.p_min()
    return {}


def _out_of_memory(error: BaseException) -> bool:
    """Also of libraries that have an error of their own for it."""
    return isinstance(error, MemoryError | OutOfMemory) or type(error).__name__ == "OutOfMemoryError"
