"""Parameter values: validation, equality, conversion to JSON; and the checks that all kinds of parameters share."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from freezethaw.errors import SpaceError


def plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python value."""
    return value.item() if isinstance(value, np.generic) else value


def token(value: Any) -> Hashable:
    """A hashable key: equal for 1 and 1.0 and for a tuple and a list of the same values, but not for 1 and True."""
    match value:
        case bool():
            return ("bool", value)
        case list() | tuple():
            return ("list", *map(token, value))
        case Mapping():
            return ("dict", frozenset((key, token(item)) for key, item in value.items()))
    return value  # type: ignore[no-any-return]


def fresh(value: Any) -> Any:
    """Copy a mutable value."""
    return copy.deepcopy(value) if isinstance(value, list | dict) else value


def checked_value(value: Any) -> Any:
    """Validate a value: it must be hashable by `token` and finite."""
    value = plain(value)
    try:
        hash(token(value))
    except TypeError:
        raise SpaceError(f"{value!r} cannot be a value; use numbers, text, booleans, None or lists of them") from None
    if not _finite(value):
        raise SpaceError(f"{value!r} cannot be a value; use a text such as 'inf', or None")
    return fresh(value)


def storable(value: Any) -> Any:
    """The JSON form of a value; tuples become lists."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [storable(item) for item in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: storable(item) for key, item in value.items()}
    raise SpaceError(f"{value!r} cannot be stored; use a text and look it up in the training")


def real(value: Any) -> float | None:
    """Convert a number to float; None for anything else, including booleans."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def integer(value: Any) -> int | None:
    """Convert an integer, 3 or 3.0, to int; None for anything else, including booleans."""
    value = plain(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None


def boolean(name: str, value: Any) -> bool:
    """Accept booleans only: a number here was probably meant for another argument."""
    value = plain(value)
    if not isinstance(value, bool):
        raise SpaceError(f"{name} is {value!r}; it must be True or False")
    return value


def listed(values: Iterable[Any], limit: int = 20) -> str:
    """Values separated by commas, at most `limit` of them."""
    texts = [repr(value) for value in values]
    return ", ".join(texts) if len(texts) <= limit else f"{', '.join(texts[:limit])}, ... ({len(texts)} in all)"


def checked_when(when: Mapping[str, Any] | None) -> dict[str, tuple[Any, ...]] | None:
    """Validate conditions and normalise them to {parent: (value, ...)}, or None if there are none."""
    if when is None:
        return None
    given_when: object = when
    if not isinstance(given_when, Mapping) or not all(isinstance(parent, str) for parent in given_when):
        raise SpaceError(f"when is {when!r}; expected e.g. when={{'optimizer': 'sgd'}}, or with a list of values")
    conditions = {}
    for parent, given in when.items():
        if isinstance(given, set | frozenset):
            given = sorted(given, key=repr)
        values = given if isinstance(given, list | tuple) else [given]
        if not values:
            raise SpaceError(f"when has no value of {parent!r}; give at least one")
        conditions[parent] = tuple(_as_tuples(checked_value(value)) for value in values)
    return conditions or None


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value


def _finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case list() | tuple():
            return all(map(_finite, value))
        case Mapping():
            return all(map(_finite, value.values()))
    return True
