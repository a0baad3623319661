"""The kinds of parameters: `Float`, `Int` and `Choice`.

A parameter maps its values to a unit coordinate in [0, 1], for sampling, and to features, for the model. For discrete
parameters [0, 1] is divided into one bin per value. Bins have equal width, except for a log `Int`, where the bin of k
extends from log(k - 1/2) to log(k + 1/2). So the end values are not sampled at half the rate of the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freezethaw.errors import SpaceError
from freezethaw.space.values import (
    boolean,
    checked_value,
    checked_when,
    fresh,
    integer,
    listed,
    plain,
    real,
    storable,
    token,
)

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Config = dict[str, Any]

MAX_VALUES = 2**40  # a unit coordinate in double precision cannot distinguish more


class _Number:
    """What `Float` and `Int` share."""

    low: float
    high: float
    log: bool
    step: float | None
    guess: Any
    when: Mapping[str, Any] | None

    def _check_range(self, low: float, high: float) -> None:
        if low == high:
            raise SpaceError(f"low and high are both {low!r}; to fix the parameter, write {low!r} in its place")
        if low > high:
            raise SpaceError(f"low is {low!r} and high is {high!r}; low must be below high")
        if boolean("log", self.log) and self.step is not None:
            raise SpaceError("log and step cannot be combined; list the values in a Choice(..., ordered=True)")

    @property
    def count(self) -> int | None:
        """The number of values; None if continuous."""
        raise NotImplementedError

    @property
    def columns(self) -> int:
        """The number of features."""
        return 1

    @property
    def warped(self) -> bool:
        """Whether the model may warp the feature."""
        return self.count != 2

    @property
    def absent(self) -> float:
        """The feature of an inactive parameter."""
        return 0.5

    def check(self, value: Any) -> Any:
        """Validate and normalise a value."""
        raise NotImplementedError

    def at(self, index: int) -> Any:
        """The value with this index."""
        raise NotImplementedError

    def index(self, value: Any) -> int:
        """The index of a value."""
        raise NotImplementedError

    def bins(self, units: ArrayLike) -> IntArray:
        """The index of the value at each unit coordinate."""
        return _equal_bins(units, self.count or 1)

    def _positions(self, indices: IntArray) -> Array:
        """Features of the values with these indices: the rounding of values is part of the kernel."""
        return np.asarray(indices / ((self.count or 2) - 1), dtype=np.float64)

    def features(self, value: Any) -> Array:
        """The features of a value."""
        return self._positions(np.array([self.index(value)]))

    def features_at(self, units: Array) -> Array:
        """The features of the value at each unit coordinate."""
        return self._positions(self.bins(units))[:, None]

    def to_dict(self) -> dict[str, Any]:
        """A description without default values, for JSON."""
        kind = type(self).__name__.lower()
        return {"type": kind, "low": self.low, "high": self.high, **storable(_options(self, "log", "step", "guess"))}

    def __repr__(self) -> str:
        return _call(type(self).__name__, self.low, self.high, **_options(self, "log", "step", "guess"))


@dataclass(frozen=True, repr=False)
class Float(_Number):
    """A number between low and high, inclusive, uniform or log-uniform. With a step: low, low + step, ..., high."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    guess: float | None = None  # where the optimum may be; loses influence as data arrive
    when: Mapping[str, Any] | None = field(default=None, hash=False)  # conditions, as {parent: (value, ...)}

    def __post_init__(self) -> None:
        low, high = real(self.low), real(self.high)
        for name, number, given in (("low", low, self.low), ("high", high, self.high)):
            if number is None or not math.isfinite(number):
                raise SpaceError(f"{name} is {given!r}; it must be a finite number")
        assert low is not None  # noqa: S101 - for the type checker
        assert high is not None  # noqa: S101
        step = None if self.step is None else real(self.step)
        self._check_range(low, high)
        if self.log and low <= 0:
            raise SpaceError(f"low is {low!r}; a log scale needs low above 0")
        if math.isinf(high - low) or (self.log and math.log(low) == math.log(high)):
            raise SpaceError(f"the range from {low!r} to {high!r} is too wide or too narrow for floating point")
        if self.step is not None and (step is None or not 0 < step < math.inf):
            raise SpaceError(f"step is {self.step!r}; it must be a positive number")
        _set(self, low=low, high=high, log=bool(self.log), step=step, when=checked_when(self.when))
        if step is not None:
            self._check_step(step)
        _set(self, guess=_checked_guess(self))

    def _check_step(self, step: float) -> None:
        steps = (Decimal(repr(self.high)) - Decimal(repr(self.low))) / Decimal(repr(step))
        if abs(steps - round(steps)) > Decimal("1e-6") or round(steps) < 1:
            nearest = float(Decimal(repr(self.low)) + max(round(steps), 1) * Decimal(repr(step)))
            raise SpaceError(f"high - low must be a multiple of step={step!r}; the nearest high is {nearest!r}")
        if round(steps) >= MAX_VALUES or self.low + step == self.low or self.high - step == self.high:
            raise SpaceError(f"step={step!r} is too small for the range; remove it")

    @property
    def allowed(self) -> str:
        """The allowed values, as a text."""
        steps = "" if self.step is None else f" in steps of {self.step!r}"
        return f"a number from {self.low!r} to {self.high!r}{steps}"

    @cached_property
    def count(self) -> int | None:
        """The number of values; None if continuous."""
        return None if self.step is None else round((self.high - self.low) / self.step) + 1

    def check(self, value: Any) -> float:
        """Validate and normalise a value."""
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
        """The value with this index, in decimal arithmetic: 0.3, not 3 * 0.1."""
        if self.count is None or index >= self.count - 1:
            return self.high
        return float(Decimal(repr(self.low)) + index * Decimal(repr(self.step)))

    def index(self, value: Any) -> int:
        """The index of a value; 0 if continuous."""
        return 0 if self.step is None else round((self.check(value) - self.low) / self.step)

    def value(self, unit: float) -> float:
        """The value at a unit coordinate."""
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
        """The unit coordinate of a value, or the centre of its bin."""
        if self.count is not None:
            return (self.index(value) + 0.5) / self.count
        number = self.check(value)
        if self.log:
            bottom, top = math.log(self.low), math.log(self.high)
            return min(max((math.log(number) - bottom) / (top - bottom), 0.0), 1.0)
        return (number - self.low) / (self.high - self.low)

    def features(self, value: Any) -> Array:
        """The features of a value."""
        return np.array([self.unit(value)]) if self.count is None else super().features(value)

    def features_at(self, units: Array) -> Array:
        """The features of the value at each unit coordinate."""
        return np.asarray(units, dtype=np.float64)[:, None] if self.count is None else super().features_at(units)


