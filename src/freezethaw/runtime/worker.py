"""The worker: carries out decisions of a study in a store, one run at a time, until the study ends or it must leave."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from freezethaw.errors import AllPending, FreezeThawError, LeaseLost, StudyError, StudyFinished
from freezethaw.records import Checkpoints, Decision, Run
from freezethaw.runtime.alarm import Alarm
from freezethaw.runtime.deaths import Cause, verdict
from freezethaw.runtime.keeper import CheckpointKeeper, nearest
from freezethaw.runtime.memory import Memory
from freezethaw.runtime.sitting import FAILED, Sitting
from freezethaw.store import Lease, Snapshot, StoredCheckpoint
from freezethaw.study import Study
from freezethaw.trainers.protocol import Train, TrainingRun

Mark = tuple[float, int, int]  # a loss (times the sign), its run and epoch

FINISHED = "study finished"  # events of this kind say why
TAKEN = "run taken over"
PAUSE = 0.2  # seconds before asking again where everything is under way
HOPELESS = 3  # runs that failed, and none that trained an epoch: the training itself is at fault
HOPELESS_NOW = 50  # the same in a row, though other runs trained before
DIED = "worker died"
UNFINISHED = "left: the study can be continued"  # why a worker ended that was asked to
OVERDUE = 5  # exit code of a process whose training hung


@dataclass(frozen=True)
class Habits:
    """How a worker works."""

    every: int = 10  # epochs between checkpoints of a run that is not frozen
    in_memory: int = 2  # frozen runs that stay in memory
    epoch_limit: float | None = None  # seconds for one epoch; a worker that keeps it has a process of its own

    @classmethod
    def of(cls, checkpoints: Checkpoints, epoch_limit: float | None = None) -> Habits:
        """From what the user said."""
        every = cls.every if checkpoints.every is None else checkpoints.every
        return cls(every, checkpoints.in_memory, epoch_limit)


@dataclass(frozen=True)
class _State:
    """Where a run goes on from: nothing, a checkpoint, or what is still in memory."""

    epoch: int = 0
    folder: Path | None = None
    kept: object | None = None


class Worker:
    """One process's part in a study."""

    def __init__(
        self,
        study: Study,
        train: Train,
        keeper: CheckpointKeeper,
        habits: Habits | None = None,
        leaving: Callable[[], bool] = lambda: False,
        look: Callable[[], object] = lambda: None,
    ) -> None:
        self.study, self.train, self.keeper = study, train, keeper
        self.habits, self.leaving = habits or Habits(), leaving
        self.look = look  # called after each loss is recorded
        self.epochs = 0  # trained by this worker
        self.memory = Memory(self.habits.in_memory)
        self._seen: Snapshot | None = None
        self._lowest: Mark | None = None
        self._best: set[tuple[int, int]] = set()  # as it was when room was short

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
                check_hope(self.study)
        return UNFINISHED

    def _next(self) -> tuple[Decision | None, bool]:
        """What a dead worker left (True), or a new decision; None where nobody should go on with what was left."""
        decision = self.study.take_over()
        if decision is None:
            return self.study.ask(), False
        epoch, causes = self._deaths(decision)
        found = verdict(decision.run, epoch, causes)
        if found is None:
            return decision, bool(causes)
        with contextlib.suppress(LeaseLost):
            Sitting(self, decision).fail(*found)
        return None, True

    def _deaths(self, decision: Decision) -> tuple[int, list[Cause]]:
        """Epochs recorded of a run that was taken over, and why workers have died there, one after the other.

        They died at the same place if not even a checkpoint was saved between: who inherits a run saves every epoch
        that has to be trained again.
        """
        shared = self.study.shared
        known, run, token = shared.snapshot(), decision.run, shared.lease(decision).token
        epoch = known.runs[run - 1].epoch
        saved = max((c.epoch for c in known.checkpoints if c.run == run), default=0)
        lost = [e for e in shared.events("lease taken over") if e.run == run and e.details.get("token") == token]
        if not lost:
            return epoch, []  # it was given back
        text = f"run {run} is taken over after epoch {epoch}; its last checkpoint is of epoch {saved}"
        details = {"saved": saved, "from": lost[0].details.get("holder")}
        shared.stored.add_event(TAKEN, text, run, epoch, details)
        place = (run, epoch, saved)
        taken = [e for e in shared.events(TAKEN) if (e.run, e.epoch, e.details.get("saved")) == place]
        known_causes = {e.details.get("worker", ""): e.details.get("cause", "unknown") for e in shared.events(DIED)}
        return epoch, [known_causes.get(e.details.get("from", ""), "unknown") for e in taken]

    def carry_out(self, decision: Decision, careful: bool = False) -> None:
        """Train one run until it is frozen, ends or is lost. `careful`: save every epoch that is trained again."""
        sitting, process = Sitting(self, decision, careful), os.getpid()
        lease = self.study.shared.lease(decision)
        with sitting.unless_lost(), self._state(decision, lease) as state:
            if not sitting.begin(state.epoch, recalled=state.kept is not None):
                return
            self.keeper.clean(lease)
            run = TrainingRun(
                decision.run,
                decision.config,
                self.study.training_seed(decision.run),
                sitting.epoch,
                state.folder,
                sitting.report,
                decision.to_epoch,
            )
            run.kept = state.kept
            sitting.run = run
            run.leaving = self.leaving
            try:
                with self._limited(sitting):
                    self.train(run)
            except BaseException as error:
                _end_if_forked(process)
                sitting.failed(error)
            else:
                _end_if_forked(process)
                sitting.returned()
            finally:
                sitting.run = run.kept = None  # they know each other: without this a model would outlive its sitting

    @contextlib.contextmanager
    def _limited(self, sitting: Sitting) -> Iterator[None]:
        """While the training has the word, each of its epochs must end in time."""
        limit = self.habits.epoch_limit
        if limit is None:
            yield
            return

        def ring() -> None:
            with contextlib.suppress(FreezeThawError):
                sitting.overdue(limit)
            os._exit(OVERDUE)

        sitting.alarm = Alarm(limit, ring)
        sitting.alarm.start()
        try:
            yield
        finally:
            sitting.alarm.stop()

    @contextlib.contextmanager
    def _state(self, decision: Decision, lease: Lease) -> Iterator[_State]:
        """From memory where it is there and still the newest, else a verified copy of the newest good checkpoint."""
        newest = self.keeper.newest(decision.run)
        held = self.memory.take(decision.run, newest)
        if held is not None and newest is not None:
            yield _State(newest.epoch, kept=held)
            return
        with self.keeper.load(lease) as loaded:
            yield _State() if loaded is None else _State(loaded.epoch, loaded.folder)

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

    def best_marks(self) -> set[tuple[int, int]]:
        """Runs and epochs whose checkpoints must stay: the lowest loss, and the best with the noise removed."""
        lowest = self.lowest()
        return self._best | (set() if lowest is None else {lowest[1:]})

    def make_room(self) -> None:
        """Keep the checkpoints within their budget."""
        self.keeper.make_room(self._judge)

    def _judge(self, kept: Sequence[StoredCheckpoint]) -> tuple[dict[int, float], set[tuple[int, int]]]:
        best = self.study.best
        if best is not None:
            saved = nearest(self.study, best)
            self._best = {(best.run, best.epoch if saved is None else saved.epoch)}
        pinned = {(c.run, c.epoch) for c in kept if c.run in self.study.pinned}
        return _chances(self.study), {*self.best_marks(), *pinned}


def check_hope(study: Study) -> None:
    """Raise StudyError where run after run fails before its first epoch: the training itself is at fault.

    Such runs spend no budget, so that nothing else would end the study.
    """
    seen = study.shared.seen().runs
    trained = any(run.losses for run in seen)
    runs = seen if trained else study.runs  # what was seen may be a little late, which matters at the beginning only
    enough = HOPELESS_NOW if trained else HOPELESS
    if _all_failed(runs, enough):
        raise StudyError(
            f"the training failed in all of the {'last' if trained else 'first'} {enough} runs; nothing can be learnt "
            f"from that. The last error: {study.shared.last_event(FAILED)}"
        )


def _all_failed(runs: Sequence[Run], count: int) -> bool:
    """Whether the last so many runs failed before their first epoch."""
    last = [run for run in runs if not run.added][-count:]
    return len(last) == count and all(run.state == "failed" and not run.losses for run in last)


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
