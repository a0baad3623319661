"""`Float` and `Int`: parameters that are numbers.

With steps, and for an `Int`, [0, 1] is cut into one bin for each value: bins of equal width, but for a log `Int`, whose
value k has the bin from log(k - 1/2) to log(k + 1/2). So the end values are not drawn at half the rate of the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
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
    check_range,
    checked_guess,
    checked_when,
    equal_bins,
    shown,
    switch,
)
from freezethaw.space.values import plain, real, storable, whole

MOST_VALUES = 2**40  # more could not be told apart by a unit coordinate in double precision


@dataclass(frozen=True, repr=False)
class Float:
    """A number from low to high, both included, uniform or log-uniform; with a step: low, low + step, ..., high."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    guess: float | None = None  # where the optimum may be; fades as data come
    when: Mapping[str, Any] | None = field(default=None, hash=False)  # kept as {parent: (value, ...)}

    def __post_init__(self) -> None:
        low, high = real(self.low), real(self.high)
        for name, number, given in (("low", low, self.low), ("high", high, self.high)):
            if number is None or not math.isfinite(number):
                raise SpaceError(f"{name} is {given!r}; it must be a finite number")
        assert low is not None  # noqa: S101 - just checked, for the type checker
        assert high is not None  # noqa: S101
        step = None if self.step is None else real(self.step)
        check_range(low, high, switch("log", self.log), self.step)
        if self.log and low <= 0:
            raise SpaceError(f"low is {low!r}; a log scale needs low above 0")
        if math.isinf(high - low) or (self.log and math.log(low) == math.log(high)):
            raise SpaceError(f"the range from {low!r} to {high!r} is too wide or too narrow for floating point")
        if self.step is not None and (step is None or not 0 < step < math.inf):
            raise SpaceError(f"step is {self.step!r}; it must be a positive number")
        assign(self, low=low, high=high, log=bool(self.log), step=step, when=checked_when(self.when))
        if step is not None:
            self._check_step(step)
        assign(self, guess=checked_guess(self))

    def _check_step(self, step: float) -> None:
        steps = (Decimal(repr(self.high)) - Decimal(repr(self.low))) / Decimal(repr(step))
        if abs(steps - round(steps)) > Decimal("1e-6") or round(steps) < 1:
            nearest = float(Decimal(repr(self.low)) + max(round(steps), 1) * Decimal(repr(step)))
            raise SpaceError(f"high - low must be a multiple of step={step!r}; the nearest high is {nearest!r}")
        if round(steps) >= MOST_VALUES or self.low + step == self.low or self.high - step == self.high:
            raise SpaceError(f"step={step!r} is too small for the range; leave it out")

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        steps = "" if self.step is None else f" in steps of {self.step!r}"
        return f"a number from {self.low!r} to {self.high!r}{steps}"

    @cached_property
    def count(self) -> int | None:
        """How many values there are; None where they are a continuum."""
        return None if self.step is None else round((self.high - self.low) / self.step) + 1

    @property
    def columns(self) -> int:
        """How many features describe a value."""
        return 1

    @property
    def warped(self) -> bool:
        """Whether a monotone warping of the feature can mean anything."""
        return self.count != 2

    @property
    def absent(self) -> float:
        """What each feature is where the parameter is inactive."""
        return 0.5

    def check(self, value: Any) -> float:
        """Normalise a value, or say what is allowed."""
        number = real(value)
        if number is None or not self.low <= number <= self.high:
            raise SpaceError(f"{plain(value)!r} is not allowed; give {self.allowed}")
        if self.step is None:
            return number
        nearest = self.at(round((number - self.low) / self.step))
        if abs(nearest - number) > 1e-9 * self.step:
            raise SpaceError(f"{number!r} is not allowed; give {self.allowed}, for instance {nearest!r}")
        return nearest

    def at(self, index: int) -> float:
        """Give the value number `index` of a stepped parameter, free of summed rounding: 0.3, not 3 * 0.1."""
        if self.count is None or index >= self.count - 1:
            return self.high
        return float(Decimal(repr(self.low)) + index * Decimal(repr(self.step)))

    def index(self, value: Any) -> int:
        """Give the number of a value of a stepped parameter."""
        return 0 if self.step is None else round((self.check(value) - self.low) / self.step)

    def bins(self, units: ArrayLike) -> IntArray:
        """Give the number of the value at each unit coordinate of a stepped parameter."""
        return equal_bins(units, self.count or 1)

    def value(self, unit: float) -> float:
        """Give the value at a unit coordinate."""
        if self.step is not None:
            return self.at(int(self.bins(unit)))
        if unit in (0, 1):
            return self.high if unit else self.low
        if self.log:
            bottom, top = math.log(self.low), math.log(self.high)
            number = math.exp(min(bottom + unit * (top - bottom), top))
        else:
            number = self.low + unit * (self.high - self.low)
        return min(max(number, self.low), self.high)

    def unit(self, value: Any) -> float:
        """Give the unit coordinate of a value, or the centre of its bin."""
        if self.count is not None:
            return (self.index(value) + 0.5) / self.count
        number = self.check(value)
        if self.log:
            bottom, top = math.log(self.low), math.log(self.high)
            return min(max((math.log(number) - bottom) / (top - bottom), 0.0), 1.0)
        return (number - self.low) / (self.high - self.low)

    def features(self, value: Any) -> Array:
        """Place a value within the range."""
        return np.array([self.unit(value) if self.count is None else self.index(value) / (self.count - 1)])

    def features_at(self, units: Array) -> Array:
        """Give the features of the value at each unit coordinate."""
        places = units if self.count is None else self.bins(units) / (self.count - 1)
        return np.asarray(places, dtype=np.float64)[:, None]

    def to_dict(self) -> dict[str, Any]:
        """Give the plain description, without what is default."""
        return {"type": "float", "low": self.low, "high": self.high, **storable(shown(self, "log", "step", "guess"))}

    def __repr__(self) -> str:
        return called("Float", self.low, self.high, **shown(self, "log", "step", "guess"))


