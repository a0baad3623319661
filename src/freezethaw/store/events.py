"""Events: what a person should hear of, in order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from freezethaw.store import documents
from freezethaw.store.heads import Head
from freezethaw.store.records import Event
from freezethaw.store.tables import events


def now() -> str:
    """The wall clock, for people only."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def add(
    connection: Connection,
    head: Head,
    kind: str,
    text: str,
    run: int | None = None,
    epoch: int | None = None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Write one event."""
    row = {"study": head.study, "change": head.change, "kind": kind, "run": run, "epoch": epoch}
    row |= {"text": documents.printable(text), "details": documents.dump(dict(details or {})), "at": now()}
    connection.execute(insert(events).values(row))


def newest(connection: Connection, study: int, last: int) -> tuple[Event, ...]:
    """The last events, oldest first."""
    query = select(events).where(events.c.study == study).order_by(events.c.id.desc()).limit(last)
    return tuple(_of_row(row) for row in reversed(connection.execute(query).all()))


def listed(connection: Connection, study: int, after: int = 0, most: int = 1000) -> tuple[Event, ...]:
    """Events with a number greater than `after`, oldest first."""
    query = select(events).where(events.c.study == study, events.c.id > after).order_by(events.c.id).limit(most)
    return tuple(_of_row(row) for row in connection.execute(query))


def _of_row(row: Row[Any]) -> Event:
    return Event(row.id, row.kind, row.text, row.run, row.epoch, documents.load(row.details), row.at)
