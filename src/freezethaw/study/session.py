"""A session: one process's access to a study. `Study`, the workers, Ray, Ray Tune, the page and the CLI all use it.

It owns the last known state, the storage, the leases of the decisions made here, and their heartbeat.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from freezethaw.decide import Inference, InferenceCache, StudyDefinition, decide
from freezethaw.decide.earlier import EarlierStudy
from freezethaw.errors import LeaseLost, StoreError, StudyError, TellError
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.records import (
    OUTCOMES,
    Checkpoint,
    Closing,
    Config,
    Decision,
    DecisionDraft,
    Event,
    History,
    Lease,
    Outcome,
    Recorded,
    Report,
    Run,
    StudyState,
)
from freezethaw.space import Space
from freezethaw.store import LEASE_SECONDS, Heartbeat, MemoryStorage, Storage, Watcher
from freezethaw.store.urls import default_checkpoint_folder

if TYPE_CHECKING:
    from freezethaw.store import Store

TRIES = 5  # of a decision whose lease is lost while deciding

Saved = tuple[Checkpoint | None, Sequence[int]]  # a new checkpoint, and the numbers of those that it replaces


class StudySession:
    """One process's access to a study: state, storage, leases and heartbeat."""

    def __init__(
        self,
        storage: Storage,
        definition: StudyDefinition | None = None,
        lease_seconds: float = LEASE_SECONDS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`definition` is that of the storage, if it is known already."""
        self.storage = storage
        self.watcher = Watcher(lease_seconds)
        self._pause, self._lock = pause, threading.RLock()
        self._leases: dict[int, tuple[Decision, Lease]] = {}  # of decisions made here, by number
        self._heartbeat: Heartbeat | None = None
        self._samples: tuple[int, HyperparameterSamples | None] | None = None  # and after how many decisions
        self._history: History | None = None
        self.state: StudyState = storage.load()  # as last read
        self.default_folder = ""  # of checkpoints, unless the definition has another one; empty if there is no store
        self.failed_before = frozenset(run.number for run in self.state.runs if run.state in ("failed", "diverged"))
        if definition is not None:
            kept = self.state.definition  # what the user did to the study before
            definition = replace(
                definition,
                banned=tuple(kept.get("banned", ())),
                pinned=tuple(kept.get("pinned", ())),
                learn_from=tuple(EarlierStudy.from_dict(plain) for plain in kept.get("learn_from", ())),
            )
        self.definition = definition or StudyDefinition.from_dict(self.state.definition)
        self.cache = InferenceCache(self.definition, self._union(self.definition.space, self.state.version))
        if storage.shared:
            self._heartbeat = Heartbeat(storage.beat, seconds=lease_seconds)
            self._heartbeat.__enter__()

    @classmethod
    def create(
        cls,
        definition: StudyDefinition,
        name: str,
        store: str | Path | None = None,
        earlier: Callable[[], tuple[EarlierStudy, ...]] | None = None,
    ) -> StudySession:
        """The study of this name: created, or continued if the definition is of the same study.

        `earlier` summarises the studies to learn from. It is called when the study is created; a study that is
        continued keeps its summaries.
        """
        if store is None:
            definition = replace(definition, learn_from=earlier() if earlier else ())
            return cls(MemoryStorage(name, definition.to_dict()), definition)
        from freezethaw.store import Store

        opened = Store(store)
        try:
            if earlier is not None:
                definition = _learning(definition, name, opened, earlier)
            return cls(opened.create_or_open(name, definition.to_dict()), definition)._beside(store)
        except BaseException:
            opened.close()
            raise

    @classmethod
    def open(cls, store: str | Path, name: str | None = None, known: bool = False) -> StudySession:
        """A study that exists; the name may be left out if the store holds exactly one. Nothing is written.

        `known`: somebody has reached the store, so that it is waited for if it is away.
        """
        from freezethaw.store import Store

        opened = Store(store, create=False, known=known)
        try:
            return cls(opened.open(name))._beside(store)
        except BaseException:
            opened.close()
            raise

    def save_to(self, store: str | Path, name: str) -> StudySession:
        """Write this study, with everything in it, into a store under an unused name; returns a session there."""
        from freezethaw.store import Store

        state, samples = self.refresh(), self.samples_after(self.state.decisions)
        opened = Store(store)
        try:
            plain = None if samples is None else samples.to_dict()
            storage, leases = opened.save(name, state, plain)
            found = StudySession(storage, self.definition)._beside(store)
        except BaseException:
            opened.close()
            raise
        for decision in state.pending:
            found.hold(decision, leases[decision.number])
        return found

    def _beside(self, store: str | Path) -> StudySession:
        self.default_folder = default_checkpoint_folder(store)
        return self

    @property
    def checkpoint_folder(self) -> str:
        """The folder of the checkpoints; empty if there is none."""
        return str(self.state.definition.get("checkpoint_folder") or self.default_folder)

    def set_checkpoint_folder(self, folder: str) -> None:
        """Record where the checkpoints are, for those who look for them later."""
        folder = folder if "://" in folder else str(Path(folder).expanduser().absolute())
        if folder != self.checkpoint_folder:
            self.storage.amend({"checkpoint_folder": folder})
            self.refresh()

    def close(self) -> None:
        """Release the leases and stop the heartbeat. Pending decisions stay pending, for any process to take over."""
        for decision, _ in list(self._leases.values()):
            with suppress(StoreError, TellError):
                self.release(decision)
        if self._heartbeat is not None:
            self._heartbeat.__exit__(None, None, None)
        self.storage.close()

    # The state.

    @property
    def name(self) -> str:
        """The study's name."""
        return self.storage.name

    def refresh(self) -> StudyState:
        """Read what changed since, also about the definition, and return the state."""
        with self._lock:
            before, self.state = self.state, self.storage.load(self.state)
            if self.state.version != before.version:
                self.definition = StudyDefinition.from_dict(self.state.definition)
                self.cache = InferenceCache(self.definition, self._union(self.definition.space, self.state.version))
            return self.state

    def _union(self, space: Space, version: int) -> Space:
        """A space that holds all versions of the space up to this one: earlier runs stay known to the model."""
        for v in range(1, version):
            before = Space.from_dict(self.storage.definition(v)["space"])
            if before != space:
                space = space.union(before)
        return space

    def samples_after(self, decisions: int) -> HyperparameterSamples | None:
        """The hyperparameter samples after so many decisions."""
        known = self._samples
        if known is None or known[0] != decisions:
            plain = self.storage.samples(before=decisions + 1)
            known = decisions, None if plain is None else HyperparameterSamples.from_dict(plain)
            self._samples = known
        return known[1]

    def infer(self) -> Inference | None:
        """The posterior given all losses of the current state; None before the first finite loss."""
        return self.cache.infer(self.state, self.samples_after(self.state.decisions))

    def history(self) -> History:
        """All decisions and epochs; only what changed is read."""
        found = self._history = self.storage.history(self._history)
        return found

    def events(self, kind: str) -> list[Event]:
        """All events of a kind, oldest first."""
        found, after = [], 0
        while events := self.storage.events(after):
            found += [event for event in events if event.kind == kind]
            after = events[-1].number
        return found

    def last_event(self, kind: str) -> str:
        """The text of the last event of a kind; empty if there is none."""
        found = self.events(kind)
        return found[-1].text if found else ""

    def training_seed(self, run: int) -> int:
        """The seed of a run's training: the same after every thaw."""
        return int(np.random.SeedSequence([self.definition.seed, run]).generate_state(1)[0])

    # Deciding.

    def ask(self) -> Decision:
        """Decide what to train next. Raises StudyFinished or AllPending if there is nothing to decide."""
        return self._retried(self._ask)

    def _ask(self) -> Decision:
        with self._deciding(None) as lease:
            state, definition, cache = self.read()
            draft, samples = self._decide(definition, state, cache)
            return self._commit(lease, draft, state, samples)

    def next_decision(self, completed: Decision, lease: Lease | None, save: Callable[[bool], Saved]) -> Decision:
        """Decide after all epochs of `completed` are recorded, and close that decision with the same transaction.

        `lease` is the decision lease, if it came with the last record. `save` is called before the commit, with whether
        the decision continues the run; it returns the checkpoint that is recorded with the commit. Raises StudyFinished
        or AllPending; then `completed` is still pending.
        """
        leases = [lease]

        def decide_and_commit() -> Decision:
            with self._deciding(leases.pop() if leases else None) as held:
                state, definition, cache = self.read()
                draft, samples = self._decide(definition, state.after(completed), cache)
                begin = perf_counter()
                saved = save(draft.run == completed.run)
                if saved[0] is not None:
                    draft = replace(draft, saving=perf_counter() - begin)
                return self._commit(held, draft, state, samples, completed, saved)

        return self._retried(decide_and_commit, lambda: self.storage.beat(self.lease(completed)))

    def _retried(self, attempt: Callable[[], Decision], check: Callable[[], object] = lambda: None) -> Decision:
        """Try again if the decision lease was lost while deciding; `check` raises LeaseLost if another one was."""
        for _ in range(TRIES):
            try:
                return attempt()
            except LeaseLost:  # no heartbeat came through while this process decided: another one decides
                check()
        raise StoreError(f"the decision lease was lost {TRIES} times in a row while deciding: is the store very slow?")

    def read(self) -> tuple[StudyState, StudyDefinition, InferenceCache]:
        """The state, with the definition and the cache that belong to it, whatever other threads read meanwhile."""
        with self._lock:
            return self.refresh(), self.definition, self.cache

    def _decide(
        self, definition: StudyDefinition, state: StudyState, cache: InferenceCache
    ) -> tuple[DecisionDraft, HyperparameterSamples | None]:
        begin = perf_counter()
        draft, samples = decide(definition, state, self.samples_after(state.decisions), definition.seed, cache)
        return (draft if samples is None else replace(draft, seconds=perf_counter() - begin)), samples

    @contextmanager
    def _deciding(self, lease: Lease | None) -> Iterator[Lease]:
        """Hold the decision lease; a commit releases it, anything else gives it back."""
        if lease is None:
            lease = self.storage.wait_for_decision_lease(self.watcher, self._pause)
        self._beat_for(lease)
        try:
            yield lease
        except BaseException:
            self._stop_beating(lease)
            with suppress(LeaseLost):  # another process has it
                self.storage.release(lease)
            raise
        self._stop_beating(lease)

    def _commit(
        self,
        lease: Lease,
        draft: DecisionDraft,
        state: StudyState,
        samples: HyperparameterSamples | None,
        completed: Decision | None = None,
        saved: Saved = (None, ()),
    ) -> Decision:
        """Decision, lease of its run and samples in one transaction, with the end of the one that is completed."""
        plain = None if samples is None else samples.to_dict()
        closing = None if completed is None else self.lease(completed)
        decision, run_lease = self.storage.commit(
            lease, draft, state.change, plain, closing=closing, checkpoint=saved[0], replaced=saved[1]
        )
        if completed is not None:
            self.let_go(completed)
        self._samples = decision.number, samples or self.samples_after(state.decisions)
        self.hold(decision, run_lease)
        return decision

    def replay(self, number: int) -> DecisionDraft:
        """Repeat a decision from what was known then: it equals the one that was committed."""
        record = self.storage.decision(number)
        state = self.storage.load(at=record.basis)
        if state.decisions != number - 1:
            raise StudyError(f"decision {number} was made before save_to(); what it was based on is not stored")
        plain = self.storage.samples(before=number)
        samples = None if plain is None else HyperparameterSamples.from_dict(plain)
        for decision in state.pending:  # the decision that was closed by the same commit
            if self.storage.decision(decision.number).closed == record.committed:
                state = state.after(decision)
        definition = StudyDefinition.from_dict(state.definition)
        cache = InferenceCache(definition, self._union(definition.space, state.version))
        return decide(definition, state, samples, definition.seed, cache)[0]

    # Leases and recording.

    def hold(self, decision: Decision, lease: Lease) -> None:
        """Send heartbeats for the lease of a decision until it is closed."""
        self._leases[decision.number] = decision, lease
        self._beat_for(lease)

    def let_go(self, decision: Decision) -> None:
        """Stop the heartbeat of a decision that is closed."""
        _, lease = self._leases.pop(decision.number, (None, None))
        if lease is not None:
            self._stop_beating(lease)

    def lease(self, decision: Decision) -> Lease:
        """The lease under which this process may write for a decision."""
        held, lease = self._leases.get(getattr(decision, "number", 0), (None, None))
        if lease is not None and held == decision:
            return lease
        self.check_pending(decision)
        raise TellError(f"decision {decision.number} is held by another session, which has to tell it")

    def take_over(self) -> Decision | None:
        """A pending decision whose process is gone, now held by this one; None if there is none."""
        found = self.storage.take_over(self.watcher) if self.storage.shared else None
        if found is None:
            return None
        self.hold(*found)
        return found[0]

    def release(self, decision: Decision) -> None:
        """Give the lease of a decision back: it stays pending, and any process may take it over at once."""
        lease = self.lease(decision)
        self.let_go(decision)
        self.storage.release(lease)

    def record(
        self,
        decision: Decision,
        report: Report | None = None,
        saved: Saved = (None, ()),
        close: Closing | None = None,
        deciding: bool = False,
    ) -> Recorded:
        """Record losses, a checkpoint and the end of a decision in one transaction.

        `deciding`: acquire the decision lease too, if it is available, for `next_decision`.
        """
        if report is not None:
            self.definition.check_losses(report.losses)
        watcher = self.watcher if deciding else None
        found = self.storage.record(self.lease(decision), report, saved[0], close, saved[1], watcher)
        if close is not None:
            self.let_go(decision)
        return found

    def check_pending(self, decision: object) -> Decision:
        """Refuse what is not a pending decision of this study."""
        if not isinstance(decision, Decision):
            raise TellError(f"the first argument must be a decision returned by ask(), not {decision!r}")
        state = self.refresh()
        if decision not in state.pending:
            known = 1 <= decision.number <= state.decisions
            raise TellError(
                f"decision {decision.number} was told or cancelled before; a decision is told once"
                if known
                else f"decision {decision.number} is not one of this study"
            )
        return decision

    def cancel(self, decision: Decision, outcome: Outcome) -> None:
        """Close a decision without any loss."""
        self.lease(decision)
        if outcome not in OUTCOMES:
            raise TellError(f"outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r}")
        self.record(decision, close=outcome)

    def add_runs(self, curves: Sequence[tuple[Config, Report]]) -> tuple[Run, ...]:
        """Add imported learning curves, all or none; returns their runs."""
        for _, report in curves:
            self.definition.check_losses(report.losses)
        numbers = self.storage.add_runs(curves)
        state = self.refresh()
        return tuple(replace(state.run(number), source=self.storage) for number in numbers)

    def _beat_for(self, lease: Lease) -> None:
        if self._heartbeat is not None:
            self._heartbeat.add(lease)

    def _stop_beating(self, lease: Lease) -> None:
        if self._heartbeat is not None:
            self._heartbeat.remove(lease)


def _learning(
    definition: StudyDefinition, name: str, store: Store, earlier: Callable[[], tuple[EarlierStudy, ...]]
) -> StudyDefinition:
    """The definition of a new study with summaries of earlier ones; one that exists keeps what it has."""
    if name not in (info.name for info in store.studies()):
        return replace(definition, learn_from=earlier())
    if not store.open(name).load().definition.get("learn_from"):
        raise StudyError(
            f"study {name!r} exists and does not learn from other studies; that is chosen when a study is created. "
            "Choose another name, or leave learn_from out"
        )
    return definition
