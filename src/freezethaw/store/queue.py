"""The queue of those who wait for the decision lease: it is granted in the order of asking.

Who finds the lease held takes a ticket and looks again and again whether the lease is free and all earlier tickets are
gone. A ticket needs no heartbeat: who is next takes a free lease within a fraction of a second, so one that does not
is dead or stopped, and is passed over after a while. Tickets of processes that are known to be dead do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import BigInteger, Connection, bindparam, delete, func, insert, select

from freezethaw.errors import StudyError
from freezethaw.records import Lease
from freezethaw.store import leases
from freezethaw.store.database import Database
from freezethaw.store.processes import Process
from freezethaw.store.storage import DECIDING, LeaseState, Watcher
from freezethaw.store.tables import queue

PAUSE = 0.02  # seconds between two looks of who is next; those behind look less often
LONGEST_PAUSE = 2.0
PATIENCE = 5.0  # seconds that a free lease is left to who is next
NEAREST = 4  # tickets that are read first
LAST = 2**62  # after all tickets

_AHEAD = (queue.c.study == bindparam("study"), queue.c.ticket < bindparam("before", type_=BigInteger))
_FIRST = select(queue).where(*_AHEAD).order_by(queue.c.ticket)
_NEAREST = _FIRST.limit(NEAREST)
_COUNT = select(func.count()).select_from(queue).where(*_AHEAD)


def first(connection: Connection, study: int, here: Process) -> int | None:
    """The ticket that is next; those of processes that are surely dead do not count."""
    for most in (NEAREST, None):
        tickets = _tickets(connection, study, most=most)
        living = next((ticket for ticket, holder in tickets if not holder.is_dead(here)), None)
        if living is not None or len(tickets) != most:
            return living
    return None


def take_if_nobody_waits(connection: Connection, study: int, watcher: Watcher) -> Lease | None:
    """The decision lease within another transaction, if it is free: else it is waited for later, outside."""
    seen = leases.states(connection, study, DECIDING)
    if not seen or seen[0].held or first(connection, study, watcher.here) is not None:
        return None
    return leases.take(connection, study, seen[0], watcher.here)


def enter(connection: Connection, study: int, here: Process) -> int:
    """Take a ticket, and remove those of the dead."""
    for ticket, holder in _tickets(connection, study):
        if holder.is_dead(here):
            leave(connection, ticket)
    row = {"study": study, "host": here.host, "boot": here.boot, "pid": here.pid, "started": here.started}
    return int(connection.execute(insert(queue).values(row).returning(queue.c.ticket)).scalar_one())


def leave(connection: Connection, ticket: int) -> None:
    """Remove a ticket."""
    connection.execute(delete(queue).where(queue.c.ticket == ticket))


def take(connection: Connection, study: int, ticket: int, seen: LeaseState, here: Process) -> Lease | None:
    """Take the decision lease, as it was `seen`, and leave the queue; None if the lease has changed since."""
    lease = leases.take(connection, study, seen, here)
    if lease is not None:
        leave(connection, ticket)
    return lease


def wait(database: Database, study: int, ticket: int, watcher: Watcher, pause: Callable[[float], object]) -> LeaseState:
    """Return when this ticket is next and the decision lease, as it is returned, may be taken."""
    passed_over = _PassedOver()
    while True:
        seen, ahead, count = database.read(lambda connection: _look(connection, study, ticket, watcher.here))
        if not ahead and watcher.may_take((study, database.outages), seen):
            return seen
        if ahead and passed_over.should_be(seen, ahead[0]):
            database.write(lambda connection, gone=ahead[0]: leave(connection, gone), repeatable=True)  # type: ignore[misc]
        else:
            pause(min(PAUSE * (1 + 2 * count), LONGEST_PAUSE))


class _PassedOver:
    """Notices that the lease is free, and that the one who is next does not take it."""

    def __init__(self) -> None:
        self._seen: tuple[int, int, int] | None = None  # token and beat of the lease, and who is next
        self._since = 0.0

    def should_be(self, lease: LeaseState, following: int) -> bool:
        now = time.monotonic()
        seen = None if lease.held else (lease.token, lease.beat, following)
        if seen is None or seen != self._seen:
            self._seen, self._since = seen, now
        return seen is not None and now - self._since > PATIENCE


def _look(connection: Connection, study: int, ticket: int, here: Process) -> tuple[LeaseState, list[int], int]:
    """The decision lease, the nearest tickets of the living that are ahead, and how many are ahead in all.

    Whether a process lives is looked up for the nearest only: those behind look often, and there may be many.
    """
    seen = leases.states(connection, study, DECIDING)
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
