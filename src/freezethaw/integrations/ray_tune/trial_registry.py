"""Assigns the runs of a study to Ray Tune trials and forwards their results to the study.

This module does not import Ray: a trial is identified by its trial ID. Only this module calls `study.ask` and
`study.tell` for the adapter.
"""

from __future__ import annotations

import logging
import math
import numbers
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from freezethaw.errors import AllPending, FreezeThawError, StudyError, StudyFinished, TellError
from freezethaw.records import Config, Decision, Outcome
from freezethaw.runtime.worker import FAILURES_IN_A_ROW, FIRST_FAILURES
from freezethaw.study import Study, session_of

Action = Literal["continue", "freeze", "stop"]
ENDED = ("finished", "diverged", "failed")  # states of runs that are never thawed

_LOG = logging.getLogger(__name__)


@dataclass
class Assignment:
    """A decision that a trial is executing, with the losses reported so far."""

    decision: Decision
    losses: list[Any] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    repeat_logged: bool = False  # whether a warning about repeated epochs was logged

    @property
    def next_epoch(self) -> int:
        """The epoch of the next expected loss."""
        return self.decision.from_epoch + len(self.losses) + 1

    def add(self, loss: object, seconds: float) -> bool:
        """Append a loss; return whether the decision is complete."""
        self.losses.append(loss)
        self.seconds.append(seconds)
        finite = isinstance(loss, numbers.Real) and math.isfinite(loss)
        return not finite or len(self.losses) == self.decision.epochs