@dataclass(frozen=True, repr=False)
class Int:
    """A whole number from low to high, both included, uniform or log-uniform; a step as for `Float`."""

    low: int
    high: int
    log: bool = False
    step: int | None = None
    guess: int | None = None  # where the optimum may be; fades as data come
    when: Mapping[str, Any] | None = field(default=None, hash=False)  # kept as {parent: (value, ...)}

    def __post_init__(self) -> None:
        low, high = whole(self.low), whole(self.high)
        for name, number, given in (("low", low, self.low), ("high", high, self.high)):
            if number is None:
                raise SpaceError(f"{name} is {given!r}; it must be a whole number (use Float for others)")
        assert low is not None  # noqa: S101 - just checked, for the type checker
        assert high is not None  # noqa: S101
        step = None if self.step is None else whole(self.step)
        check_range(low, high, switch("log", self.log), self.step)
        if self.log and low < 1:
            raise SpaceError(f"low is {low}; a log scale needs low of at least 1")
        if self.step is not None and (step is None or step < 1):
            raise SpaceError(f"step is {self.step!r}; it must be a positive whole number")
        if (high - low) % (step or 1):
            nearest = low + max(round((high - low) / (step or 1)), 1) * (step or 1)
            raise SpaceError(f"high - low must be a multiple of step={step}; the nearest high is {nearest}")
        if (high - low) // (step or 1) >= MOST_VALUES:
            raise SpaceError(f"from {low} to {high} are too many values to be told apart; use Float, or a larger step")
        assign(self, low=low, high=high, log=bool(self.log), step=step, when=checked_when(self.when))
        assign(self, guess=checked_guess(self))

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        steps = "" if self.step is None else f" in steps of {self.step}"
        return f"a whole number from {self.low} to {self.high}{steps}"

    @property
    def count(self) -> int:
        """How many values there are."""
        return (self.high - self.low) // (self.step or 1) + 1

    @property
    def columns(self) -> int:
        """How many features describe a value."""
        return 1

    @property
    def warped(self) -> bool:
        """Whether a monotone warping of the feature can mean anything."""
        return self.count != 2

    @property
    def absent(self) -> float:
        """What each feature is where the parameter is inactive."""
        return 0.5

    def check(self, value: Any) -> int:
        """Normalise a value, or say what is allowed."""
        number = whole(value)
        if number is None or not self.low <= number <= self.high or (number - self.low) % (self.step or 1):
            raise SpaceError(f"{plain(value)!r} is not allowed; give {self.allowed}")
        return number

    def at(self, index: int) -> int:
        """Give the value number `index`."""
        return self.low + index * (self.step or 1)

    def index(self, value: Any) -> int:
        """Give the number of a value."""
        return (self.check(value) - self.low) // (self.step or 1)

    def bins(self, units: ArrayLike) -> IntArray:
        """Give the number of the value at each unit coordinate."""
        if not self.log:
            return equal_bins(units, self.count)
        edge = self.low - 0.5
        above = edge * np.expm1(np.asarray(units) * np.log1p(self.count / edge))
        return np.asarray(np.minimum(above, self.count - 1), dtype=np.int64)

    def value(self, unit: float) -> int:
        """Give the value at a unit coordinate."""
        return self.at(int(self.bins(unit)))

    def unit(self, value: Any) -> float:
        """Give the centre of a value's bin."""
        index = self.index(value)
        if not self.log:
            return (index + 0.5) / self.count
        edge = self.low - 0.5
        return float((np.log1p(index / edge) + np.log1p((index + 1) / edge)) / (2 * np.log1p(self.count / edge)))

    def features(self, value: Any) -> Array:
        """Place a value within the range, on its scale; the value itself, so that rounding is inside the kernel."""
        return self._places(np.array([self.index(value)]))

    def features_at(self, units: Array) -> Array:
        """Give the features of the value at each unit coordinate."""
        return self._places(self.bins(units))[:, None]

    def _places(self, indices: IntArray) -> Array:
        last = self.count - 1
        places = np.log1p(indices / self.low) / np.log1p(last / self.low) if self.log else indices / last
        return np.asarray(places, dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        """Give the plain description, without what is default."""
        return {"type": "int", "low": self.low, "high": self.high, **storable(shown(self, "log", "step", "guess"))}

    def __repr__(self) -> str:
        return called("Int", self.low, self.high, **shown(self, "log", "step", "guess"))
