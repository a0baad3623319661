"""`Choice`: a parameter that is one of some values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from freezethaw.errors import SpaceError
from freezethaw.space.making import (
    Array,
    IntArray,
    assign,
    called,
    checked_guess,
    checked_when,
    equal_bins,
    shown,
    switch,
)
from freezethaw.space.values import checked_value, fresh, listed, plain, storable, token


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Choice:
    """One of the values given; `ordered` where neighbours in the list are alike."""

    values: tuple[Any, ...]
    ordered: bool
    guess: Any  # None: no guess
    when: Mapping[str, Any] | None  # kept as {parent: (value, ...)}

    def __init__(
        self, *values: Any, ordered: bool = False, guess: Any = None, when: Mapping[str, Any] | None = None
    ) -> None:
        if not values:
            raise SpaceError("a Choice needs at least one value, as in Choice('sgd', 'adam')")
        assign(self, values=tuple(map(checked_value, values)), ordered=switch("ordered", ordered))
        assign(self, guess=guess, when=checked_when(when))
        if len(self._indices) < len(values):
            twice = next(v for i, v in enumerate(self.values) if self._indices[token(v)] != i)
            raise SpaceError(f"{twice!r} is given twice; the values of a Choice must differ")
        assign(self, guess=checked_guess(self))

    @cached_property
    def _indices(self) -> dict[Any, int]:
        indices: dict[Any, int] = {}
        for index, value in enumerate(self.values):
            indices.setdefault(token(value), index)
        return indices

    @cached_property
    def _table(self) -> Array:
        """Features of each value: different unordered values are at distance 1 from each other."""
        count = len(self.values)
        if count == 1:
            return np.zeros((1, 0))
        if self.ordered or count == 2:
            return np.linspace(0.0, 1.0, count)[:, None]
        return np.eye(count) / math.sqrt(2)

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        return f"{'one of ' if len(self.values) > 1 else ''}{listed(self.values)}"

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self.values)

    @property
    def columns(self) -> int:
        """How many features describe a value."""
        return int(self._table.shape[1])

    @property
    def warped(self) -> bool:
        """Whether a monotone warping of the features can mean anything."""
        return False

    @property
    def absent(self) -> float:
        """What each feature is where the parameter is inactive."""
        return 0.5 if self.columns == 1 else 0.0

    def check(self, value: Any) -> Any:
        """Give the choice's own value, or say what is allowed."""
        return fresh(self.values[self.index(value)])

    def at(self, index: int) -> Any:
        """Give the value number `index`."""
        return fresh(self.values[index])

    def index(self, value: Any) -> int:
        """Give the number of a value."""
        value = plain(value)
        try:
            index = self._indices.get(token(value))
        except TypeError:
            index = None
        if index is None:
            raise SpaceError(f"{value!r} is not allowed; give {self.allowed}")
        return index

    def bins(self, units: ArrayLike) -> IntArray:
        """Give the number of the value at each unit coordinate."""
        return equal_bins(units, self.count)

    def value(self, unit: float) -> Any:
        """Give the value at a unit coordinate."""
        return self.at(int(self.bins(unit)))

    def unit(self, value: Any) -> float:
        """Give the centre of a value's bin."""
        return (self.index(value) + 0.5) / self.count

    def features(self, value: Any) -> Array:
        """Give the features of a value."""
        return self._table[self.index(value), :]

    def features_at(self, units: Array) -> Array:
        """Give the features of the value at each unit coordinate."""
        return np.take(self._table, self.bins(units), axis=0)

    def to_dict(self) -> dict[str, Any]:
        """Give the plain description, without what is default."""
        return {"type": "choice", "values": storable(self.values), **storable(shown(self, "ordered", "guess"))}

    def __repr__(self) -> str:
        return called("Choice", *self.values, **shown(self, "ordered", "guess"))

    def _identity(self) -> tuple[Any, ...]:
        return token(self.values), self.ordered, token(self.guess)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Choice):
            return NotImplemented
        return self._identity() == other._identity() and token(self.when) == token(other.when)

    def __hash__(self) -> int:
        return hash(self._identity())