@dataclass(frozen=True, repr=False)
class Int(_Number):
    """An integer between low and high, inclusive, uniform or log-uniform; with a step as for `Float`."""

    low: int
    high: int
    log: bool = False
    step: int | None = None
    guess: int | None = None  # where the optimum may be; loses influence as data arrive
    when: Mapping[str, Any] | None = field(default=None, hash=False)  # conditions, as {parent: (value, ...)}

    def __post_init__(self) -> None:
        low, high = integer(self.low), integer(self.high)
        for name, number, given in (("low", low, self.low), ("high", high, self.high)):
            if number is None:
                raise SpaceError(f"{name} is {given!r}; it must be an integer (use Float for other numbers)")
        assert low is not None  # noqa: S101 - for the type checker
        assert high is not None  # noqa: S101
        step = None if self.step is None else integer(self.step)
        self._check_range(low, high)
        if self.log and low < 1:
            raise SpaceError(f"low is {low}; a log scale needs low of at least 1")
        if self.step is not None and (step is None or step < 1):
            raise SpaceError(f"step is {self.step!r}; it must be a positive integer")
        if (high - low) % (step or 1):
            nearest = low + max(round((high - low) / (step or 1)), 1) * (step or 1)
            raise SpaceError(f"high - low must be a multiple of step={step}; the nearest high is {nearest}")
        if (high - low) // (step or 1) >= MAX_VALUES:
            raise SpaceError(f"there are too many values from {low} to {high}; use Float or a larger step")
        _set(self, low=low, high=high, log=bool(self.log), step=step, when=checked_when(self.when))
        _set(self, guess=_checked_guess(self))

    @property
    def allowed(self) -> str:
        """The allowed values, as a text."""
        steps = "" if self.step is None else f" in steps of {self.step}"
        return f"an integer from {self.low} to {self.high}{steps}"

    @property
    def count(self) -> int:
        """The number of values."""
        return (self.high - self.low) // (self.step or 1) + 1

    def check(self, value: Any) -> int:
        """Validate and normalise a value."""
        number = integer(value)
        if number is None or not self.low <= number <= self.high or (number - self.low) % (self.step or 1):
            raise SpaceError(f"{plain(value)!r} is not allowed; give {self.allowed}")
        return number

    def at(self, index: int) -> int:
        """The value with this index."""
        return self.low + index * (self.step or 1)

    def index(self, value: Any) -> int:
        """The index of a value."""
        return (self.check(value) - self.low) // (self.step or 1)

    def bins(self, units: ArrayLike) -> IntArray:
        """The index of the value at each unit coordinate."""
        if not self.log:
            return super().bins(units)
        edge = self.low - 0.5
        above = edge * np.expm1(np.asarray(units) * np.log1p(self.count / edge))
        return np.asarray(np.minimum(above, self.count - 1), dtype=np.int64)

    def value(self, unit: float) -> int:
        """The value at a unit coordinate."""
        return self.at(int(self.bins(unit)))

    def unit(self, value: Any) -> float:
        """The centre of the bin of a value."""
        index = self.index(value)
        if not self.log:
            return (index + 0.5) / self.count
        edge = self.low - 0.5
        return float((np.log1p(index / edge) + np.log1p((index + 1) / edge)) / (2 * np.log1p(self.count / edge)))

    def _positions(self, indices: IntArray) -> Array:
        if not self.log:
            return super()._positions(indices)
        return np.asarray(np.log1p(indices / self.low) / np.log1p((self.count - 1) / self.low), dtype=np.float64)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Choice:
    """One of several values, `Choice("sgd", "adam")` or `Choice(["sgd", "adam"])`; `ordered` if neighbours are similar.

    A single list or tuple is the list of values; the only value of `Choice([[64, 64]])` is a list.
    """

    values: tuple[Any, ...]
    ordered: bool
    guess: Any  # None: no guess
    when: Mapping[str, Any] | None  # conditions, as {parent: (value, ...)}

    def __init__(
        self, *values: Any, ordered: bool = False, guess: Any = None, when: Mapping[str, Any] | None = None
    ) -> None:
        if len(values) == 1 and isinstance(values[0], list | tuple):
            values = tuple(values[0])
        if not values:
            raise SpaceError("a Choice needs at least one value, as in Choice('sgd', 'adam')")
        _set(self, values=tuple(map(checked_value, values)), ordered=boolean("ordered", ordered))
        _set(self, guess=guess, when=checked_when(when))
        if len(self._indices) < len(values):
            twice = next(v for i, v in enumerate(self.values) if self._indices[token(v)] != i)
            raise SpaceError(f"{twice!r} is given twice; the values of a Choice must differ")
        _set(self, guess=_checked_guess(self))

    @cached_property
    def _indices(self) -> dict[Any, int]:
        indices: dict[Any, int] = {}
        for index, value in enumerate(self.values):
            indices.setdefault(token(value), index)
        return indices

    @cached_property
    def _features(self) -> Array:
        """The features of each value. The distance between two unordered values is 1."""
        count = len(self.values)
        if count == 1:
            return np.zeros((1, 0))
        if self.ordered or count == 2:
            return np.linspace(0.0, 1.0, count)[:, None]
        return np.eye(count) / math.sqrt(2)

    @property
    def allowed(self) -> str:
        """The allowed values, as a text."""
        return f"{'one of ' if len(self.values) > 1 else ''}{listed(self.values)}"

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self.values)

    @property
    def columns(self) -> int:
        """The number of features."""
        return int(self._features.shape[1])

    @property
    def warped(self) -> bool:
        """Whether the model may warp the features."""
        return False

    @property
    def absent(self) -> float:
        """Each feature of an inactive parameter."""
        return 0.5 if self.columns == 1 else 0.0

    def check(self, value: Any) -> Any:
        """Validate and normalise a value."""
        return fresh(self.values[self.index(value)])

    def at(self, index: int) -> Any:
        """The value with this index."""
        return fresh(self.values[index])

    def index(self, value: Any) -> int:
        """The index of a value."""
        value = plain(value)
        try:
            index = self._indices.get(token(value))
        except TypeError:
            index = None
        if index is None:
            raise SpaceError(f"{value!r} is not allowed; give {self.allowed}")
        return index

    def bins(self, units: ArrayLike) -> IntArray:
        """The index of the value at each unit coordinate."""
        return _equal_bins(units, self.count)

    def value(self, unit: float) -> Any:
        """The value at a unit coordinate."""
        return self.at(int(self.bins(unit)))

    def unit(self, value: Any) -> float:
        """The centre of the bin of a value."""
        return (self.index(value) + 0.5) / self.count

    def features(self, value: Any) -> Array:
        """The features of a value."""
        return self._features[self.index(value), :]

    def features_at(self, units: Array) -> Array:
        """The features of the value at each unit coordinate."""
        return np.take(self._features, self.bins(units), axis=0)

    def to_dict(self) -> dict[str, Any]:
        """A description without default values, for JSON."""
        return {"type": "choice", "values": storable(self.values), **storable(_options(self, "ordered", "guess"))}

    def __repr__(self) -> str:
        single_list = len(self.values) == 1 and isinstance(self.values[0], list | tuple)
        values = [list(self.values)] if single_list else self.values
        return _call("Choice", *values, **_options(self, "ordered", "guess"))

    def _identity(self) -> tuple[Any, ...]:
        return token(self.values), self.ordered, token(self.guess)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Choice):
            return NotImplemented
        return self._identity() == other._identity() and token(self.when) == token(other.when)

    def __hash__(self) -> int:
        return hash(self._identity())


