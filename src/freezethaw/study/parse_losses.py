"""Parse what a user tells: checked completely before anything is recorded."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

import numpy as np

from freezethaw.errors import TellError
from freezethaw.records import Report


def parse_losses(losses: object, seconds: object, granted: int, first_epoch: int = 1) -> Report:
    """A report from a number, or a list of 1 to `granted` numbers of which only the last may be not finite."""
    values = _numbers(losses, "losses")
    if not values:
        raise TellError("no losses were told; use cancel(decision) if there are none")
    if len(values) > granted:
        raise TellError(f"{len(values)} losses were told, but the decision grants {granted} epoch(s)")
    finite = [math.isfinite(v) for v in values]
    if not all(finite[:-1]):
        place = finite.index(False) + 1
        raise TellError(
            f"loss {place} of {len(values)} is not finite; a diverged run ends there: tell nothing after it"
        )
    count = sum(finite)
    spent = _seconds(seconds, len(values))[:count]
    return Report(first_epoch, tuple(values[:count]), spent, diverged=not finite[-1])


def _seconds(seconds: object, count: int) -> tuple[float, ...]:
    if seconds is None:
        return (math.nan,) * count
    values = _numbers(seconds, "seconds")
    if not all(math.isfinite(v) and v >= 0 for v in values):
        raise TellError(f"seconds must be finite and not negative, not {seconds!r}")
    if len(values) == 1:
        return (values[0] / count,) * count  # one number is the time of all epochs together
    if len(values) != count:
        raise TellError(f"{count} losses but {len(values)} seconds were told; tell their total or one for each")
    return tuple(values)


def _numbers(value: object, what: str) -> list[float]:
    """A number or a flat sequence of numbers as floats; anything else is refused."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    items: Sequence[object] = value if isinstance(value, list | tuple) else [value]
    for item in items:
        if isinstance(item, bool) or not isinstance(item, numbers.Real):
            raise TellError(f"{what} must be a number or a flat list of numbers, not {value!r:.80}")
    return [float(item) for item in items]  # type: ignore[arg-type]
