"""Values of configurations: what may be one, when two are the same, and their plain form for a file."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from freezethaw.errors import SpaceError


def plain(value: Any) -> Any:
    """Turn a NumPy scalar into the Python value it stands for; leave all else."""
    return value.item() if isinstance(value, np.generic) else value


def token(value: Any) -> Hashable:
    """Hashable stand-in for a value: equal for 1 and 1.0, for a tuple and a list of the same, but not 1 and True."""
    match value:
        case bool():
            return ("bool", value)
        case list() | tuple():
            return ("list", *map(token, value))
        case Mapping():
            return ("dict", frozenset((key, token(item)) for key, item in value.items()))
    return value  # type: ignore[no-any-return]


def fresh(value: Any) -> Any:
    """Copy what a receiver could change."""
    return copy.deepcopy(value) if isinstance(value, list | dict) else value


def checked_value(value: Any) -> Any:
    """Accept what can be told apart from other values and written down; NaN and infinity cannot."""
    value = plain(value)
    try:
        hash(token(value))
    except TypeError:
        raise SpaceError(f"{value!r} cannot be a value; use numbers, text, booleans, None or lists of them") from None
    if not _finite(value):
        raise SpaceError(f"{value!r} cannot be a value; name it by a text such as 'inf', or use None")
    return fresh(value)


def storable(value: Any) -> Any:
    """Give the plain JSON form of a value (a tuple becomes a list), or refuse."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [storable(item) for item in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: storable(item) for key, item in value.items()}
    raise SpaceError(f"{value!r} cannot be written to a file; use a text that names it and look it up when training")


def real(value: Any) -> float | None:
    """Read a number as a float; None if it is none (a bool is none)."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def whole(value: Any) -> int | None:
    """Read a whole number, 3 or 3.0, as an int; None if it is none (a bool is none)."""
    value = plain(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None


def listed(values: Iterable[Any], limit: int = 20) -> str:
    """Write values one after the other, not too many."""
    texts = [repr(value) for value in values]
    return ", ".join(texts) if len(texts) <= limit else f"{', '.join(texts[:limit])}, ... ({len(texts)} in all)"


def _finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case list() | tuple():
            return all(map(_finite, value))
        case Mapping():
            return all(map(_finite, value.values()))
    return True
