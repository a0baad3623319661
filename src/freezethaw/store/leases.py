"""Leases: who may advance a run, who may decide. Tokens only grow, and no wall clock is compared.

A lease has a heartbeat counter. Whoever has itself seen the counter unchanged for the lease time, on its own monotonic
clock, may take the lease over with the next token. A holder that is known to be dead loses it at once. A write shows
its token, and an old token is refused in the same transaction: a worker that slept too long can do no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from sqlalchemy import Connection, bindparam, insert, select, update

from freezethaw.errors import LeaseLost
from freezethaw.store import events, heads
from freezethaw.store.processes import Process
from freezethaw.store.records import Lease, LeaseState
from freezethaw.store.tables import DECISIONS, leases

LEASE_SECONDS = 60.0


class Watcher:
    """One process's own observations of heartbeats. Keep one and ask it again and again."""

    def __init__(
        self,
        seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        here: Process | None = None,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self.here = here or Process.current()
        self._seen: dict[Hashable, tuple[int, int, float]] = {}  # token, beat, when first seen so

    def may_take(self, study: Hashable, lease: LeaseState) -> bool:
        """Whether the lease is free, its holder dead, or its heart silent for as long as this watcher has to wait."""
        if not lease.held or lease.holder.is_dead(self.here):
            return True
        now, key = self._clock(), (study, lease.run)
        token, beat, since = self._seen.get(key, (-1, -1, now))
        if (token, beat) != (lease.token, lease.beat):
            self._seen[key] = lease.token, lease.beat, now
            return False
        return now - since >= self.seconds


def first(connection: Connection, study: int) -> None:
    """The lease to decide, which nobody holds yet."""
    connection.execute(insert(leases).values(study=study, run=DECISIONS, token=0, held=False, **_fields(0, _NOBODY)))


def grant(connection: Connection, study: int, run: int, decision: int, here: Process) -> Lease:
    """A lease of a run that nobody holds, under the next token; called where the decision is committed."""
    token = connection.execute(select(leases.c.token).where(leases.c.study == study, leases.c.run == run)).scalar()
    if token is None:
        connection.execute(insert(leases).values(study=study, run=run, token=1, held=True, **_fields(decision, here)))
        return Lease(run, 1, decision)
    changed = {"token": token + 1, "held": True, **_fields(decision, here)}
    connection.execute(update(leases).where(leases.c.study == study, leases.c.run == run).values(changed))
    return Lease(run, token + 1, decision)


def states(connection: Connection, study: int, run: int | None = None) -> tuple[LeaseState, ...]:
    """The lease of one run, or all that are held or wait to be taken over."""
    query = select(leases).where(leases.c.study == study)
    query = query.where(leases.c.held | (leases.c.decision > 0)) if run is None else query.where(leases.c.run == run)
    return tuple(
        LeaseState(
            row.run,
            row.token,
            row.beat,
            bool(row.held),
            row.decision,
            Process(row.host, row.boot, row.pid, row.started),
        )
        for row in connection.execute(query.order_by(leases.c.run))
    )


def take(connection: Connection, study: int, seen: LeaseState, here: Process) -> Lease | None:
    """Take a lease over with the next token; None if its holder moved meanwhile, or another was quicker."""
    row = {"token": seen.token + 1, "held": True, **_fields(seen.decision, here)}
    same = (leases.c.token == seen.token, leases.c.beat == seen.beat, leases.c.held == seen.held)
    found = connection.execute(
        update(leases).where(leases.c.study == study, leases.c.run == seen.run, *same).values(row)
    )
    if found.rowcount == 0:
        return None
    if seen.held:
        head = heads.lock(connection, study)
        what = "the lease to decide" if seen.run == DECISIONS else f"the lease of run {seen.run}"
        text = f"{what} was taken over from {seen.holder}, which is dead or silent"
        details = {"token": seen.token + 1, "holder": str(seen.holder)}
        events.add(connection, head, "lease taken over", text, seen.run or None, details=details)
        heads.advance(connection, head)
    return Lease(seen.run, seen.token + 1, seen.decision)


def lock_all(connection: Connection, study: int) -> None:
    """Lock the rows of all leases, to delete them without a deadlock."""
    connection.execute(select(leases.c.run).where(leases.c.study == study).order_by(leases.c.run).with_for_update())


_MINE = (
    leases.c.study == bindparam("of_study"),
    leases.c.run == bindparam("of_run"),
    leases.c.token == bindparam("of_token"),
    leases.c.held,
)
_BEAT = update(leases).where(*_MINE).values(beat=leases.c.beat + 1)
_RELEASE = update(leases).where(*_MINE).values(held=False)
_END = update(leases).where(*_MINE).values(held=False, decision=0)


def beat(connection: Connection, study: int, lease: Lease) -> None:
    """Show that the holder lives; raises LeaseLost where it holds the lease no more."""
    _change(connection, study, lease, _BEAT)


def release(connection: Connection, study: int, lease: Lease) -> None:
    """Let go. The decision of a run stays pending, and anybody may take the run over at once."""
    _change(connection, study, lease, _RELEASE)


def end(connection: Connection, study: int, lease: Lease) -> None:
    """Let go because the decision is closed."""
    _change(connection, study, lease, _END)


def _change(connection: Connection, study: int, lease: Lease, change: object) -> None:
    mine = {"of_study": study, "of_run": lease.run, "of_token": lease.token}
    if connection.execute(change, mine).rowcount == 0:  # type: ignore[call-overload]
        raise _lost(connection, study, lease)


def _lost(connection: Connection, study: int, lease: Lease) -> LeaseLost:
    what = "the lease to decide" if lease.run == DECISIONS else f"the lease of run {lease.run}"
    found = states(connection, study, lease.run)
    if not found:
        return LeaseLost(f"{what} does not exist: the study was deleted, or the lease is of another one")
    now = found[0]
    if now.token == lease.token:
        return LeaseLost(f"{what} (token {lease.token}) was given back before; nothing more can be written under it")
    by = f"is held by {now.holder}" if now.held else "was given back since"
    return LeaseLost(
        f"{what} (token {lease.token}) was lost: token {now.token} {by}. This process was silent for too long; what it "
        "did since is not recorded"
    )


_NOBODY = Process("", "", 0, "")


def _fields(decision: int, holder: Process) -> dict[str, object]:
    who = {"host": holder.host, "boot": holder.boot, "pid": holder.pid, "started": holder.started}
    return {"beat": 0, "decision": decision, **who}
