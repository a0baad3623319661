"""Plain JSON for columns. No pickle, no blobs; numbers that JSON lacks are written by name.

JSON has no NaN and no infinities, and each database would treat them differently, so `{"$number": "nan"}` stands for
them. A dict of the user's that looks like such a mark is wrapped, so that reading gives back what was written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from freezethaw.errors import StoreError

MARK, WRAP = "$number", "$dict"


def dump(value: Any) -> str:
    """Write a value as JSON text; refuses values that would not be read back unchanged."""
    try:
        return json.dumps(_marked(value), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot be kept in the store as plain JSON: {error}") from None


def load(text: str) -> Any:
    """Read what `dump` wrote."""
    try:
        return _unmarked(json.loads(text))
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise StoreError(f"the store holds a damaged document ({error}): {text[:60]!r}...") from None


def _marked(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return {MARK: repr(float(value))}
        case Mapping():
            marked = {_name(key): _marked(item) for key, item in value.items()}
            return {WRAP: marked} if set(marked) in ({MARK}, {WRAP}) else marked
        case list() | tuple():
            return [_marked(item) for item in value]
        case float():
            return float(value)  # a NumPy float64 is one
    return value


def _name(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the name {key!r} is not a text")
    return key


def _unmarked(value: Any) -> Any:
    match value:
        case {"$number": str(name)} if len(value) == 1:
            return float(name)
        case {"$dict": dict(inner)} if len(value) == 1:
            return {key: _unmarked(item) for key, item in inner.items()}
        case dict():
            return {key: _unmarked(item) for key, item in value.items()}
        case list():
            return [_unmarked(item) for item in value]
    return value


def printable(text: str) -> str:
    """Text that every database takes: PostgreSQL has no NUL, and none has half a surrogate pair."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")


def now() -> str:
    """The wall clock as text, for people only; it is never compared."""
    return datetime.now(UTC).isoformat(timespec="seconds")
