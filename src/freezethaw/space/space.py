"""`Space`: named parameters, fixed values and the conditions between them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freezethaw.errors import SpaceError
from freezethaw.space import exchange
from freezethaw.space.hull import hull
from freezethaw.space.parameters import Choice, Config, Float, Int, Parameter, parameter_from_dict
from freezethaw.space.values import checked_value, listed, plain, storable, token

Array = NDArray[np.float64]

MOST_BRANCHES = 100_000  # of conditions, that `size` follows one by one


@dataclass(frozen=True)
class SpaceDifference:
    """What another space has more, less and changed, in words; a parameter of another kind is removed and added."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()  # bounds, values, conditions, guesses

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        groups = (("added", self.added), ("removed", self.removed), ("changed", self.changed))
        return "; ".join(f"{word}: {', '.join(texts)}" for word, texts in groups if texts) or "no difference"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Space:
    """A search space, `Space(rate=Float(0.0, 1.0))` or `Space({"model.rate": ...})`; a plain value is a fixed one."""

    _entries: dict[str, Any]  # in the order given: a parameter, or a fixed value

    def __init__(self, parameters: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        given = dict(parameters or {})
        for name in named:
            if name in given:
                raise SpaceError(f"{name}: is given twice; name each parameter once")
        entries = {name: _checked_entry(name, entry) for name, entry in (given | named).items()}
        object.__setattr__(self, "_entries", entries)
        _ = self._conditions, self._order  # refuses wrong conditions

    # What is in it.

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        """The searched parameters, in the order of the unit coordinates."""
        searched = {name: entry for name, entry in self._entries.items() if isinstance(entry, Float | Int | Choice)}
        return MappingProxyType(searched)

    @cached_property
    def fixed(self) -> Mapping[str, Any]:
        """The values that every configuration has."""
        return MappingProxyType({name: e for name, e in self._entries.items() if name not in self.parameters})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the searched parameters, in the order of the unit coordinates."""
        return tuple(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def __repr__(self) -> str:
        if all(name.isidentifier() for name in self._entries):
            return f"Space({', '.join(f'{name}={entry!r}' for name, entry in self._entries.items())})"
        return f"Space({self._entries!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Space):
            return NotImplemented
        mine, theirs = (list(space.parameters.items()) for space in (self, other))  # their order matters
        return mine == theirs and token(self.fixed) == token(other.fixed)

    def __hash__(self) -> int:
        return hash((tuple(self.parameters.items()), token(self.fixed)))

    def __getstate__(self) -> dict[str, Any]:
        return {"_entries": self._entries}

    # Conditions.

    @cached_property
    def _conditions(self) -> dict[str, dict[str, dict[Hashable, Any]]]:
        """For each parameter its parents and which of their values it needs, by token."""
        conditions: dict[str, dict[str, dict[Hashable, Any]]] = {}
        for name, parameter in self.parameters.items():
            with _about(name):
                conditions[name] = {
                    parent: {token(v): v for v in (self._parent_value(parent, value) for value in values)}
                    for parent, values in (parameter.when or {}).items()
                }
        return conditions

    def _parent_value(self, parent: str, value: Any) -> Any:
        if parent not in self._entries:
            raise SpaceError(f"when names {parent!r}, which is not in the space{_like(parent, self._entries)}")
        if parent in self.fixed:
            if token(plain(value)) != token(self.fixed[parent]):
                raise SpaceError(f"when needs {parent} = {value!r}, but {parent} is fixed to {self.fixed[parent]!r}")
            return value
        if self.parameters[parent].count is None:
            raise SpaceError(f"when names {parent!r}, a continuous Float; use a Choice, an Int or a Float with a step")
        try:
            return self.parameters[parent].check(value)
        except SpaceError as error:
            raise SpaceError(f"when needs a value that {parent} cannot take: {error}") from None

    @cached_property
    def _order(self) -> tuple[str, ...]:
        """The searched parameters, each after its parents."""
        order: dict[str, None] = {}
        while len(order) < len(self):
            ready = [
                name
                for name, parents in self._conditions.items()
                if name not in order and all(parent in order or parent in self.fixed for parent in parents)
            ]
            if not ready:
                circle = [name for name in self.names if name not in order]
                raise SpaceError(f"{circle[0]}: when goes round in a circle among {listed(circle)}")
            order |= dict.fromkeys(ready)
        return tuple(order)

    def _active(self, name: str, chosen: Mapping[str, Any]) -> bool:
        """Whether a parameter is active, given the values of all its parents that are."""
        needed = self._conditions[name].items()
        return all(parent in chosen and token(chosen[parent]) in values for parent, values in needed)

    def _needs(self, name: str) -> str:
        when = self.parameters[name].when or {}
        return " and ".join(f"{parent} = {' or '.join(map(repr, values))}" for parent, values in when.items())

    # Configurations.

    def config(self, unit: ArrayLike) -> Config:
        """Give the configuration at a point of the unit cube; the coordinates of inactive parameters do not matter."""
        point = self._checked_units(unit, (len(self),))
        coordinates = dict(zip(self.names, point.tolist(), strict=True))
        chosen = dict(self.fixed)
        for name in self._order:
            if self._active(name, chosen):
                chosen[name] = self.parameters[name].value(coordinates[name])
        return self._arranged(chosen)

    def unit(self, config: Mapping[str, Any]) -> Array:
        """Give a point of the unit cube that has this configuration; 0.5 for inactive parameters."""
        valid = self.validate(config)
        units = [parameter.unit(valid[name]) if name in valid else 0.5 for name, parameter in self.parameters.items()]
        return np.array(units, dtype=np.float64)

    def sample(self, rng: np.random.Generator) -> Config:
        """Draw a configuration, each parameter uniform on its scale."""
        return self.config(rng.random(len(self)))

    def validate(self, config: Mapping[str, Any]) -> Config:
        """Normalise a configuration (fixed values filled in, NumPy scalars made plain) or say what is wrong with it."""
        if not isinstance(config, Mapping):
            raise SpaceError(f"a configuration is a dict of parameters and values, not {config!r}")
        for name in config:
            if name not in self._entries:
                raise SpaceError(f"{name}: is not in the space{_like(name, self._entries)}")
        for name, value in self.fixed.items():
            if name in config and token(plain(config[name])) != token(value):
                raise SpaceError(f"{name}: {config[name]!r} is not allowed; it is fixed to {value!r}")
        chosen = dict(self.fixed)
        for name in self._order:
            parameter = self.parameters[name]
            if self._active(name, chosen):
                if name not in config:
                    raise SpaceError(f"{name}: is missing; give {parameter.allowed}")
                with _about(name):
                    chosen[name] = parameter.check(config[name])
            elif name in config:
                raise SpaceError(f"{name}: is inactive here and must be left out; it needs {self._needs(name)}")
        return self._arranged(chosen)

    def key(self, config: Mapping[str, Any]) -> Hashable:
        """Give a hashable value that is the same for equal configurations only."""
        return tuple(sorted((name, token(value)) for name, value in self.validate(config).items()))

    def guesses(self) -> dict[str, float]:
        """Give the unit coordinates of the guesses, of those parameters that have one."""
        return {name: p.unit(p.guess) for name, p in self.parameters.items() if p.guess is not None}

    def _arranged(self, chosen: Mapping[str, Any]) -> Config:
        return {name: chosen[name] for name in self._entries if name in chosen}

    def _checked_units(self, units: ArrayLike, shape: tuple[int, ...]) -> Array:
        points = np.asarray(units, dtype=np.float64)
        if points.shape != shape:
            raise SpaceError(
                f"unit points have shape {points.shape}; this space needs {shape}, one for each of `names`"
            )
        if not np.all((points >= 0) & (points <= 1)):  # NaN fails too
            outside = points[~((points >= 0) & (points <= 1))][0]
            raise SpaceError(f"a unit coordinate is {outside:g}; all must lie in [0, 1]")
        return points

    # Features, for the model.

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """For each feature, which length scale it has: all features of one choice share theirs."""
        shown = [parameter for parameter in self.parameters.values() if parameter.columns]
        return tuple(group for group, parameter in enumerate(shown) for _ in range(parameter.columns))

    @cached_property
    def warped(self) -> tuple[bool, ...]:
        """For each feature, whether it is a number whose scale may be warped."""
        return tuple(p.warped for p in self.parameters.values() for _ in range(p.columns))

    def features(self, config: Mapping[str, Any]) -> Array:
        """Describe a configuration by numbers in [0, 1]; an inactive parameter by constants."""
        valid = self.validate(config)
        parts = [
            parameter.features(valid[name]) if name in valid else np.full(parameter.columns, parameter.absent)
            for name, parameter in self.parameters.items()
        ]
        return np.concatenate([*parts, np.empty(0)])

    def features_of(self, configs: Iterable[Mapping[str, Any]]) -> Array:
        """Describe configurations: a table with a row for each."""
        rows = [self.features(config) for config in configs]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.lengths))

    def features_of_units(self, units: ArrayLike) -> Array:
        """Do `features_of` for the configurations at many points of the unit cube, all at once."""
        points = np.asarray(units, dtype=np.float64)
        points = self._checked_units(points, (len(points) if points.ndim else 0, len(self)))
        column = dict(zip(self.names, points.T, strict=True))
        active: dict[str, NDArray[np.bool_]] = {}
        for name in self._order:
            active[name] = np.ones(len(points), dtype=np.bool_)
            for parent, values in self._conditions[name].items():
                if parent in self.parameters:
                    wanted = [self.parameters[parent].index(value) for value in values.values()]
                    active[name] &= active[parent] & np.isin(self.parameters[parent].bins(column[parent]), wanted)
        parts = [
            np.where(active[name][:, None], parameter.features_at(column[name]), parameter.absent)
            for name, parameter in self.parameters.items()
        ]
        return np.concatenate([*parts, np.empty((len(points), 0))], axis=1)

    # All configurations.

    @cached_property
    def size(self) -> int | float:
        """How many configurations there are, perhaps infinity; an upper bound if conditions branch extremely often."""
        needed: dict[str, dict[Hashable, Any]] = {}  # of each parent, the values that matter
        for conditions in self._conditions.values():
            for parent, values in conditions.items():
                needed[parent] = needed.get(parent, {}) | values
        if math.prod(len(values) + 1 for values in needed.values()) > MOST_BRANCHES:
            return math.prod(_count(parameter) for parameter in self.parameters.values())

        def count(place: int, chosen: dict[str, Any]) -> int | float:
            if place == len(self):
                return 1
            name = self._order[place]
            if not self._active(name, chosen):
                return count(place + 1, chosen)
            number = _count(self.parameters[name])
            if name not in needed:
                return number * count(place + 1, chosen)
            total = sum(count(place + 1, {**chosen, name: value}) for value in needed[name].values())
            rest = number - len(needed[name])
            return total + rest * count(place + 1, {**chosen, name: _OTHER}) if rest else total

        return count(0, dict(self.fixed))

    def enumerate(self) -> Iterator[Config]:
        """Go through all configurations of a finite space, each once."""
        if self.size == math.inf:
            name = next(name for name, parameter in self.parameters.items() if parameter.count is None)
            raise SpaceError(f"{name}: has infinitely many values; give it a step to enumerate the space")
        return self._from(0, dict(self.fixed))

    def _from(self, place: int, chosen: Config) -> Iterator[Config]:
        if place == len(self):
            yield self._arranged(chosen)
            return
        name = self._order[place]
        if not self._active(name, chosen):
            yield from self._from(place + 1, chosen)
            return
        parameter = self.parameters[name]
        for index in range(parameter.count or 0):
            yield from self._from(place + 1, {**chosen, name: parameter.at(index)})

    # To and from elsewhere.

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Describe the space by plain dicts for JSON, and for TOML unless a choice has None, which TOML lacks."""
        described: dict[str, dict[str, Any]] = {}
        for name, entry in self._entries.items():
            with _about(name):
                if name in self.parameters:
                    described[name] = self.parameters[name].to_dict()
                else:
                    described[name] = {"type": "fixed"} if entry is None else {"type": "fixed", "value": entry}
        return described

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Space:
        """Build a space from what `to_dict` gives; plain values are fixed ones."""
        if not isinstance(description, Mapping):
            raise SpaceError(f"a space is described by a dict of parameters, not {description!r}")
        entries = {}
        for name, entry in description.items():
            with _about(name):
                entries[name] = _described(entry) if isinstance(entry, Mapping) else entry
        return cls(entries)

    def difference(self, other: Space) -> SpaceDifference:
        """Say what one would have to add to, remove from and change in this space to get the other one."""
        added, removed, changed = [], [], []
        for name in [*self._entries, *(name for name in other._entries if name not in self._entries)]:
            mine, theirs = (space._entries.get(name, _OTHER) for space in (self, other))
            if _kind(mine) != _kind(theirs):
                removed += [] if mine is _OTHER else [f"{name}={mine!r}"]
                added += [] if theirs is _OTHER else [f"{name}={theirs!r}"]
            elif token(mine) != token(theirs):
                changed.append(f"{name}={mine!r} to {theirs!r}")
        return SpaceDifference(tuple(added), tuple(removed), tuple(changed))

    def hull(self, before: Space) -> Space:
        """Give the smallest space with these parameters that holds this space and an earlier version of it."""
        entries = {name: hull(entry, before._entries.get(name, entry)) for name, entry in self._entries.items()}
        return Space(entries)

    @classmethod
    def from_optuna(cls, distributions: Mapping[str, Any]) -> Space:
        """Build a space from Optuna's distributions by name, as in `trial.distributions`."""
        return cls(exchange.from_optuna(distributions))

    def to_optuna(self) -> dict[str, Any]:
        """Give Optuna's distributions by name; Optuna knows no conditions, guesses or ordered choices."""
        return exchange.to_optuna(self.parameters, self.fixed)

    @classmethod
    def from_ray_tune(cls, param_space: Mapping[str, Any]) -> Space:
        """Build a space from the `param_space` of Ray Tune: `tune.uniform`, `loguniform`, `randint`, `choice`, ..."""
        return cls(exchange.from_ray_tune(param_space))

    @classmethod
    def from_configspace(cls, configspace: Any) -> Space:
        """Build a space from a `ConfigurationSpace`; forbidden clauses are refused, defaults are no guesses."""
        return cls(exchange.from_configspace(configspace))

    def to_configspace(self) -> Any:
        """Give a `ConfigurationSpace`; a parameter with steps becomes an ordinal one, and a guess the default."""
        return exchange.to_configspace(self.parameters, self.fixed)


_OTHER: Any = object()  # any value that is not listed


def _count(parameter: Parameter) -> int | float:
    return math.inf if parameter.count is None else parameter.count


def _kind(entry: Any) -> object:
    return type(entry) if isinstance(entry, Float | Int | Choice) or entry is _OTHER else "fixed"


def _described(entry: Mapping[str, Any]) -> Any:
    if "type" not in entry:
        raise SpaceError("its description has no type; give 'float', 'int', 'choice' or 'fixed'")
    if entry["type"] != "fixed":
        return parameter_from_dict(entry)
    unknown = [key for key in entry if key not in ("type", "value")]
    if unknown:
        raise SpaceError(f"unknown key {unknown[0]!r}; type 'fixed' has 'value'")
    return entry.get("value")


def _checked_entry(name: Any, entry: Any) -> Any:
    if not isinstance(name, str) or not name:
        raise SpaceError(f"a parameter's name must be a text that is not empty, not {name!r}")
    entry = plain(entry)
    if isinstance(entry, Float | Int | Choice):
        return entry
    if isinstance(entry, type) and issubclass(entry, Float | Int | Choice):
        raise SpaceError(f"{name}: is the class {entry.__name__}; call it, as in {entry.__name__}(...)")
    if entry is not None and not isinstance(entry, bool | int | float | str):
        hint = "write Choice(...) to search among values, Choice([...]) to fix a list"
        raise SpaceError(f"{name}: {entry!r} is no parameter and no plain value; {hint}")
    with _about(name):
        return storable(checked_value(entry))


def _like(name: object, known: Iterable[str]) -> str:
    """Suggest what may have been meant."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f", which has {listed(known) or 'no parameters'}"


@contextmanager
def _about(name: str) -> Iterator[None]:
    """Name the parameter in errors."""
    try:
        yield
    except SpaceError as error:
        raise SpaceError(f"{name}: {error}") from None
