"""The ledger in a store: many processes work on one study, and one of them decides at a time."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict

from freezethaw.errors import LeaseLost, StudyError, TellError
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.records import BasketEntry, Config, Decision, Explanation, History, Outcome, Run, Taken, Wish
from freezethaw.space import Space
from freezethaw.store import (
    LEASE_SECONDS,
    Definition,
    Event,
    Heartbeat,
    Lease,
    Proposal,
    Report,
    Snapshot,
    Store,
    StoredHistory,
    StoredStudy,
    Watcher,
)
from freezethaw.study.facts import Facts
from freezethaw.study.ledger import Chosen, Ledger, check_outcome, check_pending
from freezethaw.study.told import Told

PAUSE = 0.02  # seconds before the lease to decide is asked for again; it grows while another process decides
LONGEST_PAUSE = 0.5


def continued(url: str, name: str, definition: Definition) -> SharedLedger:
    """The study of this name: created, or continued as far as the definition is of the same study."""
    store = Store(url)
    try:
        return SharedLedger(store, store.create_or_open(name, definition))
    except BaseException:
        store.close()
        raise


def opened(url: str, name: str) -> SharedLedger:
    """A study that exists, as it was last defined; nothing is written."""
    store = Store(url)
    try:
        return SharedLedger(store, store.open(name))
    except BaseException:
        store.close()
        raise


def saved(url: str, name: str, definition: Definition, ledger: Ledger) -> SharedLedger:
    """A study from elsewhere, with everything in it, under a name that is free."""
    facts, belief = ledger.facts(), ledger.belief()
    snapshot = Snapshot(0, 1, definition, facts.runs, facts.pending, facts.decisions, facts.wishes)
    store = Store(url)
    try:
        stored, leases = store.save(name, snapshot, None if belief is None else belief.to_dict())
    except BaseException:
        store.close()
        raise
    found = SharedLedger(store, stored)
    for decision in facts.pending:
        found.hold(decision, leases[decision.number])
    return found


class SharedLedger:
    """One study in a store, as seen from this process, which keeps the leases of its own decisions alive."""

    def __init__(
        self,
        store: Store,
        stored: StoredStudy,
        lease_seconds: float = LEASE_SECONDS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self.stored = store, stored
        self._watcher = Watcher(lease_seconds)
        self._pause = pause
        self._known: Snapshot | None = None
        self._leases: dict[int, tuple[Decision, Lease]] = {}  # of decisions taken here, by number
        self._belief: tuple[int, HyperparameterSamples | None] | None = None  # and after how many decisions
        self._last_run: tuple[int, int] | None = None  # number of a decision, its run
        self._history: StoredHistory | None = None
        self._heart = Heartbeat(stored.beat, seconds=lease_seconds)
        self._heart.__enter__()

    def close(self) -> None:
        """Stop beating. Decisions that were not told stay pending, for any process to take over."""
        self._heart.__exit__(None, None, None)
        self._store.close()

    def hull(self, space: Space) -> Space:
        """A space that holds this one and all that the study had before: old runs stay as evidence."""
        versions = (Space.from_dict(self.stored.definition(v)["space"]) for v in range(1, self.snapshot().version + 1))
        for before in versions:
            if before != space:
                space = space.union(before)
        return space

    def facts(self) -> Facts:
        """What is known now."""
        return self.facts_of(self.snapshot())

    def snapshot(self) -> Snapshot:
        """All of the study as it is now; only what changed is read."""
        self._known = self.stored.load(self._known)
        return self._known

    def seen(self) -> Snapshot:
        """All of the study as this process saw it last; others may have gone on since."""
        return self._known or self.snapshot()

    def facts_of(self, known: Snapshot) -> Facts:
        """What a snapshot says to a decider."""
        in_hand = None
        if known.decisions and all(d.number != known.decisions for d in known.pending):
            if self._last_run is None or self._last_run[0] != known.decisions:
                self._last_run = known.decisions, self.stored.decision(known.decisions).decision.run
            in_hand = self._last_run[1]
        saved: dict[int, int] = {}
        for checkpoint in known.checkpoints:
            saved[checkpoint.run] = max(checkpoint.epoch, saved.get(checkpoint.run, 0))
        return Facts(
            known.definition["max_epochs"],
            known.runs,
            known.pending,
            known.decisions,
            known.wishes,
            saved or None,
            in_hand,
        )

    def belief(self) -> HyperparameterSamples | None:
        """As the last decision left it."""
        return self.belief_after(self.facts().decisions)

    def belief_after(self, decisions: int) -> HyperparameterSamples | None:
        """As decision number `decisions` left it."""
        if self._belief is None or self._belief[0] != decisions:
            state = self.stored.sampler_state(before=decisions + 1)
            self._belief = decisions, None if state is None else HyperparameterSamples.from_dict(state)
        return self._belief[1]

    def history(self) -> History:
        """How the study went; only what changed is read."""
        self._history = self.stored.history(self._history)
        changes = [change for change, _, _ in self._history.epochs]
        decisions = tuple(
            Taken(
                d.decision,
                bisect_right(changes, d.basis),
                bisect_right(changes, d.committed),
                None if d.closed is None else bisect_right(changes, d.closed),
                d.outcome or ("told" if d.state == "told" else ""),
            )
            for d in self._history.decisions
        )
        return History(decisions, tuple((run, epoch) for _, run, epoch in self._history.epochs))

    @contextmanager
    def deciding(self, fulfilled: Decision | None = None) -> Iterator[SharedTurn]:
        """Wait for the lease to decide; it is kept alive meanwhile, and given back.

        A decision of this process that is `fulfilled` counts as told, and is closed by the commit of the next one.
        """
        permit = self._permission()
        self._heart.add(permit)
        turn = SharedTurn(self, permit, fulfilled)
        try:
            yield turn
        finally:
            self._heart.remove(permit)
            if not turn.spent:
                self._give_back(permit)

    def _permission(self) -> Lease:
        pause = PAUSE
        while (permit := self.stored.permission(self._watcher)) is None:
            self._pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return permit

    def _give_back(self, permit: Lease) -> None:
        with suppress(LeaseLost):  # whoever took it has it now
            self.stored.release(permit)

    def commit(
        self,
        permit: Lease,
        chosen: Chosen,
        belief: HyperparameterSamples | None,
        known: Snapshot,
        fulfilled: Decision | None = None,
    ) -> Decision:
        """Decision, lease of its run and belief in one transaction; with the end of the one that is `fulfilled`."""
        basket = tuple(asdict(entry) | {"config": dict(entry.config)} for entry in chosen.basket)
        proposal = Proposal(chosen.run, chosen.config, chosen.to_epoch, chosen.reason, basket, chosen.wish)
        state = None if belief is None else belief.to_dict()
        closing = None if fulfilled is None else self.lease(fulfilled)
        done = self.stored.commit(permit, proposal, known.change, state, closing=closing)
        if fulfilled is not None:
            self.let_go(fulfilled)
        self._belief = done.decision.number, belief or self.belief_after(known.decisions)
        self.hold(done.decision, done.lease)
        return done.decision

    def hold(self, decision: Decision, lease: Lease) -> None:
        """Keep the lease of a decision alive until it is told."""
        self._leases[decision.number] = decision, lease
        self._heart.add(lease)

    def lease(self, decision: Decision) -> Lease:
        """Under which this process may write for a decision; a write says whether it is still held."""
        held, lease = self._leases.get(getattr(decision, "number", 0), (None, None))
        if lease is not None and held == decision:
            return lease
        check_pending(decision, self.facts())
        raise TellError(f"decision {decision.number} was taken by another process, which has to tell it")

    def take_over(self) -> Decision | None:
        """A pending decision whose process is gone; it is this one's now. None where there is none."""
        found = self.stored.take_over(self._watcher)
        if found is None:
            return None
        self.hold(found.decision, found.lease)
        return found.decision

    def tell(self, decision: Decision, told: Told) -> None:
        """Record losses and close the decision."""
        lease = self.lease(decision)
        first = decision.from_epoch + 1
        report = Report(first, told.losses, told.seconds) if told.losses else None
        self.stored.record(lease, report, close="diverged" if told.diverged else "told")
        self.let_go(decision)

    def cancel(self, decision: Decision, outcome: Outcome) -> None:
        """Give a decision back without any loss."""
        lease = self.lease(decision)
        check_outcome(outcome)
        self.stored.record(lease, close=outcome)
        self.let_go(decision)

    def let_go(self, decision: Decision) -> None:
        """Beat no more for a decision that is closed."""
        _, lease = self._leases.pop(decision.number, (None, None))
        if lease is not None:
            self._heart.remove(lease)

    def add(self, curves: Sequence[tuple[Config, Told]]) -> tuple[Run, ...]:
        """Record curves from elsewhere, in one transaction."""
        reports = [(config, Report(1, told.losses, told.seconds), told.diverged) for config, told in curves]
        numbers = self.stored.add_runs(reports)
        facts = self.facts()
        return tuple(facts.run(number) for number in numbers)

    def wish(self, run: int | None, config: Config, to_epoch: int) -> None:
        """Remember what the user wants done first."""
        if run is None:
            self.stored.enqueue(config, to_epoch)
        else:
            self.stored.thaw(run, to_epoch)

    def explanation(self, number: int) -> Explanation | None:
        """What was compared for a decision."""
        found = self.stored.decision(number)
        basket = tuple(BasketEntry(**entry) for entry in found.basket)
        return Explanation(found.decision, basket) if basket else None

    def events(self, kind: str) -> list[Event]:
        """All events of a kind, oldest first."""
        found, after = [], 0
        while events := self.stored.events(after):
            found += [event for event in events if event.kind == kind]
            after = events[-1].number
        return found

    def last_event(self, kind: str) -> str:
        """What the last event of a kind says; empty where there is none."""
        found = self.events(kind)
        return found[-1].text if found else ""

    def before(self, number: int) -> tuple[Facts, HyperparameterSamples | None, Definition]:
        """What decision `number` was taken on, for a replay: facts, belief and definition."""
        taken = self.stored.decision(number)
        known = self.stored.load(at=taken.basis)
        if known.decisions != number - 1:
            raise StudyError(f"decision {number} came with the study from elsewhere; it cannot be replayed")
        state = self.stored.sampler_state(before=number)
        belief = None if state is None else HyperparameterSamples.from_dict(state)
        facts = self.facts_of(known)
        for decision in facts.pending:  # it was fulfilled by then: a run has one decision at a time
            if decision.run == taken.decision.run:
                facts = facts.after(decision)
        return facts, belief, known.definition


class SharedTurn:
    """The lease to decide, in this process's hands."""

    def __init__(self, ledger: SharedLedger, permit: Lease, fulfilled: Decision | None) -> None:
        self.spent = False
        self._ledger, self._permit, self._fulfilled = ledger, permit, fulfilled
        self._known = ledger.snapshot()

    @property
    def facts(self) -> Facts:
        """What to decide on."""
        facts = self._ledger.facts_of(self._known)
        return facts if self._fulfilled is None else facts.after(self._fulfilled)

    @property
    def belief(self) -> HyperparameterSamples | None:
        """As the last decision left it."""
        return self._ledger.belief_after(self._known.decisions)

    def commit(self, chosen: Chosen, belief: HyperparameterSamples | None) -> Decision:
        """Record the decision."""
        decision = self._ledger.commit(self._permit, chosen, belief, self._known, self._fulfilled)
        self.spent = True
        return decision

    def drop(self, wish: Wish) -> None:
        """Forget a wish."""
        self._ledger.stored.drop_wish(wish.number)
        self._known = self._ledger.snapshot()
