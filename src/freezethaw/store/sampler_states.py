"""Hyperparameter samples of each decision, as plain numbers.

They are written as a difference to the samples before if this process wrote those, and in full every `FULL_EVERY` rows:
a long study stays small, and any samples are read from few rows. From one decision to the next one sample moves and the
weights change. A difference lists the values that changed with their paths; applied to the old document it gives the
new one, bit for bit.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select

from freezethaw.errors import StoreError
from freezethaw.store import documents
from freezethaw.store.tables import sampler_states

FULL_EVERY = 32
LARGEST = 4_000_000  # characters of one row


Path = list[str | int]


class Written:
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


def write(connection: Connection, study: int, decision: int, base: int | None, text: str) -> None:
    """Write the samples of one decision."""
    connection.execute(insert(sampler_states).values(study=study, decision=decision, base=base, document=text))


def newest(connection: Connection, study: int, before: int | None = None) -> int | None:
    """The last decision (before another one) that has samples."""
    query = select(sampler_states.c.decision).where(sampler_states.c.study == study)
    if before is not None:
        query = query.where(sampler_states.c.decision < before)
    found = connection.execute(query.order_by(sampler_states.c.decision.desc()).limit(1)).scalar()
    return None if found is None else int(found)


def read(connection: Connection, study: int, before: int | None = None) -> Any:
    """The newest samples, or those that decision `before` started from; None if there are none."""
    decision = newest(connection, study, before)
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


def _compare(old: Any, new: Any, path: Path, found: list[list[Any]]) -> None:
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
