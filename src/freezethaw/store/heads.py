"""The row of a study: locked by every write, so that writes to one study happen one after the other.

A write that shows a lease locks the row of the lease first and that of the study after it, always in this order.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select, update

from freezethaw.errors import StudyError
from freezethaw.store.tables import studies


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


def lock(connection: Connection, study: int) -> Head:
    """Begin to change a study."""
    row = connection.execute(_LOCK, {"id": study}).one_or_none()
    if row is None:
        raise StudyError("the study was deleted")
    change, *rest = row
    return Head(study, change + 1, *rest)


def read(connection: Connection, study: int) -> Head:
    """The counters as they are."""
    row = connection.execute(_READ, {"id": study}).one_or_none()
    if row is None:
        raise StudyError("the study was deleted")
    return Head(study, *row)


def advance(connection: Connection, head: Head) -> None:
    """Write the counters: the last thing of a transaction."""
    connection.execute(_WRITE, {"of_study": head.study, **{f"new_{name}": getattr(head, name) for name in _NAMES}})