class TrialRegistry:
    """Maps trials to runs and decisions. Creating one cancels all open decisions of this process."""

    def __init__(self, study: Study, metric: str, workers: int) -> None:
        self.study, self.metric, self.workers = study, metric, workers
        self.mode = "max" if study.definition.maximize else "min"
        self._runs: dict[str, int] = {}  # run by trial, for trials that can be resumed
        self._assignments: dict[str, Assignment] = {}  # by trial
        self._starts: deque[Decision] = deque()  # new runs without a trial
        self._failed: set[int] = set()  # runs whose trials failed while no decision was open
        self.outcomes: dict[str, Outcome] = {}  # of failed trials
        self._died: set[int] = set()  # runs that once died before their first epoch
        self._early_failures = 0  # consecutive trials that failed before their first epoch
        self._idle = False  # the study has no decision until the next loss is reported
        self._end_reason: str | None = None  # why the study has ended
        self.cancel_pending()

    def cancel_pending(self) -> None:
        """Cancel all open decisions of this process."""
        for decision in self.study.pending:
            with suppress(TellError):  # owned by another process
                self.study.cancel(decision)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only which study this is, for `Tuner.restore`: store URLs may contain passwords."""
        return find, (self.uid, self.study.name)

    @property
    def uid(self) -> str:
        """The unique identifier of the study, whichever object gives access to it."""
        return session_of(self.study).storage.uid

    # Queries from Tune.

    @property
    def finished(self) -> bool:
        """Whether the study has ended and no decision is open."""
        return self._end_reason is not None and not self._assignments and not self._starts

    def start(self, trial: str) -> Config | None:
        """Assign the next new run to this trial and return its configuration; None if there is no new run."""
        self._decide()
        if not self._starts:
            return None
        decision = self._starts.popleft()
        self._runs[trial], self._assignments[trial] = decision.run, Assignment(decision)
        return decision.config

    def assigned(self, trial: str) -> bool:
        """Whether this trial has an open decision."""
        return trial in self._assignments

    def exhausted(self, trial: str) -> bool:
        """Whether this trial will never be resumed."""
        if self.assigned(trial):
            return False
        known = session_of(self.study).state  # as last read: Tune asks about all paused trials frequently
        return self.finished or trial not in self._runs or known.run(self._runs[trial]).state in ENDED

    # Events from Tune.

    def report(self, trial: str, epoch: int, loss: object, seconds: float) -> Action:
        """Record the loss of an epoch and return what the trial does next."""
        assignment = self._assignments.get(trial)
        if assignment is None:
            return "freeze"
        if epoch < assignment.next_epoch:  # repeated after a crash; the loss recorded first is kept
            if not assignment.losses and not assignment.repeat_logged:
                assignment.repeat_logged = True
                last = assignment.decision.from_epoch
                _LOG.warning("trial %s: epochs %d to %d are trained again", trial, epoch, last)
            return "continue"
        if epoch > assignment.next_epoch:
            self.close(trial)
            _LOG.warning("trial %s: expected epoch %d, got %d; stopping it", trial, assignment.next_epoch, epoch)
            return "stop"
        if not assignment.add(loss, seconds):
            return "continue"
        self._tell(trial)
        self._decide()
        return "continue" if self.assigned(trial) else "freeze" if self._state(trial) != "diverged" else "stop"

    def complete(self, trial: str, epoch: int, loss: object, seconds: float) -> None:
        """Record the last result of a trial that ended by itself or by a stopping criterion of the user."""
        assignment = self._assignments.get(trial)
        if assignment is not None and epoch == assignment.next_epoch:
            assignment.add(loss, seconds)
        self.close(trial)

    def close(self, trial: str, outcome: Outcome = "interrupted") -> None:
        """Remove a trial that has ended. Its losses are recorded; without any, its decision is cancelled."""
        assignment, run = self._assignments.get(trial), self._runs.get(trial)
        if assignment is not None and assignment.losses:
            self._tell(trial)
        elif assignment is not None:
            self.study.cancel(self._assignments.pop(trial).decision, outcome)
            self._idle = False
        if outcome != "interrupted" and run is not None:
            self._failed.add(run)
        self._runs.pop(trial, None)

    def fail(self, trial: str, outcome: Outcome) -> None:
        """Remove a trial that Tune has given up.

        Raises StudyError after several consecutive trials that failed before their first epoch: they use no budget, so
        the search would never end.
        """
        assignment = self._assignments.get(trial)
        early = assignment is not None and assignment.decision.kind == "start" and not assignment.losses
        if assignment is not None and early:  # the second death before the first epoch counts as a failure of the run
            outcome = "failed" if assignment.decision.run in self._died else outcome
            self._died.add(assignment.decision.run)
        self.close(trial, outcome)
        self._early_failures = self._early_failures + 1 if early else 0
        trained = any(run.losses for run in self.study.runs)
        if self._early_failures >= (FAILURES_IN_A_ROW if trained else FIRST_FAILURES):
            raise StudyError(
                f"{self._early_failures} trials in a row failed before their first epoch; "
                "see error.txt in the trial folders that Tune lists above"
            )

    # Restoring after the driver died.

    def to_dict(self) -> dict[str, int]:
        """The run of each trial, saved by Tune with its own state."""
        return dict(self._runs)

    def restore(self, runs: dict[str, int]) -> None:
        """Resume the trials of an earlier driver, given what its `to_dict` returned."""
        known = {run.number for run in self.study.runs}
        unknown = sorted(set(runs.values()) - known)
        if unknown:
            raise StudyError(
                f"Tune would resume run(s) {', '.join(map(str, unknown))}, which study {self.study.name!r} does not "
                "have; only a study with a store (store=...) can be restored in a new process"
            )
        self._runs.update(runs)

    # Decisions of the study.

    def _decide(self) -> None:
        """Ask until every worker has a decision or the study has none."""
        if not self._assignments and not self._starts:
            self._idle = False
        while not self._idle and len(self._assignments) + len(self._starts) < self.workers:
            while (orphan := session_of(self.study).take_over()) is not None:  # its process died
                self.study.cancel(orphan)
            try:
                decision = session_of(self.study).ask()
            except AllPending:
                self._idle = True
            except StudyFinished as end:
                self._idle, self._end_reason = True, end.reason
            else:
                self._end_reason = None
                self._assign(decision)

    def _assign(self, decision: Decision) -> None:
        trial = next((trial for trial, run in self._runs.items() if run == decision.run), None)
        if trial is not None:
            self._assignments[trial] = Assignment(decision)
        elif decision.kind == "start":
            self._starts.append(decision)
        elif decision.run in self._failed:
            self.study.cancel(decision, "failed")
        else:  # the user ended its trial, or Tune no longer has it; its learning curve still informs the model
            self.study.cancel(decision)
            self.study.ban(decision.run)
            _LOG.warning("run %d cannot be thawed: Tune has no trial for it", decision.run)

    def _tell(self, trial: str) -> None:
        assignment = self._assignments.pop(trial)
        self.study.tell(assignment.decision, assignment.losses, assignment.seconds)
        self._idle, self._early_failures = False, 0

    def _state(self, trial: str) -> str:
        return session_of(self.study).refresh().run(self._runs[trial]).state


# `Tuner.restore` unpickles the searcher and the scheduler of the dead driver. They get the study that `ray_tune_config`
# was called with before, in this process: only the user has what opens it, such as the password of its database.
_OPEN: dict[str, TrialRegistry] = {}  # by the unique identifier of the study


def register(registry: TrialRegistry) -> TrialRegistry:
    """Make a registry available to `Tuner.restore`; an earlier one of the same study cancels its decisions."""
    before = _OPEN.get(registry.uid)
    if before is not None:  # e.g. of an interrupted notebook cell
        with suppress(FreezeThawError):  # a closed study has no open decisions
            before.cancel_pending()
    _OPEN[registry.uid] = registry
    return registry


def find(uid: str, name: str) -> TrialRegistry | UnavailableRegistry:
    """The registry of this study."""
    return _OPEN.get(uid) or UnavailableRegistry(name)


class UnavailableRegistry:
    """Stands for a registry whose study is not open in this process: results can be read, every use raises."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, _: str) -> NoReturn:
        raise StudyError(
            f"study {self.name!r}, which the trials belong to, is not open in this process; call "
            "freezethaw.ray_tune_config(study, ...) before Tuner.restore (only a study with a store can be restored in "
            "a new process)"
        )
