"""The worker: makes and carries out decisions of a study, one run at a time, until the study ends or it must leave."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from freezethaw.errors import AllPending, FreezeThawError, LeaseLost, StudyError, StudyFinished
from freezethaw.records import Checkpoint, Checkpoints, Decision, Lease, StudyState
from freezethaw.runtime.checkpoints import CheckpointManager, Mark, ModelCache, saved_near
from freezethaw.runtime.signals import TIMED_OUT, EpochTimeout
from freezethaw.runtime.training_session import FAILED, TrainingSession
from freezethaw.runtime.worker_failures import DIED, Cause, verdict
from freezethaw.study import StudyReader, StudySession
from freezethaw.trainers.protocol import Train, TrainingRun

FINISHED = "study finished"  # events of this kind say why
TAKEN_OVER = "run taken over"
PAUSE = 0.2  # seconds before asking again if everything is pending
FIRST_FAILURES = 3  # runs that fail while no other run gets any further: the training function itself is at fault
FAILURES_IN_A_ROW = 50  # the same, although other runs trained before
FIRST_DIVERGED = 20  # runs that diverge in their first epoch while no run has a finite loss
USUAL_GRACE = 30.0  # seconds from a signal to the kill on many systems
MARGIN = 1.5  # the next epoch may take so much longer than the last one
MOST_SAVING = 0.1  # of an epoch
INTERRUPTED = "interrupted: the study can be continued"  # why a worker ended that was asked to stop


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker works."""

    every: int = 10  # epochs between checkpoints of a run that is not frozen
    in_memory: int = 2  # frozen models that stay in memory
    epoch_limit: float | None = None  # seconds for one epoch; such a worker needs a process of its own
    grace: float | None = None  # seconds to save and leave; None: as long as it takes

    @classmethod
    def of(
        cls, checkpoints: Checkpoints, epoch_limit: float | None = None, grace: float | None = None
    ) -> WorkerOptions:
        """From the user's options."""
        every = cls.every if checkpoints.every is None else checkpoints.every
        return cls(every, checkpoints.in_memory, epoch_limit, grace)

    def is_long(self, epoch: float, saving: float) -> bool:
        """Whether each epoch of so many seconds is saved with its loss, because there may be no time to save it later.

        Who is asked to leave within an epoch can save only after it. Without a grace period 30 s are assumed, which
        many systems grant, unless saving would slow the training down.
        """
        if self.grace is None:
            return MARGIN * (epoch + saving) > USUAL_GRACE and saving <= MOST_SAVING * epoch
        return MARGIN * (epoch + saving) > self.grace


@dataclass(frozen=True)
class _Restored:
    """What a run continues from: nothing, a checkpoint, or a model that is still in memory."""

    epoch: int = 0
    folder: Path | None = None
    model: object | None = None


