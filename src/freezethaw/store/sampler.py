"""Sampler states: the plain numbers that the model carries from one decision to the next, kept for each of them.

Written as a difference to the state before where that is at hand, and whole every `WHOLE_EVERY` states, so that a long
study stays small and any one state is read from few rows.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select

from freezethaw.errors import StoreError
from freezethaw.store import deltas, documents
from freezethaw.store.tables import sampler_states

WHOLE_EVERY = 32
LARGEST = 4_000_000  # characters of one state


class SamplerMemory:
    """What this process last wrote, so that the next state can be a difference to it. Forgetting costs only room."""

    def __init__(self) -> None:
        self._last: tuple[int, Any, int] | None = None  # decision, state, how many differences it is from a whole one

    def row(self, decision: int, state: Any) -> tuple[int | None, str]:
        """Base and document to write. The base need not be the state just before: any that is in the store will do."""
        last = self._last
        base = None if last is None or last[2] + 1 >= WHOLE_EVERY else last
        text = documents.dump(state if base is None else deltas.difference(base[1], state))
        if len(text) > LARGEST:
            raise StoreError(f"the sampler state of decision {decision} has {len(text)} characters; that is too much")
        return (None if base is None else base[0]), text

    def keep(self, decision: int, state: Any, base: int | None) -> None:
        """Remember what was committed."""
        depth = 0 if base is None or self._last is None else self._last[2] + 1
        self._last = decision, documents.load(documents.dump(state)), depth


def write(connection: Connection, study: int, decision: int, base: int | None, text: str) -> None:
    """Write one state."""
    connection.execute(insert(sampler_states).values(study=study, decision=decision, base=base, document=text))


def newest(connection: Connection, study: int, before: int | None = None) -> int | None:
    """The last decision (before another one) that has a state."""
    query = select(sampler_states.c.decision).where(sampler_states.c.study == study)
    if before is not None:
        query = query.where(sampler_states.c.decision < before)
    found = connection.execute(query.order_by(sampler_states.c.decision.desc()).limit(1)).scalar()
    return None if found is None else int(found)


def read(connection: Connection, study: int, before: int | None = None) -> Any:
    """The newest state, or the one that decision `before` was taken from; None where there is none yet."""
    decision = newest(connection, study, before)
    if decision is None:
        return None
    changes = []
    while True:
        where = (sampler_states.c.study == study, sampler_states.c.decision == decision)
        row = connection.execute(select(sampler_states.c.base, sampler_states.c.document).where(*where)).one_or_none()
        if row is None or (row.base is not None and row.base >= decision):
            raise StoreError(f"the sampler state of decision {decision} is damaged")
        if row.base is None:
            state = documents.load(row.document)
            break
        changes.append(documents.load(row.document))
        decision = row.base
    for change in reversed(changes):
        state = deltas.apply(state, change)
    return state