Parameter = Float | Int | Choice


def parameter_from_dict(description: Mapping[str, Any]) -> Parameter:
    """Build a parameter from the description that `to_dict` returns."""
    kinds: dict[str, tuple[type[Parameter], tuple[str, ...], tuple[str, ...]]] = {
        "float": (Float, ("low", "high"), ("log", "step", "guess", "when")),
        "int": (Int, ("low", "high"), ("log", "step", "guess", "when")),
        "choice": (Choice, ("values",), ("ordered", "guess", "when")),
    }
    kind = description.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        raise SpaceError(f"type is {kind!r}; it must be one of 'float', 'int', 'choice', 'fixed'")
    build, needed, optional = kinds[kind]
    options = {key: value for key, value in description.items() if key != "type"}
    missing = [key for key in needed if key not in options]
    unknown = [key for key in options if key not in needed + optional]
    if missing:
        raise SpaceError(f"a description of type {kind!r} needs {listed(missing)}")
    if unknown:
        raise SpaceError(f"unknown key {unknown[0]!r}; type {kind!r} has {listed(needed + optional)}")
    if build is Choice:
        values = options.pop("values")
        if not isinstance(values, list | tuple):
            raise SpaceError(f"values is {values!r}; it must be a list")
        return Choice(values, **options)
    return build(**options)


