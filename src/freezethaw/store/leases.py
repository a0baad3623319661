"""Rows of leases: who may advance a run, and who may decide; and the queue of those who wait to decide.

Tokens only grow, and no wall clock is compared.

A lease has a heartbeat counter. A process that has seen the counter unchanged for the lease time, on its own monotonic
clock, may take the lease over with the next token (`Watcher`). A holder that is known to be dead loses the lease at
once. A write shows its token, and an old token is refused in the same transaction: a worker that was suspended cannot
write.

Locks are taken in this order everywhere: decision lease, lease of a run, row of the study.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import BigInteger, Connection, bindparam, delete, func, insert, select, update

from freezethaw.errors import StudyError
from freezethaw.records import Lease
from freezethaw.store import rows, rules
from freezethaw.store.database import Database
from freezethaw.store.storage import DECIDING, LeaseState, Process, Watcher
from freezethaw.store.tables import leases, queue

PAUSE = 0.02  # seconds between two checks of the queue; processes further back check less often
LONGEST_PAUSE = 2.0
TICKET_TIMEOUT = 5.0  # seconds that a free lease waits for the process that is next
NEAREST = 4  # tickets that are read first
LAST = 2**62  # after all tickets

_AHEAD = (queue.c.study == bindparam("study"), queue.c.ticket < bindparam("before", type_=BigInteger))
_FIRST = select(queue).where(*_AHEAD).order_by(queue.c.ticket)
_NEAREST = _FIRST.limit(NEAREST)
_COUNT = select(func.count()).select_from(queue).where(*_AHEAD)


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


def add_decision_lease(connection: Connection, study: int) -> None:
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
    """Release the lease. The decision of a run stays pending, and any process may take it over at once."""
    _change(connection, study, lease, _RELEASE)


def end(connection: Connection, study: int, lease: Lease) -> None:
    """Release the lease because the decision is closed."""
    _change(connection, study, lease, _END)


def _change(connection: Connection, study: int, lease: Lease, change: object) -> None:
    mine = {"of_study": study, "of_run": lease.run, "of_token": lease.token}
    if connection.execute(change, mine).rowcount == 0:  # type: ignore[call-overload]
        found = states(connection, study, lease.run)
        raise rules.lost_lease(lease, found[0] if found else None)


def _fields(decision: int, holder: Process) -> dict[str, object]:
    who = {"host": holder.host, "boot": holder.boot, "pid": holder.pid, "started": holder.started}
    return {"beat": 0, "decision": decision, **who}


# The queue of those who wait for the decision lease: it is granted in the order of asking.
#
# A process that finds the lease held takes a ticket. It then checks repeatedly whether the lease is free and all
# earlier tickets are gone. Tickets need no heartbeat: the process that is next takes a free lease within a fraction of
# a second. If it does not, it is dead or suspended, and its ticket is removed after a while. Tickets of processes that
# are known to be dead do not count.


def next_ticket(connection: Connection, study: int, here: Process) -> int | None:
    """The first ticket; those of processes that are known to be dead do not count."""
    for most in (NEAREST, None):
        tickets = _tickets(connection, study, most=most)
        living = next((ticket for ticket, holder in tickets if not holder.is_dead(here)), None)
        if living is not None or len(tickets) != most:
            return living
    return None


def take_if_nobody_waits(connection: Connection, study: int, watcher: Watcher) -> Lease | None:
    """The decision lease, within another transaction, if it is free and the queue is empty; else None."""
    seen = states(connection, study, DECIDING)
    if not seen or seen[0].held or next_ticket(connection, study, watcher.here) is not None:
        return None
    return take(connection, study, seen[0], watcher.here)


def enter_queue(connection: Connection, study: int, here: Process) -> int:
    """Take a ticket; remove those of dead processes."""
    for ticket, holder in _tickets(connection, study):
        if holder.is_dead(here):
            leave_queue(connection, ticket)
    row = {"study": study, "host": here.host, "boot": here.boot, "pid": here.pid, "started": here.started}
    return int(connection.execute(insert(queue).values(row).returning(queue.c.ticket)).scalar_one())


def leave_queue(connection: Connection, ticket: int) -> None:
    """Remove a ticket."""
    connection.execute(delete(queue).where(queue.c.ticket == ticket))


def take_as_next(connection: Connection, study: int, ticket: int, seen: LeaseState, here: Process) -> Lease | None:
    """Take the decision lease, as it was `seen`, and leave the queue; None if the lease has changed since."""
    lease = take(connection, study, seen, here)
    if lease is not None:
        leave_queue(connection, ticket)
    return lease


def wait_in_queue(
    database: Database, study: int, ticket: int, watcher: Watcher, pause: Callable[[float], object]
) -> LeaseState:
    """Return when this ticket is next and the decision lease, as it is returned, may be taken."""
    ticket_timeout = _TicketTimeout()
    while True:
        seen, ahead, count = database.read(lambda connection: _look(connection, study, ticket, watcher.here))
        if not ahead and watcher.may_take((study, database.outages), seen):
            return seen
        if ahead and ticket_timeout.expired(seen, ahead[0]):
            database.write(lambda connection, gone=ahead[0]: leave_queue(connection, gone), repeatable=True)  # type: ignore[misc]
        else:
            pause(min(PAUSE * (1 + 2 * count), LONGEST_PAUSE))


class _TicketTimeout:
    """Detects that the lease is free but the process that is next does not take it."""

    def __init__(self) -> None:
        self._seen: tuple[int, int, int] | None = None  # token and beat of the lease, and the first ticket
        self._since = 0.0

    def expired(self, lease: LeaseState, following: int) -> bool:
        now = time.monotonic()
        seen = None if lease.held else (lease.token, lease.beat, following)
        if seen is None or seen != self._seen:
            self._seen, self._since = seen, now
        return seen is not None and now - self._since > TICKET_TIMEOUT


def _look(connection: Connection, study: int, ticket: int, here: Process) -> tuple[LeaseState, list[int], int]:
    """The decision lease, the nearest earlier tickets of living processes, and the number of earlier tickets.

    Only the nearest tickets are checked for dead processes: the check is frequent, and there may be many tickets.
    """
    seen = states(connection, study, DECIDING)
    if not seen:
        raise StudyError("the study was deleted")
    for most in (NEAREST, None):
        earlier = _tickets(connection, study, ticket, most)
        living = [number for number, holder in earlier if not holder.is_dead(here)]
        if len(earlier) != most:
            return seen[0], living, len(living)
        if living:
            break
    return seen[0], living, int(connection.execute(_COUNT, {"study": study, "before": ticket}).scalar_one())


def _tickets(
    connection: Connection, study: int, before: int = LAST, most: int | None = None
) -> list[tuple[int, Process]]:
    query = _FIRST if most is None else _NEAREST
    query = query.params(study=study, before=before)
    return [(r.ticket, Process(r.host, r.boot, r.pid, r.started)) for r in connection.execute(query)]
