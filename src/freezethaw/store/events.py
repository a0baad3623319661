"""Events: what a person should hear of, in order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select

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


def listed(connection: Connection, study: int, after: int = 0, most: int = 1000) -> tuple[Event, ...]:
    """Events with a number greater than `after`, oldest first."""
    query = select(events).where(events.c.study == study, events.c.id > after).order_by(events.c.id).limit(most)
    return tuple(
        Event(row.id, row.kind, row.text, row.run, row.epoch, documents.load(row.details), row.at)
        for row in connection.execute(query)
    )
