"""Rows of a study: its counters, which every write locks and advances, events, requests, checkpoints and samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, or_, select, update

from freezethaw.errors import StoreError, StudyError
from freezethaw.records import Checkpoint, Event, Request
from freezethaw.store import documents, rules
from freezethaw.store.tables import checkpoints, events, leases, requests, runs, sampler_states, studies

# Counters.


@dataclass
class Head:
    """Counters of a study within one transaction; `change` is the one that this transaction makes."""

    study: int
    change: int
    definition: int
    max_epochs: int
    runs: int
    decisions: int
    requests: int
    checkpoints: int


_NAMES = ("change", "definition", "max_epochs", "runs", "decisions", "requests", "checkpoints")
_READ = select(*(studies.c[name] for name in _NAMES)).where(studies.c.id == bindparam("id"))
_LOCK = _READ.with_for_update()
_WRITE = (
    update(studies)
    .where(studies.c.id == bindparam("of_study"))
    .values({name: bindparam(f"new_{name}") for name in _NAMES})
)


def lock_study(connection: Connection, study: int) -> Head:
    """Begin to change a study: writes to one study happen one after the other.

    A write that shows a lease locks the row of the lease first and that of the study after it, always in this order.
    """
    row = connection.execute(_LOCK, {"id": study}).one_or_none()
    if row is None:
        raise StudyError("the study was deleted")
    change, *rest = row
    return Head(study, change + 1, *rest)


def read_head(connection: Connection, study: int) -> Head:
    """The counters as they are."""
    row = connection.execute(_READ, {"id": study}).one_or_none()
    if row is None:
        raise StudyError("the study was deleted")
    return Head(study, *row)


def advance(connection: Connection, head: Head) -> None:
    """Write the counters: the last thing of a transaction."""
    connection.execute(_WRITE, {"of_study": head.study, **{f"new_{name}": getattr(head, name) for name in _NAMES}})


# Events.


def add_event(
    connection: Connection,
    head: Head,
    kind: str,
    text: str,
    run: int | None = None,
    epoch: int | None = None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Insert one event."""
    row = {"study": head.study, "change": head.change, "kind": kind, "run": run, "epoch": epoch}
    row |= {"text": documents.printable(text), "details": documents.dump(dict(details or {})), "at": documents.now()}
    connection.execute(insert(events).values(row))


def is_known(connection: Connection, head: Head, kind: str, details: Mapping[str, Any] | None) -> bool:
    """Whether the newest event of this kind has the same details."""
    query = select(events.c.details).where(events.c.study == head.study, events.c.kind == kind)
    newest = connection.execute(query.order_by(events.c.id.desc()).limit(1)).scalar()
    return newest is not None and bool(newest == documents.dump(dict(details or {})))


def newest_events(connection: Connection, study: int, last: int) -> tuple[Event, ...]:
    """The last events, oldest first."""
    query = select(events).where(events.c.study == study).order_by(events.c.id.desc()).limit(last)
    return tuple(_event(row) for row in reversed(connection.execute(query).all()))


def events_after(connection: Connection, study: int, after: int = 0, most: int = 1000) -> tuple[Event, ...]:
    """Events with a number greater than `after`, oldest first."""
    query = select(events).where(events.c.study == study, events.c.id > after).order_by(events.c.id).limit(most)
    return tuple(_event(row) for row in connection.execute(query))


def _event(row: Row[Any]) -> Event:
    return Event(row.id, row.kind, row.text, row.run, row.epoch, documents.load(row.details), row.at)


# Requests of the user or planned by a decision: a queue that comes before the choice of the policy.


def add_request(connection: Connection, head: Head, wanted: Request) -> int:
    """Append a request; returns its number (that of `wanted` is ignored)."""
    epoch = 0
    if wanted.run is not None:
        where = (runs.c.study == head.study, runs.c.run == wanted.run)
        found = connection.execute(select(runs.c.epochs).where(*where)).scalar()
        if found is None:
            raise rules.unknown_run(wanted.run, head.runs)
        epoch = found
    rules.check_request(epoch, wanted.to_epoch, head.max_epochs)
    head.requests += 1
    config = documents.dump(dict(wanted.config)) if wanted.run is None else None
    row = {"study": head.study, "number": head.requests, "run": wanted.run, "config": config}
    row |= {"to_epoch": wanted.to_epoch, "reason": documents.printable(wanted.reason) or None}
    connection.execute(insert(requests).values(**row, created=head.change))
    return head.requests


def close_request(connection: Connection, head: Head, number: int) -> None:
    """Close a request that is fulfilled, or that can no longer be."""
    waiting = (requests.c.study == head.study, requests.c.number == number, requests.c.closed.is_(None))
    if connection.execute(update(requests).where(*waiting).values(closed=head.change)).rowcount == 0:
        raise rules.not_waiting(number)


# Checkpoints.


def add_checkpoint(connection: Connection, head: Head, run: int, epoch: int, new: Checkpoint) -> None:
    """Record a checkpoint of a run that is at `epoch`."""
    rules.check_checkpoint(new, run, epoch)
    head.checkpoints += 1
    row = {"study": head.study, "number": head.checkpoints, "run": run, "epoch": new.epoch, "place": new.place}
    row |= {"sha256": new.sha256, "bytes": new.bytes, "state": "kept", "created": head.change, "change": head.change}
    connection.execute(insert(checkpoints).values(row))


