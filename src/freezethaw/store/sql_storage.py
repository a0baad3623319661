"""One study in a SQL database. Each method is one transaction; see `storage.Storage` for what it does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from freezethaw.errors import StudyError
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
from freezethaw.store import definitions, documents, heads, leases, loading, recording, rows, sampler_states, study_rows
from freezethaw.store.database import Database
from freezethaw.store.heads import Head
from freezethaw.store.processes import Process
from freezethaw.store.storage import DECIDING, Definition, LeaseState, Watcher


class SqlStorage:
    """One study in a store."""

    def __init__(self, database: Database, name: str, number: int, uid: str) -> None:
        self._database, self._study = database, number
        self.name, self.uid, self.shared = name, uid, True
        self._written = sampler_states.Written()

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
        with self._database.reading() as connection:
            if at is not None:
                return loading.load_at(connection, self._study, at)
            return loading.load(connection, self._study, known)

    def change(self) -> int:
        """The study's change counter."""
        with self._database.reading() as connection:
            return heads.read(connection, self._study).change

    def definition(self, version: int) -> Definition:
        """One version of the definition."""
        with self._database.reading() as connection:
            return loading.read_definition(connection, self._study, version)

    def history(self, known: History | None = None) -> History:
        """All decisions and epochs, reading only what changed since `known`."""
        with self._database.reading() as connection:
            return loading.history(connection, self._study, known)

    def decision(self, number: int) -> DecisionRecord:
        """One decision with its basket."""
        with self._database.reading() as connection:
            return loading.decision(connection, self._study, number)

    def decisions(self, last: int, before: int | None = None) -> tuple[DecisionRecord, ...]:
        """The newest decisions, or the newest before another one, oldest first, without baskets."""
        with self._database.reading() as connection:
            return loading.newest_decisions(connection, self._study, last, before)

    def deciding_seconds(self) -> float:
        """Seconds that all decisions took."""
        with self._database.reading() as connection:
            return loading.deciding_seconds(connection, self._study)

    def samples(self, before: int | None = None) -> Any:
        """The newest samples, or those that decision `before` started from; None if there are none."""
        with self._database.reading() as connection:
            return sampler_states.read(connection, self._study, before)

    def metrics(self, run: int) -> tuple[Mapping[str, Any], ...]:
        """Other metrics of a run, one dict for each epoch."""
        with self._database.reading() as connection:
            return loading.metrics(connection, self._study, run)

    def checkpoints(self, run: int | None = None) -> tuple[Checkpoint, ...]:
        """Checkpoints that exist, oldest first."""
        with self._database.reading() as connection:
            return rows.existing_checkpoints(connection, self._study, run)

    def events(self, after: int = 0, most: int = 1000) -> tuple[Event, ...]:
        """Events with a number greater than `after`, oldest first."""
        with self._database.reading() as connection:
            return rows.events_after(connection, self._study, after, most)

    def last_events(self, last: int) -> tuple[Event, ...]:
        """The newest events, oldest first."""
        with self._database.reading() as connection:
            return rows.newest_events(connection, self._study, last)

    def leases(self) -> tuple[LeaseState, ...]:
        """Leases that are held, and those of pending decisions that nobody holds."""
        with self._database.reading() as connection:
            return leases.states(connection, self._study)

    def last_holder(self, run: int) -> Process | None:
        """The process that holds the lease of a run, or held it last."""
        with self._database.reading() as connection:
            return next((lease.holder for lease in leases.states(connection, self._study, run)), None)

    # Leases.

    def acquire_decision_lease(self, watcher: Watcher) -> Lease | None:
        """The decision lease, if it is available now."""
        with self._database.reading() as connection:
            seen = leases.states(connection, self._study, DECIDING)
        if not seen:
            raise StudyError("the study was deleted")
        return self._take(seen[0], watcher)

    def take_over(self, watcher: Watcher) -> tuple[Decision, Lease] | None:
        """A pending decision whose worker is gone, with a new lease."""
        for seen in self.leases():
            lease = None if seen.run == DECIDING or not seen.decision else self._take(seen, watcher)
            if lease is not None:
                return self.decision(lease.decision).decision, lease
        return None

    def _take(self, seen: LeaseState, watcher: Watcher) -> Lease | None:
        if not watcher.may_take(self.uid, seen):
            return None
        with self._database.writing() as connection:
            return leases.take(connection, self._study, seen, watcher.here)

    def beat(self, lease: Lease) -> None:
        """Advance the heartbeat counter."""
        with self._database.writing() as connection:
            leases.beat(connection, self._study, lease)

    def release(self, lease: Lease) -> None:
        """Give a lease back; its decision stays pending."""
        with self._database.writing() as connection:
            leases.release(connection, self._study, lease)

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
        base, here = None, Process.current()  # before the lock is taken
        with self._changing(decision_lease, closing) as (connection, head):
            if closing is not None:
                recording.finish(connection, head, closing, checkpoint, "told", replaced)
            committed = recording.commit(connection, head, draft, basis, here)
            if samples is not None:
                base, text = self._written.row(head.decisions, samples)
                sampler_states.write(connection, self._study, head.decisions, base, text)
            if not keep_lease:
                leases.release(connection, self._study, decision_lease)
        if samples is not None:
            self._written.remember(committed[0].number, samples, base)
        return committed

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
        with self._database.writing() as connection:
            taken = None
            if deciding is not None:  # first, as everywhere: see `leases` on the order of locks
                taken = leases.take_decision_lease(connection, self._study, deciding)
            recorded = recording.record(connection, self._study, lease, report, checkpoint, close, replaced)
        return recorded if taken is None else replace(recorded, decision_lease=taken)

    def add_runs(self, curves: Iterable[tuple[Config, Report]]) -> list[int]:
        """Add imported learning curves, all or none."""
        with self._changing() as (connection, head):
            return [recording.add_run(connection, head, config, report) for config, report in curves]

    def drop_checkpoints(self, numbers: Iterable[int], why: str, holder: Lease | None = None) -> tuple[Checkpoint, ...]:
        """Mark checkpoints as replaced, evicted or damaged; those of leased runs stay, except the holder's."""
        with self._changing(holder) as (connection, head):
            return rows.drop_checkpoints(connection, head, numbers, why, holder.run if holder else None)

    def request(self, run: int | None, config: Config | None, to_epoch: int) -> int:
        """Queue a request to start a configuration or to thaw a run."""
        with self._changing() as (connection, head):
            return rows.add_request(connection, head, Request(0, run, config or {}, to_epoch))

    def amend(self, changes: Definition) -> None:
        """Change entries of the definition: a new version."""
        with self._database.writing() as connection:
            head = heads.lock(connection, self._study)
            current = loading.read_definition(connection, self._study, head.definition)
            study_rows.amend(connection, head, self.name, current | dict(changes))

    def set_tags(self, tags: Iterable[str]) -> None:
        """Replace the study's tags."""
        self._set(definitions.TAGS, definitions.checked_tags(tags))

    def set_disk_budget(self, gb: float | None) -> None:
        """Record the disk budget of the checkpoints."""
        if self.load().definition.get(definitions.DISK) != gb:
            self._set(definitions.DISK, gb)

    def _set(self, key: str, value: object) -> None:
        with self._changing() as (connection, head):
            study_rows.set_entry(connection, head, key, value)

    def add_event(
        self,
        kind: str,
        text: str,
        run: int | None = None,
        epoch: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Record an event."""
        with self._changing() as (connection, head):
            rows.add_event(connection, head, documents.printable(kind), text, run, epoch, details)

    @contextlib.contextmanager
    def _changing(self, lease: Lease | None = None, ending: Lease | None = None) -> Iterator[tuple[Connection, Head]]:
        """One transaction that changes the study, under a lease if one is needed; another lease may end with it."""
        with self._database.writing() as connection:
            if lease is not None:
                leases.beat(connection, self._study, lease)
            if ending is not None:
                leases.end(connection, self._study, ending)
            head = heads.lock(connection, self._study)
            yield connection, head
            heads.advance(connection, head)