class Worker:
    """One process's part in a study."""

    def __init__(
        self,
        session: StudySession,
        train: Train,
        checkpoints: CheckpointManager,
        options: WorkerOptions | None = None,
        leaving: Callable[[], bool] = lambda: False,
        after_epoch: Callable[[], object] = lambda: None,
        timed_out: Callable[[], object] = lambda: None,
    ) -> None:
        self.session, self.train, self.checkpoints = session, train, checkpoints
        self.options, self.leaving = options or WorkerOptions(), leaving
        self.after_epoch = after_epoch  # called after each loss is recorded
        self._timed_out = timed_out  # called before the process ends because an epoch took too long
        self.epochs = 0  # trained by this worker
        self.models = ModelCache(self.options.in_memory)
        self._lowest: tuple[float, int, int] | None = None  # of this worker's own losses
        self._recommended: set[Mark] = set()  # as it was when disk space was short

    def work(self) -> str:
        """Until the study is finished, or `leaving` says so; returns why it ended."""
        decision: Decision | None = None
        careful = False
        while decision is not None or not self.leaving():
            try:
                if decision is None:
                    decision, careful = self._next()
                if decision is not None:
                    decision, careful = self.train_decision(decision, careful), False
                    self._check_failures(decision)
            except StudyFinished as end:
                self._finished(end.reason)
                return end.reason
            except AllPending:
                decision = None
                time.sleep(PAUSE)
        return INTERRUPTED

    def _check_failures(self, following: Decision | None) -> None:
        try:
            check_failures(self.session)
        except (StudyError, StudyFinished):
            if following is not None:
                self.session.release(following)
            raise

    def _finished(self, reason: str) -> None:
        """Record the end once, however many workers see it."""
        place = {"decisions": self.session.refresh().decisions}
        self.session.storage.add_event(FINISHED, reason, details=place, once=True)

    def _next(self) -> tuple[Decision | None, bool]:
        """What a dead worker left (True), or a new decision; None if a run that was left is given up."""
        decision = self.session.take_over()
        if decision is None:
            return self.session.ask(), False
        epoch, causes = self._failures(decision)
        found = verdict(decision.run, epoch, causes)
        if found is None:
            return decision, bool(causes)
        with contextlib.suppress(LeaseLost):
            TrainingSession(self, decision).fail(*found)
        return None, True

    def _failures(self, decision: Decision) -> tuple[int, list[Cause]]:
        """The last epoch of a run that was taken over, and why workers died there, one after the other.

        They died at the same place if not even a checkpoint was saved between: a worker that takes a run over saves
        every epoch that has to be trained again.
        """
        session, run = self.session, decision.run
        state, token = session.refresh(), session.lease(decision).token
        epoch = state.run(run).epoch
        saved = max((c.epoch for c in state.checkpoints if c.run == run), default=0)
        lost = [e for e in session.events("lease taken over") if e.run == run and e.details.get("token") == token]
        if not lost:
            return epoch, []  # it was released
        text = f"run {run} is taken over after epoch {epoch}; its last checkpoint is of epoch {saved}"
        details = {"saved": saved, "from": lost[0].details.get("holder")}
        session.storage.add_event(TAKEN_OVER, text, run, epoch, details)
        place = (run, epoch, saved)
        taken = [e for e in session.events(TAKEN_OVER) if (e.run, e.epoch, e.details.get("saved")) == place]
        known = {e.details.get("worker", ""): e.details.get("cause", "unknown") for e in session.events(DIED)}
        return epoch, [known.get(e.details.get("from", ""), "unknown") for e in taken]

    def train_decision(self, decision: Decision, careful: bool = False) -> Decision | None:
        """Train one run until it is frozen, ends or is lost; returns the next decision, if that was made already.

        `careful`: save every epoch that is trained again. Raises StudyFinished or AllPending if that is known.
        """
        training, process = TrainingSession(self, decision, careful), os.getpid()
        with training.holding_lease(), self._restored(decision) as restored:
            if not training.begin(restored.epoch, from_cache=restored.model is not None):
                return None
            self.checkpoints.clean(self.session.lease(decision))
            run = TrainingRun(
                decision.run,
                decision.config,
                self.session.training_seed(decision.run),
                training.epoch,
                restored.folder,
                training.report,
                decision.to_epoch,
            )
            run.kept = restored.model
            training.run = run
            run.leaving = self.leaving
            try:
                with self._epoch_timeout(training):
                    self.train(run)
            except BaseException as error:
                _end_if_forked(process)
                training.failed(error)
            else:
                _end_if_forked(process)
                training.returned()
            finally:
                training.run = run.kept = None  # a reference cycle: without this a model would outlive its training
        return training.next_decision()

    @contextlib.contextmanager
    def _epoch_timeout(self, training: TrainingSession) -> Iterator[None]:
        """While the training function runs, each of its epochs must end in time."""
        limit = self.options.epoch_limit
        if limit is None:
            yield
            return

        def expired() -> None:
            with contextlib.suppress(FreezeThawError):
                training.timed_out(limit)
            self._timed_out()
            os._exit(TIMED_OUT)

        training.timeout = EpochTimeout(limit, expired)
        training.timeout.start()
        try:
            yield
        finally:
            training.timeout.stop()

    @contextlib.contextmanager
    def _restored(self, decision: Decision) -> Iterator[_Restored]:
        """From memory if the model there is of the newest checkpoint, else a verified copy of that checkpoint."""
        lease: Lease = self.session.lease(decision)
        newest = self.checkpoints.newest(decision.run)
        model = self.models.take(decision.run, newest)
        if model is not None and newest is not None:
            yield _Restored(newest.epoch, model=model)
            return
        with self.checkpoints.load(lease) as loaded:
            yield _Restored() if loaded is None else _Restored(loaded.epoch, loaded.folder)

    def lowest(self) -> tuple[float, int, int] | None:
        """The lowest loss times the sign, its run and epoch, as far as this worker knows; nothing is read."""
        marks = [mark for mark in (self.session.state.lowest, self._lowest) if mark is not None]
        return min(marks, default=None)

    def note(self, mark: tuple[float, int, int]) -> None:
        """A loss of this worker, which storage has."""
        self._lowest = mark if self._lowest is None else min(self._lowest, mark)

    def protected(self) -> set[Mark]:
        """Runs and epochs whose checkpoints must stay: the lowest loss, and the lowest expected loss."""
        lowest = self.lowest()
        return self._recommended | (set() if lowest is None else {lowest[1:]})

    def evict(self) -> None:
        """Keep the checkpoints within the disk budget."""
        self.checkpoints.evict(self._relevance)

    def _relevance(self, kept: Sequence[Checkpoint]) -> tuple[dict[int, float], set[Mark]]:
        reader = StudyReader(self.session)
        recommended = reader.recommended
        if recommended is not None:
            found = saved_near(reader, recommended, kept)
            self._recommended = {(found.run, found.epoch)}
        pinned = {(c.run, c.epoch) for c in kept if c.run in self.session.definition.pinned}
        return reader.p_min(), {*self.protected(), *pinned}