def existing_checkpoints(
    connection: Connection, study: int, run: int | None = None, at: int | None = None
) -> tuple[Checkpoint, ...]:
    """Checkpoints that exist, or existed at an earlier change, oldest first."""
    query = select(checkpoints).where(checkpoints.c.study == study)
    if at is None:
        query = query.where(checkpoints.c.state == "kept")
    else:
        query = query.where(checkpoints.c.created <= at, or_(checkpoints.c.state == "kept", checkpoints.c.change > at))
    if run is not None:
        query = query.where(checkpoints.c.run == run)
    return tuple(
        Checkpoint(r.run, r.epoch, r.place, r.sha256, r.bytes, r.number)
        for r in connection.execute(query.order_by(checkpoints.c.number))
    )


def drop_checkpoints(
    connection: Connection, head: Head, numbers: Iterable[int], why: str, holder: int | None
) -> tuple[Checkpoint, ...]:
    """Mark checkpoints as gone, before their files are removed. Those of leased runs stay, except the holder's."""
    rules.check_drop_reason(why)
    query = select(leases.c.run).where(leases.c.study == head.study, leases.c.decision > 0)
    leased = {row.run for row in connection.execute(query)} - {holder}
    wanted = set(numbers)
    gone = tuple(c for c in existing_checkpoints(connection, head.study) if c.number in wanted and c.run not in leased)
    for record in gone:
        where = (checkpoints.c.study == head.study, checkpoints.c.number == record.number)
        connection.execute(update(checkpoints).where(*where).values(state=why, change=head.change))
        if why != "replaced":
            add_event(connection, head, *rules.dropped(record, why))
    return gone


# Hyperparameter samples of each decision, as plain numbers.
#
# They are written as a difference to the samples before if this process wrote those, and in full every `FULL_EVERY`
# rows: a long study stays small, and any samples are read from few rows. From one decision to the next one sample moves
# and the weights change. A difference lists the values that changed with their paths; applied to the old document it
# gives the new one, bit for bit.


FULL_EVERY = 32
LARGEST = 4_000_000  # characters of one row


Place = list[str | int]


class WrittenSamples:
    """The samples that this process wrote last, so that the next ones can be written as a difference."""

    def __init__(self) -> None:
        self._last: tuple[int, Any, int] | None = None  # decision, samples, number of differences since a full row

    def row(self, decision: int, state: Any) -> tuple[int | None, str]:
        """Base and document to write. The base may be the samples of any earlier decision in the store."""
        last = self._last
        base = None if last is None or last[2] + 1 >= FULL_EVERY else last
        text = documents.dump(state if base is None else difference(base[1], state))
        if len(text) > LARGEST:
            raise StoreError(f"the samples of decision {decision} have {len(text)} characters, more than {LARGEST}")
        return (None if base is None else base[0]), text

    def remember(self, decision: int, state: Any, base: int | None) -> None:
        """Remember what was committed."""
        depth = 0 if base is None or self._last is None else self._last[2] + 1
        self._last = decision, documents.load(documents.dump(state)), depth


def write_samples(connection: Connection, study: int, decision: int, base: int | None, text: str) -> None:
    """Write the samples of one decision."""
    connection.execute(insert(sampler_states).values(study=study, decision=decision, base=base, document=text))


def _newest_samples(connection: Connection, study: int, before: int | None = None) -> int | None:
    """The last decision (before another one) that has samples."""
    query = select(sampler_states.c.decision).where(sampler_states.c.study == study)
    if before is not None:
        query = query.where(sampler_states.c.decision < before)
    found = connection.execute(query.order_by(sampler_states.c.decision.desc()).limit(1)).scalar()
    return None if found is None else int(found)


def read_samples(connection: Connection, study: int, before: int | None = None) -> Any:
    """The newest samples, or those that decision `before` started from; None if there are none."""
    decision = _newest_samples(connection, study, before)
    if decision is None:
        return None
    changes = []
    while True:
        where = (sampler_states.c.study == study, sampler_states.c.decision == decision)
        row = connection.execute(select(sampler_states.c.base, sampler_states.c.document).where(*where)).one_or_none()
        if row is None or (row.base is not None and row.base >= decision):
            raise StoreError(f"the samples of decision {decision} are damaged")
        if row.base is None:
            state = documents.load(row.document)
            break
        changes.append(documents.load(row.document))
        decision = row.base
    for change in reversed(changes):
        state = apply(state, change)
    return state


def difference(old: Any, new: Any) -> list[list[Any]]:
    """`[path, value]` of everything in `new` that is not in `old`; if shapes differ, of the whole branch."""
    found: list[list[Any]] = []
    _compare(old, new, [], found)
    return found


def _compare(old: Any, new: Any, path: Place, found: list[list[Any]]) -> None:
    if isinstance(old, dict) and isinstance(new, dict) and list(old) == list(new):
        for key in new:
            _compare(old[key], new[key], [*path, key], found)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for place, (before, after) in enumerate(zip(old, new, strict=True)):
            _compare(before, after, [*path, place], found)
    elif type(old) is not type(new) or repr(old) != repr(new):  # repr: NaN is NaN, -0.0 is not 0.0, 1 is not True
        found.append([path, new])


def apply(old: Any, changes: list[list[Any]]) -> Any:
    """The document that `changes` make of `old`, which is not changed."""
    root: Any = [_copied(old)]
    for path, value in changes:
        parent, place = root, [0, *path]
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = value
    return root[0]


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value
