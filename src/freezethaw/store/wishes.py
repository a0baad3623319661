"""The user's own wishes, an ordered queue that comes before what the policy would choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update

from freezethaw.errors import StudyError
from freezethaw.store import documents
from freezethaw.store.heads import Head
from freezethaw.store.tables import runs, wishes


def add(connection: Connection, head: Head, run: int | None, config: Mapping[str, Any] | None, to_epoch: int) -> int:
    """Put a wish at the end of the queue: a configuration to start, or a run to thaw."""
    epoch = 0
    if run is not None:
        where = (runs.c.study == head.study, runs.c.run == run)
        found = connection.execute(select(runs.c.epochs).where(*where)).scalar()
        if found is None:
            raise StudyError(f"there is no run {run!r}; the study has runs 1 to {head.runs}")
        epoch = found
    if not epoch < to_epoch <= head.max_epochs:
        raise StudyError(f"cannot train to epoch {to_epoch}: it must lie in {epoch + 1} to {head.max_epochs}")
    head.wishes += 1
    document = None if config is None else documents.dump(dict(config))
    row = {"study": head.study, "number": head.wishes, "run": run, "config": document, "to_epoch": to_epoch}
    connection.execute(insert(wishes).values(**row, created=head.change))
    return head.wishes


def close(connection: Connection, head: Head, number: int) -> None:
    """Take a wish from the queue, because it is fulfilled or can no longer be."""
    waiting = (wishes.c.study == head.study, wishes.c.number == number, wishes.c.closed.is_(None))
    if connection.execute(update(wishes).where(*waiting).values(closed=head.change)).rowcount == 0:
        raise StudyError(f"wish {number} is not waiting")
