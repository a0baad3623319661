"""One study in a SQL database. Each method is one transaction; see `storage.Storage` for what it does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import Connection

from freezethaw.errors import StoreError, StudyError
from freezethaw.records import (
    Checkpoint,
    Closing,
    Config,
    Decision,
    DecisionDraft,
    DecisionRecord,
    Event,
    History,
    Lease,
    Recorded,
    Report,
    Request,
    StudyState,
)
from freezethaw.store import (
    documents,
    leases,
    loading,
    recording,
    rows,
    rules,
)
from freezethaw.store.database import Database
from freezethaw.store.rows import Head
from freezethaw.store.storage import DECIDING, Definition, LeaseState, Process, Watcher

T = TypeVar("T")


class SqlStorage:
    """One study in a store."""

    def __init__(self, database: Database, name: str, number: int, uid: str) -> None:
        self._database, self._study = database, number
        self.name, self.uid, self.shared = name, uid, True
        self._written = rows.WrittenSamples()

    def __repr__(self) -> str:
        return f"SqlStorage({self.name!r} in {self._database.shown!r})"

    @property
    def durable(self) -> bool:
        """Whether what is recorded must survive a crash of the machine."""
        return self._database.durable

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    # Reading.

    def load(self, known: StudyState | None = None, at: int | None = None) -> StudyState:
        """The state now, reading only what changed since `known`; or the state at an earlier change."""
        if at is not None:
            return self._database.read(lambda connection: loading.load_at(connection, self._study, at))
        return self._database.read(lambda connection: loading.load(connection, self._study, known))

    def change(self) -> int:
        """The study's change counter."""
        return self._database.read(lambda connection: rows.read_head(connection, self._study).change)

    def definition(self, version: int) -> Definition:
        """One version of the definition."""
        return self._database.read(lambda connection: loading.read_definition(connection, self._study, version))

    def history(self, known: History | None = None) -> History:
        """All decisions and epochs, reading only what changed since `known`."""
        return self._database.read(lambda connection: loading.history(connection, self._study, known))

    def decision(self, number: int) -> DecisionRecord:
        """One decision with its basket."""
        return self._database.read(lambda connection: loading.decision(connection, self._study, number))

    def decisions(self, last: int, before: int | None = None) -> tuple[DecisionRecord, ...]:
        """The newest decisions, or the newest before another one, oldest first, without baskets."""
        return self._database.read(lambda connection: loading.newest_decisions(connection, self._study, last, before))

    def deciding_seconds(self) -> float:
        """Seconds that all decisions took."""
        return self._database.read(lambda connection: loading.deciding_seconds(connection, self._study))

    def samples(self, before: int | None = None) -> Any:
        """The newest samples, or those that decision `before` started from; None if there are none."""
        return self._database.read(lambda connection: rows.read_samples(connection, self._study, before))

    def metrics(self, run: int) -> tuple[Mapping[str, Any], ...]:
        """Other metrics of a run, one dict for each epoch."""
        return self._database.read(lambda connection: loading.metrics(connection, self._study, run))

    def checkpoints(self, run: int | None = None) -> tuple[Checkpoint, ...]:
        """Checkpoints that exist, oldest first."""
        return self._database.read(lambda connection: rows.existing_checkpoints(connection, self._study, run))

    def events(self, after: int = 0, most: int = 1000) -> tuple[Event, ...]:
        """Events with a number greater than `after`, oldest first."""
        return self._database.read(lambda connection: rows.events_after(connection, self._study, after, most))

    def last_events(self, last: int) -> tuple[Event, ...]:
        """The newest events, oldest first."""
        return self._database.read(lambda connection: rows.newest_events(connection, self._study, last))

    def leases(self) -> tuple[LeaseState, ...]:
        """Leases that are held, and those of pending decisions that nobody holds."""
        return self._database.read(lambda connection: leases.states(connection, self._study))

    def last_holder(self, run: int) -> Process | None:
        """The process that holds the lease of a run, or held it last."""
        return self._database.read(
            lambda connection: next((lease.holder for lease in leases.states(connection, self._study, run)), None)
        )

    # Leases.

    def acquire_decision_lease(self, watcher: Watcher) -> Lease | None:
        """The decision lease, if it is available now and nobody waits for it."""

        def look(connection: Connection) -> tuple[LeaseState | None, bool]:
            seen = leases.states(connection, self._study, DECIDING)
            return next(iter(seen), None), leases.next_ticket(connection, self._study, watcher.here) is None

        seen, free = self._database.read(look)
        if seen is None:
            raise StudyError("the study was deleted")
        return self._take(seen, watcher) if free else None

    def wait_for_decision_lease(self, watcher: Watcher, pause: Callable[[float], object]) -> Lease:
        """The decision lease, in the order of asking."""
        lease = self.acquire_decision_lease(watcher)
        if lease is not None:
            return lease
        here = watcher.here
        ticket = self._database.write(lambda connection: leases.enter_queue(connection, self._study, here))
        try:
            while lease is None:
                lease = self._take_from_queue(ticket, watcher, pause)
        except BaseException:
            with contextlib.suppress(StoreError):
                self._database.write(lambda connection: leases.leave_queue(connection, ticket), repeatable=True)
            raise
        return lease

    def _take_from_queue(self, ticket: int, watcher: Watcher, pause: Callable[[float], object]) -> Lease | None:
        seen = leases.wait_in_queue(self._database, self._study, ticket, watcher, pause)
        return self._database.write(
            lambda connection: leases.take_as_next(connection, self._study, ticket, seen, watcher.here)
        )

    def take_over(self, watcher: Watcher) -> tuple[Decision, Lease] | None:
        """A pending decision whose worker is gone, with a new lease."""
        for seen in self.leases():
            lease = None if seen.run == DECIDING or not seen.decision else self._take(seen, watcher)
            if lease is not None:
                return self.decision(lease.decision).decision, lease
        return None

    def _take(self, seen: LeaseState, watcher: Watcher) -> Lease | None:
        # no heartbeat could be seen while the database was unavailable: earlier observations do not count
        if not watcher.may_take((self.uid, self._database.outages), seen):
            return None
        return self._database.write(lambda connection: leases.take(connection, self._study, seen, watcher.here))

    def beat(self, lease: Lease) -> None:
        """Advance the heartbeat counter."""
        self._database.write(lambda connection: leases.beat(connection, self._study, lease), repeatable=True)

    def release(self, lease: Lease) -> None:
        """Release a lease; its decision stays pending."""
        self._database.write(lambda connection: leases.release(connection, self._study, lease))

    # Writing.

    def commit(
        self,
        decision_lease: Lease,
        draft: DecisionDraft,
        basis: int,
        samples: Any = None,
        keep_lease: bool = False,
        closing: Lease | None = None,
        checkpoint: Checkpoint | None = None,
        replaced: Sequence[int] = (),
    ) -> tuple[Decision, Lease]:
        """Commit a decision, the lease of its run and the samples after it; see the protocol."""
        here = Process.current()  # before the lock is taken

        def commit(connection: Connection, head: Head) -> tuple[Decision, Lease, int | None]:
            if closing is not None:
                recording.finish(connection, head, closing, checkpoint, "told", replaced)
            decision, lease = recording.commit(connection, head, draft, basis, here)
            base = None
            if samples is not None:
                base, text = self._written.row(head.decisions, samples)
                rows.write_samples(connection, self._study, head.decisions, base, text)
            if not keep_lease:
                leases.release(connection, self._study, decision_lease)
            return decision, lease, base

        decision, lease, base = self._change(commit, decision_lease, closing)
        if samples is not None:
            self._written.remember(decision.number, samples, base)
        return decision, lease

    def record(
        self,
        lease: Lease,
        report: Report | None = None,
        checkpoint: Checkpoint | None = None,
        close: Closing | None = None,
        replaced: Sequence[int] = (),
        deciding: Watcher | None = None,
    ) -> Recorded:
        """Record losses, the checkpoint that belongs to them, and the end of the decision; see the protocol."""

        def record(connection: Connection) -> Recorded:
            taken = None
            if deciding is not None:  # first, as everywhere: see `leases` on the order of locks
                taken = leases.take_if_nobody_waits(connection, self._study, deciding)
            recorded = recording.record(connection, self._study, lease, report, checkpoint, close, replaced)
            return recorded if taken is None else replace(recorded, decision_lease=taken)

        # a loss that is reported twice is recorded once
        only_losses = checkpoint is None and close is None and not replaced and deciding is None
        return self._database.write(record, repeatable=only_losses)

    def add_runs(self, curves: Iterable[tuple[Config, Report]]) -> list[int]:
        """Add imported learning curves, all or none."""
        every = list(curves)
        return self._change(lambda connection, head: [recording.add_run(connection, head, *curve) for curve in every])

    def drop_checkpoints(self, numbers: Iterable[int], why: str, holder: Lease | None = None) -> tuple[Checkpoint, ...]:
        """Mark checkpoints as replaced, evicted or damaged; those of leased runs stay, except the holder's."""
        wanted, run = list(numbers), holder.run if holder else None
        return self._change(lambda connection, head: rows.drop_checkpoints(connection, head, wanted, why, run), holder)

    def request(self, run: int | None, config: Config | None, to_epoch: int) -> int:
        """Queue a request to start a configuration or to thaw a run."""
        wanted = Request(0, run, config or {}, to_epoch)
        return self._change(lambda connection, head: rows.add_request(connection, head, wanted))

    def amend(self, changes: Definition) -> None:
        """Change entries of the definition: a new version."""

        def amend(connection: Connection) -> None:
            head = rows.lock_study(connection, self._study)
            current = loading.read_definition(connection, self._study, head.definition)
            recording.amend(connection, head, self.name, current | dict(changes))

        self._database.write(amend)

    def set_tags(self, tags: Iterable[str]) -> None:
        """Replace the study's tags."""
        self._set(rules.TAGS, rules.checked_tags(tags))

    def set_disk_budget(self, gb: float | None) -> None:
        """Record the disk budget of the checkpoints."""
        if self.load().definition.get(rules.DISK) != gb:
            self._set(rules.DISK, gb)

    def set_training(self, training: Mapping[str, str]) -> None:
        """Record the name and the hash of what trains the study."""
        self._set(rules.TRAINING, dict(training))

    def _set(self, key: str, value: object) -> None:
        self._change(lambda connection, head: recording.set_entry(connection, head, key, value))

    def add_event(
        self,
        kind: str,
        text: str,
        run: int | None = None,
        epoch: int | None = None,
        details: Mapping[str, Any] | None = None,
        once: bool = False,
    ) -> None:
        """Record an event; `once`: unless the newest one of its kind has the same details."""

        def add(connection: Connection, head: Head) -> None:
            shown = documents.printable(kind)
            if not (once and rows.is_known(connection, head, shown, details)):
                rows.add_event(connection, head, shown, text, run, epoch, details)

        self._change(add)

    def _change(
        self, body: Callable[[Connection, Head], T], lease: Lease | None = None, ending: Lease | None = None
    ) -> T:
        """One transaction that changes the study, under a lease if one is needed; another lease may end with it."""

        def change(connection: Connection) -> T:
            if lease is not None:
                leases.beat(connection, self._study, lease)
            if ending is not None:
                leases.end(connection, self._study, ending)
            head = rows.lock_study(connection, self._study)
            result = body(connection, head)
            rows.advance(connection, head)
            return result

        return self._database.write(change)
