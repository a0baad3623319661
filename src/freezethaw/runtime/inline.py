"""The inline engine: trains in this process, one run at a time. For tests, notebooks and quick trainings."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from freezethaw.errors import StudyError, StudyFinished
from freezethaw.records import Checkpoints, Decision, Outcome
from freezethaw.runtime.checkpoints import CheckpointFolder
from freezethaw.study import Study
from freezethaw.trainers.protocol import Save, TrainingRun

Train = Callable[[TrainingRun], object]
Watch = Callable[[Decision, tuple[float, ...]], object]


class _Worker:
    """Follows the decisions: as long as they continue the run in hand nothing is saved or loaded."""

    def __init__(self, study: Study, checkpoints: CheckpointFolder, every: int | None, watch: Watch | None) -> None:
        self.study, self.checkpoints, self.every, self.watch = study, checkpoints, every, watch
        self.decision = study.ask()
        self.finished: StudyFinished | None = None
        self._losses: list[float] = []
        self._seconds: list[float] = []
        self._clock = time.perf_counter()

    def train(self, train: Train) -> None:
        """One start or thaw, until the run is frozen."""
        decision = self.decision
        run = TrainingRun(
            decision.run,
            decision.config,
            self.study.training_seed(decision.run),
            decision.from_epoch,
            self.checkpoints.find(decision.run, decision.from_epoch),
            self.advance,
        )
        self._clock = time.perf_counter()
        try:
            train(run)
        except BaseException:
            self._give_back("failed")
            raise
        if self._unfulfilled(decision):  # the function returned early: what it reported counts
            if not self._losses:
                self._give_back("failed")
                raise StudyError(f"the training of run {decision.run} returned without reporting a loss")
            self._give_back("interrupted")
            self._next()

    def _unfulfilled(self, decision: Decision) -> bool:
        return self.finished is None and self.decision is decision

    def advance(self, epoch: int, loss: float, save: Save | None, _metrics: dict[str, float]) -> bool:
        """Record one loss; when the decision is fulfilled ask for the next. Returns whether to go on with this run."""
        now = time.perf_counter()
        self._losses.append(float(loss))
        self._seconds.append(now - self._clock)
        run = self.decision.run
        if math.isfinite(loss) and epoch < self.decision.to_epoch:
            if save is not None and self.every and epoch % self.every == 0:
                self.checkpoints.save(run, epoch, save)
            self._clock = time.perf_counter()
            return True
        self._tell()
        go_on = self._next() and self.decision.run == run
        if save is not None and math.isfinite(loss) and not go_on:
            self.checkpoints.save(run, epoch, save)  # frozen: nothing trained is lost
        self._clock = time.perf_counter()
        return go_on

    def _tell(self) -> None:
        losses, seconds = tuple(self._losses), list(self._seconds)
        self._losses, self._seconds = [], []
        self.study.tell(self.decision, losses, seconds)
        if self.watch:
            self.watch(self.decision, losses)

    def _next(self) -> bool:
        try:
            self.decision = self.study.ask()
        except StudyFinished as end:
            self.finished = end
            return False
        return True

    def _give_back(self, outcome: Outcome) -> None:
        if self._losses:
            self._tell()
        elif self.finished is None:
            self.study.cancel(self.decision, outcome)


def work(study: Study, train: Train, checkpoints: Checkpoints, watch: Watch | None = None) -> StudyFinished:
    """Train until the study is finished; returns why it ended."""
    folder = CheckpointFolder(checkpoints.folder)
    try:
        worker = _Worker(study, folder, checkpoints.every, watch)
        while worker.finished is None:
            worker.train(train)
    except StudyFinished as end:
        return end
    finally:
        folder.close()
    return worker.finished
