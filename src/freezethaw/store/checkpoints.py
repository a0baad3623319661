"""Records of checkpoints: where each lies, its content hash, its size, and whether it is still kept."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, insert, or_, select, update

from freezethaw.errors import StoreError
from freezethaw.store import events
from freezethaw.store.heads import Head
from freezethaw.store.records import NewCheckpoint, StoredCheckpoint
from freezethaw.store.tables import checkpoints, leases

GONE = ("replaced", "evicted", "damaged")


def insert_row(connection: Connection, head: Head, run: int, last: int, new: NewCheckpoint) -> None:
    """Record a checkpoint of an epoch that is recorded itself."""
    if not 1 <= new.epoch <= last:
        raise StoreError(f"a checkpoint of epoch {new.epoch} cannot be recorded: run {run} is at epoch {last}")
    head.checkpoints += 1
    row = {"study": head.study, "number": head.checkpoints, "run": run, "epoch": new.epoch, "place": new.place}
    row |= {"sha256": new.sha256, "bytes": new.bytes, "state": "kept", "change": head.change}
    row["created"] = head.change
    connection.execute(insert(checkpoints).values(row))


def kept(
    connection: Connection, study: int, run: int | None = None, at: int | None = None
) -> tuple[StoredCheckpoint, ...]:
    """The checkpoints that are there, oldest first; or those that were there at an earlier change."""
    query = select(checkpoints).where(checkpoints.c.study == study)
    if at is None:
        query = query.where(checkpoints.c.state == "kept")
    else:
        query = query.where(checkpoints.c.created <= at, or_(checkpoints.c.state == "kept", checkpoints.c.change > at))
    if run is not None:
        query = query.where(checkpoints.c.run == run)
    return tuple(
        StoredCheckpoint(r.number, r.run, r.epoch, r.place, r.sha256, r.bytes, r.state)
        for r in connection.execute(query.order_by(checkpoints.c.number))
    )


def drop(
    connection: Connection, head: Head, numbers: Iterable[int], why: str, holder: int | None
) -> tuple[StoredCheckpoint, ...]:
    """Mark checkpoints as gone, before their files are removed. Those of leased runs stay, but for the holder's own."""
    if why not in GONE:
        raise StoreError(f"a checkpoint goes because it is one of {', '.join(GONE)}, not {why!r}")
    query = select(leases.c.run).where(leases.c.study == head.study, leases.c.decision > 0)
    leased = {row.run for row in connection.execute(query)} - {holder}
    wanted = set(numbers)
    gone = tuple(c for c in kept(connection, head.study) if c.number in wanted and c.run not in leased)
    for record in gone:
        where = (checkpoints.c.study == head.study, checkpoints.c.number == record.number)
        connection.execute(update(checkpoints).where(*where).values(state=why, change=head.change))
        if why != "replaced":
            text = f"the checkpoint of run {record.run} at epoch {record.epoch} was {why}"
            details = {"place": record.place, "bytes": record.bytes}
            events.add(connection, head, f"checkpoint {why}", text, record.run, record.epoch, details)
    return gone
