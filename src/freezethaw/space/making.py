"""What the making of every kind of parameter shares: checks, conditions, bins, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freezethaw.errors import SpaceError
from freezethaw.space.values import checked_value, plain

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]


class HasGuess(Protocol):
    """What these functions need of a parameter."""

    @property
    def guess(self) -> Any:
        """Where the optimum may be."""

    @property
    def when(self) -> Mapping[str, Any] | None:
        """What it depends on."""

    def check(self, value: Any) -> Any:
        """Normalise a value, or say what is allowed."""


def assign(parameter: object, **fields: Any) -> None:
    """Set fields of a frozen parameter while it is being made."""
    for name, value in fields.items():
        object.__setattr__(parameter, name, value)


def switch(name: str, given: Any) -> bool:
    """Accept only a boolean: a number in its place was meant for another argument."""
    given = plain(given)
    if not isinstance(given, bool):
        raise SpaceError(f"{name} is {given!r}; it must be True or False")
    return given


def check_range(low: float, high: float, log: bool, step: object) -> None:
    """Refuse what is wrong with a range of any numbers."""
    if low == high:
        raise SpaceError(f"low and high are both {low!r}; write the plain value {low!r} to fix it")
    if low > high:
        raise SpaceError(f"low is {low!r} and high is {high!r}; low must be below high")
    if log and step is not None:
        raise SpaceError("log and step cannot be combined; list the values in a Choice(..., ordered=True)")


def checked_guess(parameter: HasGuess) -> Any:
    """Normalise the guess."""
    if parameter.guess is None:
        return None
    try:
        return parameter.check(parameter.guess)
    except SpaceError as error:
        raise SpaceError(f"guess: {error}") from None


def _is_conditions(when: Any) -> bool:
    return isinstance(when, Mapping) and all(isinstance(parent, str) for parent in when)


def _unlisted(value: Any) -> Any:
    return tuple(map(_unlisted, value)) if isinstance(value, list | tuple) else value


def checked_when(when: Mapping[str, Any] | None) -> dict[str, tuple[Any, ...]] | None:
    """Copy conditions as {parent: (value, ...)}; none at all is None."""
    if when is None:
        return None
    if not _is_conditions(when):
        raise SpaceError(f"when is {when!r}; write it as in when={{'optimizer': 'sgd'}}, or with a list of values")
    conditions = {}
    for parent, given in when.items():
        if isinstance(given, set | frozenset):
            given = sorted(given, key=repr)
        values = given if isinstance(given, list | tuple) else [given]
        if not values:
            raise SpaceError(f"when lists no value of {parent!r}; give at least one")
        conditions[parent] = tuple(_unlisted(checked_value(value)) for value in values)
    return conditions or None


def equal_bins(units: ArrayLike, count: int) -> IntArray:
    """Give for each unit coordinate which of `count` bins of equal width it is in."""
    return np.minimum((np.asarray(units) * count).astype(np.int64), count - 1)


def shown(parameter: HasGuess, *names: str) -> dict[str, Any]:
    """Give the options that are not default; a condition of one value without its tuple."""
    options = {name: getattr(parameter, name) for name in names}
    options = {k: v for k, v in options.items() if v is not None and (k not in ("log", "ordered") or v)}
    if parameter.when:
        options["when"] = {
            parent: values[0] if len(values) == 1 and not isinstance(values[0], list | tuple) else list(values)
            for parent, values in parameter.when.items()
        }
    return options


def called(name: str, *positional: Any, **keywords: Any) -> str:
    """Write a call."""
    texts = [repr(value) for value in positional] + [f"{key}={value!r}" for key, value in keywords.items()]
    return f"{name}({', '.join(texts)})"
