"""Rows of leases: who may advance a run, and who may decide. Tokens only grow, and no wall clock is compared.

A lease has a heartbeat counter. A process that has seen the counter unchanged for the lease time, on its own monotonic
clock, may take the lease over with the next token (`Watcher`). A holder that is known to be dead loses it at once. A
write shows its token, and an old token is refused in the same transaction: a worker that was suspended cannot write.

Locks are taken in this order everywhere: decision lease, lease of a run, row of the study.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, insert, select, update

from freezethaw.records import Lease
from freezethaw.store import rows, rules
from freezethaw.store.processes import Process
from freezethaw.store.storage import DECIDING, LeaseState
from freezethaw.store.tables import leases

_NOBODY = Process("", "", 0, "")
_MINE = (
    leases.c.study == bindparam("of_study"),
    leases.c.run == bindparam("of_run"),
    leases.c.token == bindparam("of_token"),
    leases.c.held,
)
_BEAT = update(leases).where(*_MINE).values(beat=leases.c.beat + 1)
_RELEASE = update(leases).where(*_MINE).values(held=False)
_END = update(leases).where(*_MINE).values(held=False, decision=0)


def first(connection: Connection, study: int) -> None:
    """The decision lease, which nobody holds yet."""
    connection.execute(insert(leases).values(study=study, run=DECIDING, token=0, held=False, **_fields(0, _NOBODY)))


def grant(connection: Connection, study: int, run: int, decision: int, here: Process) -> Lease:
    """A lease of a run that nobody holds, under the next token; called when the decision is committed."""
    token = connection.execute(select(leases.c.token).where(leases.c.study == study, leases.c.run == run)).scalar()
    if token is None:
        connection.execute(insert(leases).values(study=study, run=run, token=1, held=True, **_fields(decision, here)))
        return Lease(run, 1, decision)
    changed = {"token": token + 1, "held": True, **_fields(decision, here)}
    connection.execute(update(leases).where(leases.c.study == study, leases.c.run == run).values(changed))
    return Lease(run, token + 1, decision)


def states(connection: Connection, study: int, run: int | None = None) -> tuple[LeaseState, ...]:
    """The lease of one run, or all that are held or can be taken over."""
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
    """Take a lease with the next token; None if it has changed since it was `seen`."""
    row = {"token": seen.token + 1, "held": True, **_fields(seen.decision, here)}
    same = (leases.c.token == seen.token, leases.c.beat == seen.beat, leases.c.held == seen.held)
    found = connection.execute(
        update(leases).where(leases.c.study == study, leases.c.run == seen.run, *same).values(row)
    )
    if found.rowcount == 0:
        return None
    if seen.held:
        head = rows.lock_study(connection, study)
        rows.add_event(connection, head, "lease taken over", *rules.taken_over(seen))
        rows.advance(connection, head)
    return Lease(seen.run, seen.token + 1, seen.decision)


def lock_all(connection: Connection, study: int) -> None:
    """Lock the rows of all leases, to delete them without a deadlock."""
    connection.execute(select(leases.c.run).where(leases.c.study == study).order_by(leases.c.run).with_for_update())


def beat(connection: Connection, study: int, lease: Lease) -> None:
    """Advance the heartbeat counter; raises LeaseLost if the lease is no longer held."""
    _change(connection, study, lease, _BEAT)


def release(connection: Connection, study: int, lease: Lease) -> None:
    """Give the lease back. The decision of a run stays pending, and any process may take it over at once."""
    _change(connection, study, lease, _RELEASE)


def end(connection: Connection, study: int, lease: Lease) -> None:
    """Give the lease back because the decision is closed."""
    _change(connection, study, lease, _END)


def _change(connection: Connection, study: int, lease: Lease, change: object) -> None:
    mine = {"of_study": study, "of_run": lease.run, "of_token": lease.token}
    if connection.execute(change, mine).rowcount == 0:  # type: ignore[call-overload]
        found = states(connection, study, lease.run)
        raise rules.lost_lease(lease, found[0] if found else None)


def _fields(decision: int, holder: Process) -> dict[str, object]:
    who = {"host": holder.host, "boot": holder.boot, "pid": holder.pid, "started": holder.started}
    return {"beat": 0, "decision": decision, **who}