def check_failures(session: StudySession) -> None:
    """Stop a search in which nothing works: the training function itself is at fault.

    Raises StudyError if the first runs have all failed, if no run gets past the epoch at which several failed, or if
    run after run fails before its first epoch; StudyFinished if all of many first runs diverged.
    """
    before, state = session.failed_before, session.state  # it may be old: in a driver it is as it was at the start
    if state.lowest is not None and not _nothing_works(state, before, FIRST_FAILURES - 1):
        return
    if why := _nothing_works(session.refresh(), before, FIRST_FAILURES):
        if session.state.lowest is None and not any(run.state == "failed" for run in session.state.runs):
            raise StudyFinished(why)
        last = " ".join(session.last_event(FAILED).split())
        raise StudyError(f"{why}; nothing can be learnt from that. The last error: {last}")


def _nothing_works(state: StudyState, before: Collection[int], enough: int) -> str:
    """Why it is pointless to go on, if `enough` runs have failed, not counting those `before`; else nothing."""
    own = [run for run in state.runs if not run.added and run.number not in before]
    ended = [run for run in own if run.state != "pending"]
    failed = [run for run in ended if run.state == "failed"]
    furthest = max((run.epoch for run in own), default=0)
    if len(failed) >= enough:
        if len(failed) == len(ended):
            return f"the training failed in all of the first {len(failed)} runs"
        if sum(run.epoch == furthest for run in failed) >= enough and furthest < state.max_epochs:
            return f"the training failed in {len(failed)} runs, and no run got past epoch {furthest}"
        last = ended[-FAILURES_IN_A_ROW:]
        if len(last) == FAILURES_IN_A_ROW and all(run.state == "failed" and not run.losses for run in last):
            return f"the training failed in all of the last {len(last)} runs"
    if len(ended) >= FIRST_DIVERGED and furthest == 0 and all(run.state == "diverged" for run in ended):
        return f"no finite loss: all of the first {len(ended)} runs diverged (NaN or infinite) in their first epoch"
    return ""


def _end_if_forked(process: int) -> None:
    """A training that forks, and whose child returns from it as well: one worker is enough."""
    if os.getpid() != process:
        os._exit(0)
