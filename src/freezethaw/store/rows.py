"""Rows of the smaller tables: events, requests and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update

from freezethaw.errors import StudyError
from freezethaw.records import Checkpoint, Event, Request
from freezethaw.store import documents, rules
from freezethaw.store.heads import Head
from freezethaw.store.tables import checkpoints, events, leases, requests, runs

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
        raise StudyError(f"request {number} is not waiting")


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
    rules.check_gone(why)
    query = select(leases.c.run).where(leases.c.study == head.study, leases.c.decision > 0)
    leased = {row.run for row in connection.execute(query)} - {holder}
    wanted = set(numbers)
    gone = tuple(c for c in existing_checkpoints(connection, head.study) if c.number in wanted and c.run not in leased)
    for record in gone:
        where = (checkpoints.c.study == head.study, checkpoints.c.number == record.number)
        connection.execute(update(checkpoints).where(*where).values(state=why, change=head.change))
        if why != "replaced":
            text = f"the checkpoint of run {record.run} at epoch {record.epoch} was {why}"
            details = {"place": record.place, "bytes": record.bytes}
            add_event(connection, head, f"checkpoint {why}", text, record.run, record.epoch, details)
    return gone
