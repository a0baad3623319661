"""The smallest space that holds two versions of one: where bounds were changed, old runs stay as evidence."""

from __future__ import annotations

from typing import Any

from freezethaw.space.choice import Choice
from freezethaw.space.numeric import Float, Int


def hull(now: Any, before: Any) -> Any:
    """One entry that allows what either allows, on the scale that is used now; fixed values become a choice."""
    if now == before or type(now) is not type(before):
        return now
    if isinstance(now, Choice):
        return Choice(*_union(now.values, before.values), ordered=now.ordered, when=now.when)
    if isinstance(now, Float | Int):
        low, high = min(now.low, before.low), max(now.high, before.high)
        log = now.log and low > 0
        return type(now)(low, high, log=log, when=now.when)  # no step: the steps of the two may not fall together
    return Choice(now, before) if now != before else now


def _union(values: tuple[Any, ...], others: tuple[Any, ...]) -> list[Any]:
    return [*values, *(v for v in others if not any(type(v) is type(w) and v == w for w in values))]
