"""The ledger of a study: what is known, and the few ways in which it changes, each checked first and then made whole.

`MemoryLedger` keeps it in this process; `study.shared.SharedLedger` in a store, for many processes at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from freezethaw.errors import StudyError, TellError
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.records import (
    OUTCOMES,
    BasketEntry,
    Config,
    Decision,
    Explanation,
    History,
    Kind,
    Outcome,
    Run,
    State,
    Taken,
    Wish,
)
from freezethaw.study.facts import Facts
from freezethaw.study.told import Told

EXPLAINED = 1000  # decisions whose baskets and beliefs are remembered in memory


@dataclass(frozen=True)
class Chosen:
    """A decision before it has a number: `run` None starts a new run."""

    run: int | None
    config: Config
    to_epoch: int
    reason: str
    improvement: float = float("inf")  # the largest expected of any candidate, in the user's units
    basket: tuple[BasketEntry, ...] = ()
    wish: int | None = None  # of the user, which this fulfils


class Turn(Protocol):
    """The right to take the next decision."""

    @property
    def facts(self) -> Facts:
        """What to decide on."""

    @property
    def belief(self) -> HyperparameterSamples | None:
        """As the last decision left it."""

    def commit(self, chosen: Chosen, belief: HyperparameterSamples | None) -> Decision:
        """Record the decision, and the belief after it where it has changed."""

    def drop(self, wish: Wish) -> None:
        """Forget a wish that can no longer be fulfilled."""


class Ledger(Protocol):
    """Owner of everything that a study knows."""

    def facts(self) -> Facts:
        """What is known now."""

    def deciding(self) -> AbstractContextManager[Turn]:
        """The right to take the next decision, waited for if need be, given back in the end."""

    def belief(self) -> HyperparameterSamples | None:
        """As the last decision left it."""

    def belief_after(self, decisions: int) -> HyperparameterSamples | None:
        """As decision number `decisions` left it, where that is known."""

    def history(self) -> History:
        """How the study went."""

    def tell(self, decision: Decision, told: Told) -> None:
        """Record losses and close the decision; raises TellError and changes nothing where that cannot be."""

    def cancel(self, decision: Decision, outcome: Outcome) -> None:
        """Give a decision back without any loss."""

    def add(self, curves: Sequence[tuple[Config, Told]]) -> tuple[Run, ...]:
        """Record curves from elsewhere, all or none."""

    def wish(self, run: int | None, config: Config, to_epoch: int) -> None:
        """Remember what the user wants done first."""

    def explanation(self, number: int) -> Explanation | None:
        """What was compared for a decision, if it is known."""


def check_pending(decision: object, facts: Facts) -> Decision:
    """Refuse what is no decision of this study under way."""
    if not isinstance(decision, Decision):
        raise TellError(f"the first argument must be a decision returned by ask(), not {decision!r}")
    if decision not in facts.pending:
        known = 1 <= decision.number <= facts.decisions
        raise TellError(
            f"decision {decision.number} was told or cancelled before; a decision is told once"
            if known
            else f"decision {decision.number} is not one of this study"
        )
    return decision


def check_outcome(outcome: str) -> None:
    """Refuse what is no outcome."""
    if outcome not in OUTCOMES:
        raise TellError(f"outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r}")


class MemoryLedger:
    """Everything in this process. Numbers count from 1."""

    def __init__(self, max_epochs: int) -> None:
        self._max_epochs = max_epochs
        self._runs: list[Run] = []
        self._pending: dict[int, Decision] = {}
        self._decisions = 0
        self._last: Decision | None = None
        self._wishes: dict[int, Wish] = {}
        self._wished = 0
        self._belief: HyperparameterSamples | None = None
        self._explanations: dict[int, Explanation] = {}
        self._beliefs: dict[int, HyperparameterSamples] = {}
        self._taken: list[Taken] = []
        self._order: list[tuple[int, int]] = []  # (run, epoch) of every loss
        self._facts: Facts | None = None  # until something changes

    def facts(self) -> Facts:
        """What is known now."""
        if self._facts is None:
            last = self._last
            in_hand = None if last is None or last.number in self._pending else last.run
            runs, pending, wishes = tuple(self._runs), tuple(self._pending.values()), tuple(self._wishes.values())
            self._facts = Facts(self._max_epochs, runs, pending, self._decisions, wishes, in_hand=in_hand)
        return self._facts

    @contextmanager
    def deciding(self) -> Iterator[MemoryTurn]:
        """Nobody else decides here."""
        yield MemoryTurn(self)

    def belief(self) -> HyperparameterSamples | None:
        """As the last decision left it."""
        return self._belief

    def belief_after(self, decisions: int) -> HyperparameterSamples | None:
        """As decision number `decisions` left it; None where it left none, or lies too far back."""
        return self._beliefs.get(decisions)

    def history(self) -> History:
        """How the study went."""
        return History(tuple(self._taken), tuple(self._order))

    def add(self, curves: Sequence[tuple[Config, Told]]) -> tuple[Run, ...]:
        """Record curves from elsewhere."""
        before = len(self._runs)
        for config, told in curves:
            state: State = "diverged" if told.diverged else "finished"
            self._runs.append(Run(len(self._runs) + 1, config, told.losses, told.seconds, state, added=True))
            self._order += [(len(self._runs), epoch) for epoch in range(1, len(told.losses) + 1)]
        self._facts = None
        return tuple(self._runs[before:])

    def decide(self, chosen: Chosen, belief: HyperparameterSamples | None) -> Decision:
        """Record a decision."""
        current = Run(len(self._runs) + 1, chosen.config) if chosen.run is None else self.facts().run(chosen.run)
        number, to_epoch = current.number, chosen.to_epoch
        if current.state != "frozen":
            raise StudyError(f"run {number} is {current.state}; only a frozen run can be advanced")
        if not current.epoch < to_epoch <= self._max_epochs:
            raise StudyError(
                f"run {number} is at epoch {current.epoch} of {self._max_epochs}; cannot train to {to_epoch}"
            )
        if chosen.run is None:
            self._runs.append(current)
        self._decisions += 1
        kind: Kind = "start" if current.epoch == 0 else "thaw"
        decision = Decision(self._decisions, kind, number, current.config, current.epoch, to_epoch, chosen.reason)
        self._pending[decision.number] = self._last = decision
        self._taken.append(Taken(decision, len(self._order), len(self._order)))
        self._runs[number - 1] = replace(current, state="pending")
        self._belief = belief or self._belief
        if belief is not None:
            self._beliefs[decision.number] = belief
        self._beliefs.pop(decision.number - EXPLAINED, None)
        if chosen.basket:
            self._explanations[decision.number] = Explanation(decision, chosen.basket)
        self._explanations.pop(decision.number - EXPLAINED, None)
        if chosen.wish is not None:
            del self._wishes[chosen.wish]
        self._facts = None
        return decision

    def tell(self, decision: Decision, told: Told) -> None:
        """Record losses and close the decision."""
        before = self.facts().run(check_pending(decision, self.facts()).run)
        curve = before.losses + told.losses
        state: State = "diverged" if told.diverged else "finished" if len(curve) == self._max_epochs else "frozen"
        self._order += [(before.number, epoch) for epoch in range(before.epoch + 1, len(curve) + 1)]
        after = replace(before, losses=curve, seconds=before.seconds + told.seconds, state=state)
        self._close(decision, after, "diverged" if told.diverged else "told")

    def cancel(self, decision: Decision, outcome: Outcome) -> None:
        """Give a decision back without any loss."""
        before = self.facts().run(check_pending(decision, self.facts()).run)
        check_outcome(outcome)
        state: State = "frozen" if outcome == "interrupted" else "failed"
        self._close(decision, replace(before, state=state, outcome=outcome), outcome)

    def _close(self, decision: Decision, run: Run, outcome: str) -> None:
        taken = self._taken[decision.number - 1]
        self._taken[decision.number - 1] = replace(taken, ended=len(self._order), outcome=outcome)
        self._runs[run.number - 1] = run
        del self._pending[decision.number]
        self._facts = None

    def wish(self, run: int | None, config: Config, to_epoch: int) -> None:
        """Remember what the user wants done first."""
        self._wished += 1
        self._wishes[self._wished] = Wish(self._wished, run, config, to_epoch)
        self._facts = None

    def drop(self, wish: Wish) -> None:
        """Forget a wish."""
        del self._wishes[wish.number]
        self._facts = None

    def explanation(self, number: int) -> Explanation | None:
        """What was compared for a decision, if it is known."""
        return self._explanations.get(number)


@dataclass(frozen=True)
class MemoryTurn:
    """The right to decide, which is never contested."""

    ledger: MemoryLedger

    @property
    def facts(self) -> Facts:
        """What to decide on."""
        return self.ledger.facts()

    @property
    def belief(self) -> HyperparameterSamples | None:
        """As the last decision left it."""
        return self.ledger.belief()

    def commit(self, chosen: Chosen, belief: HyperparameterSamples | None) -> Decision:
        """Record the decision."""
        return self.ledger.decide(chosen, belief)

    def drop(self, wish: Wish) -> None:
        """Forget a wish."""
        self.ledger.drop(wish)
