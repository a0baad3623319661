"""Which trial of Tune trains which run, and under which decision: one study is asked and told here, and nowhere else.

Tune itself is not known here; a trial is its identifier.
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
from freezethaw.runtime.worker import HOPELESS, HOPELESS_NOW
from freezethaw.study import Study

Verdict = Literal["go on", "freeze", "end"]

_LOG = logging.getLogger(__name__)


@dataclass
class Stint:
    """A decision being carried out, and the losses that came of it so far."""

    decision: Decision
    losses: list[Any] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    again: bool = False  # whether epochs that are known were trained again, and this was said

    @property
    def next_epoch(self) -> int:
        """Whose loss comes next."""
        return self.decision.from_epoch + len(self.losses) + 1

    def add(self, loss: object, seconds: float) -> bool:
        """Take the next loss; whether the decision is carried out by it."""
        self.losses.append(loss)
        self.seconds.append(seconds)
        finite = isinstance(loss, numbers.Real) and math.isfinite(loss)
        return not finite or len(self.losses) == self.decision.epochs


class TrialBook:
    """The study, and what its decisions mean to Tune."""

    def __init__(self, study: Study, metric: str, workers: int) -> None:
        self.study, self.metric, self.workers = study, metric, workers
        self._runs: dict[str, int] = {}  # by trial, of those that can still go on
        self._stints: dict[str, Stint] = {}  # by trial
        self._starts: deque[Decision] = deque()  # runs to be started that have no trial yet
        self._failed: set[int] = set()  # runs whose trials ended with an error while no decision was open
        self._spent: set[str] = set()  # trials whose runs have nothing left to train
        self.outcomes: dict[str, Outcome] = {}  # of trials that failed
        self._died: set[int] = set()  # runs that came to nothing once
        self._barren = 0  # trials in a row that failed before their first epoch
        self._idle = False  # there is nothing to decide until something is told
        self._reason: str | None = None  # why the study has ended
        self.give_back()

    def give_back(self) -> None:
        """All decisions that this process has under way."""
        for decision in self.study.pending:
            with suppress(TellError):  # another process has it under way
                self.study.cancel(decision)

    def __reduce__(self) -> tuple[Any, ...]:
        """Tune pickles what it may have to restore. Where the study is may be secret: its name is all that is kept."""
        return found, (self.study.name,)

    # What Tune asks.

    @property
    def finished(self) -> bool:
        """Whether the study has ended and nothing is under way."""
        return self._reason is not None and not self._stints and not self._starts

    def start(self, trial: str) -> Config | None:
        """The configuration of the next run to be started, which is this trial's from now on; None where none is."""
        self._decide()
        if not self._starts:
            return None
        decision = self._starts.popleft()
        self._runs[trial], self._stints[trial] = decision.run, Stint(decision)
        return decision.config

    def granted(self, trial: str) -> bool:
        """Whether a decision wants this trial trained."""
        return trial in self._stints

    def spent(self, trial: str) -> bool:
        """Whether nothing will ever want this trial trained again."""
        return not self.granted(trial) and (self.finished or trial in self._spent or trial not in self._runs)

    # What Tune says.

    def report(self, trial: str, epoch: int, loss: object, seconds: float) -> Verdict:
        """A trial has trained an epoch: what it is to do next."""
        stint = self._stints.get(trial)
        if stint is None:
            return "freeze"
        if epoch < stint.next_epoch:  # trained again after a death: the loss recorded first stays
            if not stint.losses and not stint.again:
                stint.again = True
                _LOG.warning("trial %s: epochs %d to %d are trained again", trial, epoch, stint.decision.from_epoch)
            return "go on"
        if epoch > stint.next_epoch:
            self.close(trial)
            _LOG.warning("trial %s: epoch %d came where %d was due; it ends", trial, epoch, stint.next_epoch)
            return "end"
        if not stint.add(loss, seconds):
            return "go on"
        self._tell(trial)
        self._decide()
        return "go on" if self.granted(trial) else "freeze" if self._state(trial) != "diverged" else "end"

    def complete(self, trial: str, epoch: int, loss: object, seconds: float) -> None:
        """A trial has ended by itself or by a criterion of the user's, with this as its last result."""
        stint = self._stints.get(trial)
        if stint is not None and epoch == stint.next_epoch:
            stint.add(loss, seconds)
        self.close(trial)

    def close(self, trial: str, outcome: Outcome = "interrupted") -> None:
        """A trial is over: what its decision has brought is told, or else it is given back."""
        stint, run = self._stints.get(trial), self._runs.get(trial)
        if stint is not None and stint.losses:
            self._tell(trial)
        elif stint is not None:
            self.study.cancel(self._stints.pop(trial).decision, outcome)
            self._idle = False
        if outcome != "interrupted" and run is not None:
            self._failed.add(run)
        self._runs.pop(trial, None)

    def fail(self, trial: str, outcome: Outcome) -> None:
        """Tune has given a trial up. Raises StudyError where trial after trial ends so before its first epoch.

        Such trials spend no budget, so that nothing else would end the search.
        """
        stint = self._stints.get(trial)
        barren = stint is not None and stint.decision.kind == "start" and not stint.losses
        if stint is not None and barren:  # a run that dies twice before its first epoch is to blame after all
            outcome = "failed" if stint.decision.run in self._died else outcome
            self._died.add(stint.decision.run)
        self.close(trial, outcome)
        self._barren = self._barren + 1 if barren else 0
        trained = any(run.losses for run in self.study.runs)
        if self._barren >= (HOPELESS_NOW if trained else HOPELESS):
            raise StudyError(
                f"{self._barren} trials in a row failed before their first epoch, so nothing can be learnt; "
                "error.txt in their folders, which Tune names above, says why"
            )

    # Across the death of a driver.

    def kept(self) -> dict[str, int]:
        """What Tune has to keep with its trials: the run of each."""
        return dict(self._runs)

    def adopt(self, runs: dict[str, int]) -> None:
        """Go on with the trials of an earlier life."""
        known = {run.number for run in self.study.runs}
        unknown = sorted(set(runs.values()) - known)
        if unknown:
            raise StudyError(
                f"study {self.study.name!r} knows nothing of run(s) {', '.join(map(str, unknown))}, which Tune would "
                "resume; only a study in a store (store=...) outlives its process"
            )
        self._runs.update(runs)

    # What the study says.

    def _decide(self) -> None:
        """Ask until each worker has a decision, or until there is nothing to decide for now."""
        if not self._stints and not self._starts:
            self._idle = False
        while not self._idle and len(self._stints) + len(self._starts) < self.workers:
            while (orphan := self.study.take_over()) is not None:  # its process is gone: of an earlier driver, say
                self.study.cancel(orphan)
            try:
                decision = self.study.ask()
            except AllPending:
                self._idle = True
            except StudyFinished as end:
                self._idle, self._reason = True, end.reason
            else:
                self._reason = None
                self._grant(decision)

    def _grant(self, decision: Decision) -> None:
        trial = next((trial for trial, run in self._runs.items() if run == decision.run), None)
        if trial is not None:
            self._stints[trial] = Stint(decision)
        elif decision.kind == "start":
            self._starts.append(decision)
        elif decision.run in self._failed:
            self.study.cancel(decision, "failed")
        else:  # its trial was ended by the user, or is Tune's no more; the curve stays as evidence
            self.study.cancel(decision)
            self.study.ban(decision.run)
            _LOG.warning("run %d cannot be thawed: Tune has no trial of it", decision.run)

    def _tell(self, trial: str) -> None:
        stint = self._stints.pop(trial)
        self.study.tell(stint.decision, stint.losses, stint.seconds)
        self._idle, self._barren = False, 0
        if self._state(trial) != "frozen":
            self._spent.add(trial)

    def _state(self, trial: str) -> str:
        run = self._runs[trial]
        return next(known.state for known in self.study.runs if known.number == run)


_KEPT: dict[str, TrialBook] = {}  # by the names of their studies


def keep(book: TrialBook) -> TrialBook:
    """Let `Tuner.restore` find this book in this process; one that it had of the same study gives back all."""
    before = _KEPT.get(book.study.name)
    if before is not None and _home(before.study) == _home(book.study):  # that was interrupted, in a notebook, say
        with suppress(FreezeThawError):  # a study that was closed has nothing under way
            before.give_back()
    _KEPT[book.study.name] = book
    return book


def _home(study: Study) -> object:
    """The same for two views of one study."""
    try:
        return study.shared.stored.uid
    except StudyError:  # in memory: there is but one view
        return id(study)


def found(name: str) -> TrialBook | Absent:
    """The book of the study of this name."""
    return _KEPT.get(name) or Absent(name)


class Absent:
    """In place of a book that nobody has opened in this process: results can be read, and nothing can be decided."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, _: str) -> NoReturn:
        raise StudyError(
            f"Tune would go on with study {self.name!r}, which is not open in this process; "
            "call freezethaw.ray_tune_config(study, ...) before Tuner.restore"
        )