def union(now: Any, before: Any) -> Any:
    """The smallest entry that contains two versions of one, on the current scale; two fixed values become a choice."""
    if now == before or type(now) is not type(before):
        return now
    if isinstance(now, Choice):
        old = [v for v in before.values if not any(type(v) is type(w) and v == w for w in now.values)]
        return Choice([*now.values, *old], ordered=now.ordered, when=now.when)
    if isinstance(now, Float | Int):
        low, high = min(now.low, before.low), max(now.high, before.high)
        return type(now)(low, high, log=now.log and low > 0, when=now.when)  # no step: the two grids may differ
    return Choice(now, before)


def _set(parameter: object, **fields: Any) -> None:
    """Set fields of a frozen parameter during its construction."""
    for name, value in fields.items():
        object.__setattr__(parameter, name, value)


def _checked_guess(parameter: Any) -> Any:
    if parameter.guess is None:
        return None
    try:
        return parameter.check(parameter.guess)
    except SpaceError as error:
        raise SpaceError(f"guess: {error}") from None


def _equal_bins(units: ArrayLike, count: int) -> IntArray:
    """The bin of each unit coordinate, among `count` bins of equal width."""
    return np.minimum((np.asarray(units) * count).astype(np.int64), count - 1)


def _options(parameter: Any, *names: str) -> dict[str, Any]:
    """The options that differ from their defaults; a condition with one value without its tuple."""
    options = {name: getattr(parameter, name) for name in names}
    options = {k: v for k, v in options.items() if v is not None and (k not in ("log", "ordered") or v)}
    if parameter.when:
        options["when"] = {
            parent: values[0] if len(values) == 1 and not isinstance(values[0], list | tuple) else list(values)
            for parent, values in parameter.when.items()
        }
    return options


def _call(name: str, *positional: Any, **keywords: Any) -> str:
    texts = [repr(value) for value in positional] + [f"{key}={value!r}" for key, value in keywords.items()]
    return f"{name}({', '.join(texts)})"
