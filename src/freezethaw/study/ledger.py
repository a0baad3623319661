"""The facts of a study: runs, their losses, decisions under way. Changes are checked first and then made whole."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from freezethaw.errors import StudyError, TellError
from freezethaw.records import OUTCOMES, Config, Decision, Kind, Outcome, Run, State


@dataclass(frozen=True)
class Told:
    """The checked content of one tell."""

    losses: tuple[float, ...]  # finite
    seconds: tuple[float, ...]
    diverged: bool


class Ledger:
    """Owner of the runs and of the decisions that have not been told. Numbers count from 1."""

    def __init__(self, max_epochs: int) -> None:
        self.max_epochs = max_epochs
        self._runs: list[Run] = []
        self._pending: dict[int, Decision] = {}
        self._decisions = 0
        self.in_hand: int | None = None  # the run that was told last: going on with it needs neither save nor load

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order of their numbers."""
        return tuple(self._runs)

    @property
    def pending(self) -> tuple[Decision, ...]:
        """Decisions that are neither told nor cancelled."""
        return tuple(self._pending.values())

    @property
    def next_number(self) -> int:
        """Number of the next decision."""
        return self._decisions + 1

    def run(self, number: int) -> Run:
        """One run by its number."""
        if isinstance(number, bool) or number not in range(1, len(self._runs) + 1):
            raise StudyError(f"there is no run {number!r}; the study has runs 1 to {len(self._runs)}")
        return self._runs[int(number) - 1]

    def frozen(self) -> Iterator[Run]:
        """Runs that may be advanced."""
        return (run for run in self._runs if run.state == "frozen")

    def epochs_trained(self) -> int:
        """Epochs told; a diverging epoch was trained too. Curves from elsewhere cost nothing."""
        return sum(run.epoch + (run.state == "diverged") for run in self._runs if not run.added)

    def epochs_pending(self) -> int:
        """Epochs granted and not told yet."""
        return sum(decision.epochs for decision in self._pending.values())

    def seconds_trained(self) -> float:
        """Training time told so far."""
        return float(sum(np.nansum(run.seconds) for run in self._runs if not run.added))

    def add(self, config: Config, told: Told) -> Run:
        """Record a curve from elsewhere."""
        state: State = "diverged" if told.diverged else "finished"
        self._runs.append(Run(len(self._runs) + 1, config, told.losses, told.seconds, state, added=True))
        return self._runs[-1]

    def decide(self, run: int | None, config: Config, to_epoch: int, reason: str) -> Decision:
        """Record a decision: `run` None starts a new run."""
        if run is None:
            self._runs.append(Run(len(self._runs) + 1, config))
            run = len(self._runs)
        current = self.run(run)
        if current.state != "frozen":
            raise StudyError(f"run {run} is {current.state}; only a frozen run can be advanced")
        if not current.epoch < to_epoch <= self.max_epochs:
            raise StudyError(f"run {run} is at epoch {current.epoch} of {self.max_epochs}; cannot train to {to_epoch}")
        self._decisions += 1
        kind: Kind = "start" if current.epoch == 0 else "thaw"
        decision = Decision(self._decisions, kind, run, current.config, current.epoch, to_epoch, reason)
        self._pending[decision.number] = decision
        self._runs[run - 1] = replace(current, state="pending")
        return decision

    def tell(self, decision: Decision, losses: object, seconds: object = None) -> Run:
        """Record losses; raises TellError and changes nothing where they cannot be recorded."""
        self._check_pending(decision)
        told = read_losses(losses, seconds, decision.epochs)
        before = self.run(decision.run)
        curve = before.losses + told.losses
        state: State = "diverged" if told.diverged else "finished" if len(curve) == self.max_epochs else "frozen"
        after = replace(before, losses=curve, seconds=before.seconds + told.seconds, state=state)
        self._runs[decision.run - 1] = after
        self.in_hand = decision.run
        del self._pending[decision.number]
        return after

    def cancel(self, decision: Decision, outcome: Outcome) -> Run:
        """Give a decision back without any loss."""
        self._check_pending(decision)
        if outcome not in OUTCOMES:
            raise TellError(f"outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r}")
        before = self.run(decision.run)
        after = replace(before, state="frozen" if outcome == "interrupted" else "failed", outcome=outcome)
        self._runs[decision.run - 1] = after
        del self._pending[decision.number]
        return after

    def _check_pending(self, decision: Decision) -> None:
        if not isinstance(decision, Decision):
            raise TellError(f"the first argument must be a decision returned by ask(), not {decision!r}")
        if self._pending.get(decision.number) != decision:
            known = 1 <= decision.number <= self._decisions
            raise TellError(
                f"decision {decision.number} was told or cancelled before; a decision is told once"
                if known
                else f"decision {decision.number} is not one of this study"
            )


def read_losses(losses: object, seconds: object, granted: int) -> Told:
    """Check what a user told: a number, or a list of 1 to `granted` numbers, the last perhaps not finite."""
    values = _numbers(losses, "losses")
    if not values:
        raise TellError("no losses were told; use cancel(decision) where there is none")
    if len(values) > granted:
        raise TellError(f"{len(values)} losses were told, but the decision grants {granted} epoch(s)")
    finite = [math.isfinite(v) for v in values]
    if not all(finite[:-1]):
        place = finite.index(False) + 1
        raise TellError(
            f"loss {place} of {len(values)} is not finite; a diverged run ends there: tell nothing after it"
        )
    return Told(tuple(values[: sum(finite)]), _seconds(seconds, len(values))[: sum(finite)], not finite[-1])


def _seconds(seconds: object, count: int) -> tuple[float, ...]:
    if seconds is None:
        return (math.nan,) * count
    values = _numbers(seconds, "seconds")
    if not all(math.isfinite(v) and v >= 0 for v in values):
        raise TellError(f"seconds must be finite and not negative, not {seconds!r}")
    if len(values) == 1:
        return (values[0] / count,) * count  # one number is the time of all epochs together
    if len(values) != count:
        raise TellError(f"{count} losses but {len(values)} seconds were told; tell their total or one for each")
    return tuple(values)


def _numbers(value: object, what: str) -> list[float]:
    """A number or a flat sequence of numbers as floats; anything else is refused."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    items: Sequence[object] = value if isinstance(value, list | tuple) else [value]
    for item in items:
        if isinstance(item, bool) or not isinstance(item, numbers.Real):
            raise TellError(f"{what} must be a number or a flat list of numbers, not {_brief(value)}")
    return [float(item) for item in items]  # type: ignore[arg-type]


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) < 80 else text[:77] + "..."
