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
from freezethaw.space.parameters import Choice, Config, Float, Int, Parameter, parameter_from_dict, union
from freezethaw.space.values import checked_value, listed, plain, storable, token

Array = NDArray[np.float64]

MAX_BRANCHES = 100_000  # of conditions, counted exactly by `size`


@dataclass(frozen=True)
class SpaceDifference:
    """The difference between two spaces, as texts. A parameter whose kind has changed is removed and added."""

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
    """A search space, `Space(rate=Float(0.0, 1.0))` or `Space({"model.rate": ...})`; other values are fixed."""

    _entries: dict[str, Any]  # a parameter or a fixed value by name

    def __init__(self, parameters: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        given = dict(parameters or {})
        for name in named:
            if name in given:
                raise SpaceError(f"{name}: is given twice")
        entries = {name: _checked_entry(name, entry) for name, entry in (given | named).items()}
        object.__setattr__(self, "_entries", entries)
        _ = self._conditions, self._order  # raises for wrong conditions

    @classmethod
    def of(cls, space: Space | Mapping[str, Any]) -> Space:
        """Return the space itself, or a space made from a dict of parameters."""
        if isinstance(space, Space):
            return space
        if isinstance(space, Mapping):
            return cls(space)
        raise SpaceError(f"expected a Space or a dict of parameters, not {space!r}")

    # Parameters.

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        """The searched parameters, in the order of the unit coordinates."""
        searched = {name: entry for name, entry in self._entries.items() if isinstance(entry, Float | Int | Choice)}
        return MappingProxyType(searched)

    @cached_property
    def fixed(self) -> Mapping[str, Any]:
        """The fixed values."""
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
        mine, theirs = (list(space.parameters.items()) for space in (self, other))  # in order
        return mine == theirs and token(self.fixed) == token(other.fixed)

    def __hash__(self) -> int:
        return hash((tuple(self.parameters.items()), token(self.fixed)))

    def __getstate__(self) -> dict[str, Any]:
        return {"_entries": self._entries}

    # Conditions.

    @cached_property
    def _conditions(self) -> dict[str, dict[str, dict[Hashable, Any]]]:
        """For each parameter its parents, with the values of each that make it active, by token."""
        conditions: dict[str, dict[str, dict[Hashable, Any]]] = {}
        for name, parameter in self.parameters.items():
            with _errors_name(name):
                conditions[name] = {
                    parent: {token(v): v for v in (self._parent_value(parent, value) for value in values)}
                    for parent, values in (parameter.when or {}).items()
                }
        return conditions

    def _parent_value(self, parent: str, value: Any) -> Any:
        if parent not in self._entries:
            raise SpaceError(f"when names {parent!r}, which is not in the space{_suggestion(parent, self._entries)}")
        if parent in self.fixed:
            if token(plain(value)) != token(self.fixed[parent]):
                raise SpaceError(f"when needs {parent} = {value!r}, but {parent} is fixed to {self.fixed[parent]!r}")
            return value
        if self.parameters[parent].count is None:
            raise SpaceError(f"when names {parent!r}, a continuous Float; use a Choice, an Int or a Float with a step")
        try:
            return self.parameters[parent].check(value)
        except SpaceError as error:
            raise SpaceError(f"when needs a value that {parent} cannot have: {error}") from None

    @cached_property
    def _order(self) -> tuple[str, ...]:
        """The searched parameters in topological order, parents first."""
        order: dict[str, None] = {}
        while len(order) < len(self):
            ready = [
                name
                for name, parents in self._conditions.items()
                if name not in order and all(parent in order or parent in self.fixed for parent in parents)
            ]
            if not ready:
                cycle = [name for name in self.names if name not in order]
                raise SpaceError(f"{cycle[0]}: the conditions of {listed(cycle)} form a cycle")
            order |= dict.fromkeys(ready)
        return tuple(order)

    def _active(self, name: str, chosen: Mapping[str, Any]) -> bool:
        """Whether a parameter is active, given the values of its active parents."""
        needed = self._conditions[name].items()
        return all(parent in chosen and token(chosen[parent]) in values for parent, values in needed)

    def _needs(self, name: str) -> str:
        when = self.parameters[name].when or {}
        return " and ".join(f"{parent} = {' or '.join(map(repr, values))}" for parent, values in when.items())

    # Configurations.

    def config(self, unit: ArrayLike) -> Config:
        """The configuration at a unit point; coordinates of inactive parameters are ignored."""
        point = self._checked_units(unit, (len(self),))
        coordinates = dict(zip(self.names, point.tolist(), strict=True))
        chosen = dict(self.fixed)
        for name in self._order:
            if self._active(name, chosen):
                chosen[name] = self.parameters[name].value(coordinates[name])
        return self._in_order(chosen)

    def unit(self, config: Mapping[str, Any]) -> Array:
        """A unit point of a configuration; 0.5 for inactive parameters."""
        valid = self.validate(config)
        units = [parameter.unit(valid[name]) if name in valid else 0.5 for name, parameter in self.parameters.items()]
        return np.array(units, dtype=np.float64)

    def sample(self, rng: np.random.Generator) -> Config:
        """Sample a configuration, each parameter uniform on its scale."""
        return self.config(rng.random(len(self)))

    def validate(self, config: Mapping[str, Any]) -> Config:
        """Validate and normalise a configuration: fixed values are added, NumPy scalars converted."""
        if not isinstance(config, Mapping):
            raise SpaceError(f"a configuration is a dict of parameters and values, not {config!r}")
        for name in config:
            if name not in self._entries:
                raise SpaceError(f"{name}: is not in the space{_suggestion(name, self._entries)}")
        for name, value in self.fixed.items():
            if name in config and token(plain(config[name])) != token(value):
                raise SpaceError(f"{name}: {config[name]!r} is not allowed; it is fixed to {value!r}")
        chosen = dict(self.fixed)
        for name in self._order:
            parameter = self.parameters[name]
            if self._active(name, chosen):
                if name not in config:
                    raise SpaceError(f"{name}: is missing; give {parameter.allowed}")
                with _errors_name(name):
                    chosen[name] = parameter.check(config[name])
            elif name in config:
                raise SpaceError(f"{name}: is inactive here and must be left out; it needs {self._needs(name)}")
        return self._in_order(chosen)

    def completed(self, config: Mapping[str, Any]) -> Config:
        """A configuration with these values; missing parameters are in the middle, inactive ones are left out."""
        chosen = dict(self.fixed)
        for name in self._order:
            if self._active(name, chosen):
                parameter = self.parameters[name]
                with _errors_name(name):
                    chosen[name] = parameter.check(config[name]) if name in config else parameter.value(0.5)
        return self._in_order(chosen)

    def key(self, config: Mapping[str, Any]) -> Hashable:
        """A hashable key, equal for equal configurations only."""
        return tuple(sorted((name, token(value)) for name, value in self.validate(config).items()))

    def guesses(self) -> dict[str, float]:
        """The unit coordinates of all guesses, by parameter."""
        return {name: p.unit(p.guess) for name, p in self.parameters.items() if p.guess is not None}

    def _in_order(self, chosen: Mapping[str, Any]) -> Config:
        return {name: chosen[name] for name in self._entries if name in chosen}

    def _checked_units(self, units: ArrayLike, shape: tuple[int, ...]) -> Array:
        points = np.asarray(units, dtype=np.float64)
        if points.shape != shape:
            raise SpaceError(f"unit points have shape {points.shape}; this space needs {shape}, one per parameter")
        if not np.all((points >= 0) & (points <= 1)):  # NaN fails too
            outside = points[~((points >= 0) & (points <= 1))][0]
            raise SpaceError(f"a unit coordinate is {outside:g}; all must lie in [0, 1]")
        return points

    # Features.

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The length scale of each feature, by index: the features of one choice share theirs."""
        shown = [parameter for parameter in self.parameters.values() if parameter.columns]
        return tuple(group for group, parameter in enumerate(shown) for _ in range(parameter.columns))

    @cached_property
    def warped(self) -> tuple[bool, ...]:
        """For each feature, whether the model may warp it."""
        return tuple(p.warped for p in self.parameters.values() for _ in range(p.columns))

    def features(self, config: Mapping[str, Any]) -> Array:
        """The features of a configuration, in [0, 1]; constants for inactive parameters."""
        valid = self.validate(config)
        parts = [
            parameter.features(valid[name]) if name in valid else np.full(parameter.columns, parameter.absent)
            for name, parameter in self.parameters.items()
        ]
        return np.concatenate([*parts, np.empty(0)])

    def features_of(self, configs: Iterable[Mapping[str, Any]]) -> Array:
        """The features of several configurations, one row each."""
        rows = [self.features(config) for config in configs]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.lengths))

    def features_of_units(self, units: ArrayLike) -> Array:
        """The features of the configurations at many unit points, vectorised."""
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

    # Enumeration.

    @cached_property
    def size(self) -> int | float:
        """The number of configurations, possibly infinite; an upper bound if there are very many conditions."""
        needed: dict[str, dict[Hashable, Any]] = {}  # by parent, the values used in conditions
        for conditions in self._conditions.values():
            for parent, values in conditions.items():
                needed[parent] = needed.get(parent, {}) | values
        if math.prod(len(values) + 1 for values in needed.values()) > MAX_BRANCHES:
            return math.prod(_count(parameter) for parameter in self.parameters.values())

        def count(position: int, chosen: dict[str, Any]) -> int | float:
            if position == len(self):
                return 1
            name = self._order[position]
            if not self._active(name, chosen):
                return count(position + 1, chosen)
            number = _count(self.parameters[name])
            if name not in needed:
                return number * count(position + 1, chosen)
            total = sum(count(position + 1, {**chosen, name: value}) for value in needed[name].values())
            rest = number - len(needed[name])
            return total + rest * count(position + 1, {**chosen, name: _OTHER}) if rest else total

        return count(0, dict(self.fixed))

    def enumerate(self) -> Iterator[Config]:
        """All configurations of a finite space."""
        if self.size == math.inf:
            name = next(name for name, parameter in self.parameters.items() if parameter.count is None)
            raise SpaceError(f"{name}: has infinitely many values; give it a step to enumerate the space")
        return self._from(0, dict(self.fixed))

    def _from(self, position: int, chosen: Config) -> Iterator[Config]:
        if position == len(self):
            yield self._in_order(chosen)
            return
        name = self._order[position]
        if not self._active(name, chosen):
            yield from self._from(position + 1, chosen)
            return
        parameter = self.parameters[name]
        for index in range(parameter.count or 0):
            yield from self._from(position + 1, {**chosen, name: parameter.at(index)})

    # Conversion.

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """A description for JSON or TOML; TOML has no None."""
        described: dict[str, dict[str, Any]] = {}
        for name, entry in self._entries.items():
            with _errors_name(name):
                if name in self.parameters:
                    described[name] = self.parameters[name].to_dict()
                else:
                    described[name] = {"type": "fixed"} if entry is None else {"type": "fixed", "value": entry}
        return described

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Space:
        """Build a space from the description that `to_dict` returns; plain values are fixed."""
        if not isinstance(description, Mapping):
            raise SpaceError(f"a space is described by a dict of parameters, not {description!r}")
        entries = {}
        for name, entry in description.items():
            with _errors_name(name):
                entries[name] = _described(entry) if isinstance(entry, Mapping) else entry
        return cls(entries)

    def difference(self, other: Space) -> SpaceDifference:
        """The changes that turn this space into the other one."""
        added, removed, changed = [], [], []
        for name in [*self._entries, *(name for name in other._entries if name not in self._entries)]:
            mine, theirs = (space._entries.get(name, _OTHER) for space in (self, other))
            if _kind(mine) != _kind(theirs):
                removed += [] if mine is _OTHER else [f"{name}={mine!r}"]
                added += [] if theirs is _OTHER else [f"{name}={theirs!r}"]
            elif token(mine) != token(theirs):
                changed.append(f"{name}={mine!r} to {theirs!r}")
        return SpaceDifference(tuple(added), tuple(removed), tuple(changed))

    def union(self, before: Space) -> Space:
        """The smallest space with these parameters that contains this space and an earlier version of it."""
        entries = {name: union(entry, before._entries.get(name, entry)) for name, entry in self._entries.items()}
        return Space(entries)

    @classmethod
    def from_optuna(cls, source: Any) -> Space:
        """The space of an Optuna study: of all its trials, with conditional parameters; or of some distributions.

        A parameter that only some trials have becomes conditional (`when`) on the choice or integer that explains it.
        """
        return cls(exchange.from_optuna(source))

    def to_optuna(self) -> dict[str, Any]:
        """Convert to Optuna distributions; conditions, guesses and the order of choices are lost."""
        return exchange.to_optuna(self.parameters, self.fixed)

    @classmethod
    def from_ray_tune(cls, param_space: Mapping[str, Any]) -> Space:
        """Convert the `param_space` of Ray Tune: `tune.uniform`, `loguniform`, `randint`, `choice`, ..."""
        return cls(exchange.from_ray_tune(param_space))

    @classmethod
    def from_configspace(cls, configspace: Any) -> Space:
        """Convert a `ConfigurationSpace`; forbidden clauses are not supported, defaults are ignored."""
        return cls(exchange.from_configspace(configspace))

    def to_configspace(self) -> Any:
        """Convert to a `ConfigurationSpace`; a parameter with steps becomes ordinal, a guess becomes the default."""
        return exchange.to_configspace(self.parameters, self.fixed)


_OTHER: Any = object()  # stands for any other value


def _count(parameter: Parameter) -> int | float:
    return math.inf if parameter.count is None else parameter.count


def _kind(entry: Any) -> object:
    return type(entry) if isinstance(entry, Float | Int | Choice) or entry is _OTHER else "fixed"


def _described(entry: Mapping[str, Any]) -> Any:
    if "type" not in entry:
        raise SpaceError("the description has no type; give 'float', 'int', 'choice' or 'fixed'")
    if entry["type"] != "fixed":
        return parameter_from_dict(entry)
    unknown = [key for key in entry if key not in ("type", "value")]
    if unknown:
        raise SpaceError(f"unknown key {unknown[0]!r}; type 'fixed' has 'value'")
    return entry.get("value")


def _checked_entry(name: Any, entry: Any) -> Any:
    if not isinstance(name, str) or not name:
        raise SpaceError(f"the name of a parameter must be a non-empty string, not {name!r}")
    entry = plain(entry)
    if isinstance(entry, Float | Int | Choice):
        return entry
    if isinstance(entry, type) and issubclass(entry, Float | Int | Choice):
        raise SpaceError(f"{name}: is the class {entry.__name__}; call it, as in {entry.__name__}(...)")
    if entry is not None and not isinstance(entry, bool | int | float | str):
        hint = "use Choice([...]) to choose among values, Choice([[...]]) for a fixed list"
        raise SpaceError(f"{name}: {entry!r} is neither a parameter nor a simple value; {hint}")
    with _errors_name(name):
        return storable(checked_value(entry))


def _suggestion(name: object, known: Iterable[str]) -> str:
    """A suggestion for an unknown name."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f", which has {listed(known) or 'no parameters'}"


@contextmanager
def _errors_name(name: str) -> Iterator[None]:
    """Add the name of the parameter to errors."""
    try:
        yield
    except SpaceError as error:
        raise SpaceError(f"{name}: {error}") from None
