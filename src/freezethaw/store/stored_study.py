"""One study in a store. Each method is one transaction; everything it writes appears together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from freezethaw.errors import StudyError
from freezethaw.records import Config
from freezethaw.store import (
    checkpoints,
    deciding,
    defining,
    definitions,
    documents,
    events,
    heads,
    history,
    leases,
    loading,
    recording,
    sampler,
    wishes,
)
from freezethaw.store.database import Database
from freezethaw.store.heads import Head
from freezethaw.store.leases import Watcher
from freezethaw.store.processes import Process
from freezethaw.store.records import (
    Closing,
    Committed,
    Definition,
    Event,
    Lease,
    LeaseState,
    NewCheckpoint,
    Proposal,
    Recorded,
    Report,
    Snapshot,
    StoredCheckpoint,
    StoredDecision,
    StoredHistory,
)
from freezethaw.store.tables import DECISIONS


class StoredStudy:
    """One study in a store."""

    def __init__(self, database: Database, name: str, number: int, uid: str) -> None:
        self._database, self._study = database, number
        self.name, self.uid = name, uid
        self._memory = sampler.SamplerMemory()

    def __repr__(self) -> str:
        return f"StoredStudy({self.name!r} in {self._database.shown!r})"

    @property
    def durable(self) -> bool:
        """Whether what is recorded must survive a crash of the machine."""
        return self._database.durable

    # Reading.

    def load(self, known: Snapshot | None = None, at: int | None = None) -> Snapshot:
        """Everything a decider needs. `known`: read only what changed since; `at`: as it was at an earlier change."""
        with self._database.reading() as connection:
            if at is not None:
                return history.load(connection, self._study, at)
            return loading.load(connection, self._study, known)

    def change(self) -> int:
        """The study's change counter: where it stands still, nothing happened."""
        with self._database.reading() as connection:
            return heads.read(connection, self._study).change

    def history(self, known: StoredHistory | None = None) -> StoredHistory:
        """How the study went, without baskets. `known`: read only what changed since."""
        with self._database.reading() as connection:
            return history.course(connection, self._study, known)

    def decisions(self, last: int, before: int | None = None) -> tuple[StoredDecision, ...]:
        """So many decisions, the newest or those before another one, oldest first, without their baskets."""
        with self._database.reading() as connection:
            return deciding.listed(connection, self._study, last, before)

    def last_events(self, last: int) -> tuple[Event, ...]:
        """The newest events, oldest first."""
        with self._database.reading() as connection:
            return events.newest(connection, self._study, last)

    def definition(self, version: int) -> Definition:
        """One version of the definition."""
        with self._database.reading() as connection:
            return loading.read(connection, self._study, version)

    def disk_budget(self) -> float | None:
        """How much room the checkpoints may take, in GB; None where nobody said."""
        with self._database.reading() as connection:
            definition = defining.current(connection, heads.read(connection, self._study))
        found: float | None = definition.get(definitions.DISK)
        return found

    def decision(self, number: int) -> StoredDecision:
        """One decision with its basket, and the change that the decider had seen: `load(at=decision.basis)`."""
        with self._database.reading() as connection:
            return deciding.read(connection, self._study, number)

    def sampler_state(self, before: int | None = None) -> Any:
        """The newest sampler state, or the one that decision `before` started from; None before the first."""
        with self._database.reading() as connection:
            return sampler.read(connection, self._study, before)

    def metrics(self, run: int) -> tuple[Mapping[str, Any], ...]:
        """Other metrics of a run, one dict for each epoch."""
        with self._database.reading() as connection:
            return loading.metrics(connection, self._study, run)

    def checkpoints(self, run: int | None = None) -> tuple[StoredCheckpoint, ...]:
        """Checkpoints that are kept, oldest first."""
        with self._database.reading() as connection:
            return checkpoints.kept(connection, self._study, run)

    def events(self, after: int = 0, most: int = 1000) -> tuple[Event, ...]:
        """Events with a number greater than `after`, oldest first."""
        with self._database.reading() as connection:
            return events.listed(connection, self._study, after, most)

    def leases(self) -> tuple[LeaseState, ...]:
        """Leases that are held, and those of pending decisions that nobody holds."""
        with self._database.reading() as connection:
            return leases.states(connection, self._study)

    def last_holder(self, run: int) -> Process | None:
        """Which process holds the lease of a run, or held it last."""
        with self._database.reading() as connection:
            return next((lease.holder for lease in leases.states(connection, self._study, run)), None)

    # Leases.

    def permission(self, watcher: Watcher) -> Lease | None:
        """The lease to decide, if it can be had now; else None: ask again, with the same watcher."""
        with self._database.reading() as connection:
            seen = leases.states(connection, self._study, DECISIONS)
        if not seen:
            raise StudyError("the study was deleted")
        return self._take(seen[0], watcher)

    def take_over(self, watcher: Watcher) -> Committed | None:
        """A pending decision whose worker is gone, with a new lease to carry it out; None where there is none."""
        for seen in self.leases():
            lease = None if seen.run == DECISIONS or not seen.decision else self._take(seen, watcher)
            if lease is not None:
                return Committed(self.decision(lease.decision).decision, lease)
        return None

    def _take(self, seen: LeaseState, watcher: Watcher) -> Lease | None:
        if not watcher.may_take(self.uid, seen):
            return None
        with self._database.writing() as connection:
            return leases.take(connection, self._study, seen, watcher.here)

    def beat(self, lease: Lease) -> None:
        """Show that the holder lives. Raises LeaseLost."""
        with self._database.writing() as connection:
            leases.beat(connection, self._study, lease)

    def release(self, lease: Lease) -> None:
        """Give a lease back. A decision that is not closed stays pending, for anybody to take over at once."""
        with self._database.writing() as connection:
            leases.release(connection, self._study, lease)

    # Deciding.

    def commit(
        self,
        permit: Lease,
        proposal: Proposal,
        basis: int,
        sampler_state: Any = None,
        keep_permit: bool = False,
        closing: Lease | None = None,
    ) -> Committed:
        """Commit a decision, the lease of its run (for this process) and the sampler state after it, together.

        `permit` is the lease to decide, given back by this unless `keep_permit`; `basis` is the change of the snapshot
        that was decided on; `closing` is the lease of a decision, wholly recorded, that ends as told with this one.
        Raises LeaseLost where another process decides by now: load again and ask for permission.
        """
        base, here = None, Process.current()  # before the lock is taken
        with self._changing(permit, closing) as (connection, head):
            if closing is not None:
                recording.close(connection, head, closing, "told")
            committed = deciding.commit(connection, head, proposal, basis, here)
            if sampler_state is not None:
                base, text = self._memory.row(head.decisions, sampler_state)
                sampler.write(connection, self._study, head.decisions, base, text)
            if not keep_permit:
                leases.release(connection, self._study, permit)
        if sampler_state is not None:
            self._memory.keep(committed.decision.number, sampler_state, base)
        return committed

    # Training.

    def record(
        self,
        lease: Lease,
        report: Report | None = None,
        checkpoint: NewCheckpoint | None = None,
        close: Closing | None = None,
        replaced: Sequence[int] = (),
    ) -> Recorded:
        """Record losses, the checkpoint that belongs to them, and the end of the decision, together.

        `close`: "told" (what was granted but not trained is given back), "diverged", "interrupted", "out_of_memory" or
        "failed"; None while training goes on. `replaced`: numbers of the run's checkpoints that go with this; remove
        their files afterwards. Raises LeaseLost, or TellError; then nothing is recorded.
        """
        with self._database.writing() as connection:
            return recording.record(connection, self._study, lease, report, checkpoint, close, replaced)

    def add_run(
        self, config: Config, losses: Sequence[float], seconds: Sequence[float] = (), diverged: bool = False
    ) -> int:
        """A curve from elsewhere, as evidence; returns the number of its run."""
        [number] = self.add_runs([(config, Report(1, tuple(losses), tuple(seconds)), diverged)])
        return number

    def add_runs(self, curves: Iterable[tuple[Config, Report, bool]]) -> list[int]:
        """Curves from elsewhere and whether each diverged, all or none; returns the numbers of their runs."""
        with self._changing() as (connection, head):
            return [recording.add_run(connection, head, *curve) for curve in curves]

    def drop_checkpoints(
        self, numbers: Iterable[int], why: str, holder: Lease | None = None
    ) -> tuple[StoredCheckpoint, ...]:
        """Mark checkpoints as replaced, evicted or damaged; remove the files of those returned, and only then.

        Those of runs under a lease stay, unless `holder` is that lease.
        """
        with self._changing(holder) as (connection, head):
            return checkpoints.drop(connection, head, numbers, why, holder.run if holder else None)

    # Tags, wishes and events.

    def tag(self, tags: Iterable[str]) -> None:
        """Put tags on the study, in place of those that it has."""
        self._remark(definitions.TAGS, definitions.checked_tags(tags))

    def set_disk_budget(self, gb: float | None) -> None:
        """Say how much room the checkpoints may take, for those who look; their keepers see to it."""
        if self.disk_budget() != gb:
            self._remark(definitions.DISK, gb)

    def _remark(self, key: str, value: object) -> None:
        """Change an entry of the definition on which no decision depends."""
        with self._changing() as (connection, head):
            defining.remark(connection, head, key, value)

    def amend(self, changes: Definition) -> None:
        """Change entries of the definition, such as the budget: a new version, which workers follow from then on."""
        with self._database.writing() as connection:
            head = heads.lock(connection, self._study)
            defining.amend(connection, head, self.name, defining.current(connection, head) | dict(changes))

    def enqueue(self, config: Config, to_epoch: int = 1) -> int:
        """Wish that a configuration be started; returns the wish's number."""
        with self._changing() as (connection, head):
            return wishes.add(connection, head, None, config, to_epoch)

    def thaw(self, run: int, to_epoch: int) -> int:
        """Wish that a run be thawed; returns the wish's number."""
        with self._changing() as (connection, head):
            return wishes.add(connection, head, run, None, to_epoch)

    def drop_wish(self, number: int) -> None:
        """Take a wish from the queue that cannot be fulfilled."""
        with self._changing() as (connection, head):
            wishes.close(connection, head, number)

    def add_event(
        self,
        kind: str,
        text: str,
        run: int | None = None,
        epoch: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Write an event."""
        with self._changing() as (connection, head):
            events.add(connection, head, documents.printable(kind), text, run, epoch, details)

    @contextlib.contextmanager
    def _changing(self, lease: Lease | None = None, ending: Lease | None = None) -> Iterator[tuple[Connection, Head]]:
        """One transaction that changes the study, under a lease if one is needed; another lease may end with it."""
        with self._database.writing() as connection:
            if lease is not None:
                leases.beat(connection, self._study, lease)
            if ending is not None:  # before the study's row is locked, as everywhere
                leases.end(connection, self._study, ending)
            head = heads.lock(connection, self._study)
            yield connection, head
            heads.advance(connection, head)
