"""The parameters that two studies have in common, and the features of configurations in these parameters alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.specification import Geometry
from freezethaw.records import Config
from freezethaw.space import Choice, Float, Space
from freezethaw.space.parameters import Parameter, union

Array = NDArray[np.float64]

SCALE_KNOTS = 65  # of the map between a linear and a log scale


def shared_parameters(space: Space, before: Space, configs: Sequence[Config]) -> dict[str, Parameter]:
    """The parameters of a space that an earlier one has too, by name and meaning, with room for all values there.

    The meaning is the same if the values are numbers in both spaces, or if both are choices. The scale is that of the
    new space; values that a log scale cannot hold count as its lower end.
    """
    found: dict[str, Parameter] = {}
    for name, parameter in space.parameters.items():
        old, values = before.parameters.get(name), [config[name] for config in configs if name in config]
        if old is None or not values:
            continue
        if isinstance(parameter, Choice):
            if isinstance(old, Choice):
                found[name] = Choice(union(parameter, old).values, ordered=parameter.ordered)
        elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            within = [value for value in values if value > 0 or not parameter.log]
            low, high = min([parameter.low, *within]), max([parameter.high, *within])
            found[name] = Float(float(low), float(high), log=parameter.log)
    return found


class SharedFeatures:
    """Features in some parameters, of configurations and of features of a space that has these parameters too.

    Numbers have the same scale in both, so their features differ by an affine map. Values of a choice are looked up.
    """

    def __init__(self, parameters: Mapping[str, Parameter], space: Space) -> None:
        self.parameters = parameters
        ends = np.cumsum([0, *(p.columns for p in space.parameters.values())])
        given = {name: slice(ends[i], ends[i + 1]) for i, name in enumerate(space.parameters)}
        wanted_ends = np.cumsum([0, *(p.columns for p in parameters.values())])
        self._matrix, self._offset = np.zeros((ends[-1], wanted_ends[-1])), np.zeros(wanted_ends[-1])
        self._curved: list[tuple[int, slice, Array]] = []  # columns of the space, wanted columns, features at the knots
        self._absent: dict[str, Array] = {}  # the image of the feature of an inactive parameter
        for i, (name, wanted) in enumerate(parameters.items()):
            parameter, columns, to = space.parameters[name], given[name], slice(wanted_ends[i], wanted_ends[i + 1])
            at = _at(wanted, parameter)  # the wanted features at each value of a choice, or at both ends of a number
            if parameter.columns > 1:  # one column for each value, of length 1 / sqrt(2)
                self._matrix[columns, to] = math.sqrt(2) * at
            elif parameter.columns == 0:
                self._offset[to] = at[0]
            elif len(at) == 2:
                self._offset[to], self._matrix[columns, to] = at[0], at[1] - at[0]
            else:
                self._curved.append((columns.start, to, at))
            inactive = np.zeros((1, ends[-1]))
            inactive[0, columns] = parameter.absent
            self._absent[name] = self.of(inactive)[0, to]

    @property
    def geometry(self) -> Geometry:
        """Length scales and warps."""
        return geometry_of(self.parameters)

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self._offset)

    def of(self, features: Array) -> Array:
        """(C, columns) from features in the space."""
        found = features @ self._matrix + self._offset
        for column, to, at in self._curved:
            knots = np.linspace(0.0, 1.0, len(at))
            found[:, to] = np.stack([np.interp(features[:, column], knots, y) for y in at.T], axis=1)
        return np.clip(found, 0.0, 1.0)

    def of_configs(self, configs: Sequence[Config]) -> Array:
        """(N, columns) of configurations of the earlier study."""
        return features_of(configs, self.parameters, self._absent)


def geometry_of(parameters: Mapping[str, Parameter]) -> Geometry:
    """Each parameter has its own length scale."""
    columns = [p.columns for p in parameters.values() if p.columns]
    lengths = tuple(group for group, count in enumerate(columns) for _ in range(count))
    return Geometry(lengths, tuple(p.warped for p in parameters.values() for _ in range(p.columns)))


def features_of(
    configs: Sequence[Config], parameters: Mapping[str, Parameter], absent: Mapping[str, Array] | None = None
) -> Array:
    """(N, columns) in these parameters, within their bounds; `absent` where a parameter is missing."""
    absent = absent or {name: np.full(p.columns, p.absent) for name, p in parameters.items()}
    rows = [
        [_features(p, config[name]) if name in config else absent[name] for name, p in parameters.items()]
        for config in configs
    ]
    width = sum(p.columns for p in parameters.values())
    return np.array([np.concatenate([*row, np.empty(0)]) for row in rows]).reshape(len(configs), width)


def _features(parameter: Parameter, value: object) -> Array:
    if isinstance(parameter, Choice):
        return parameter.features(value)
    return parameter.features(min(max(value, parameter.low), parameter.high))  # type: ignore[call-overload]


def _at(wanted: Parameter, given: Parameter) -> Array:
    """(knots, columns) the wanted features at each value of a choice, or at both ends of a number."""
    if isinstance(wanted, Choice):
        missing = np.full(wanted.columns, wanted.absent)
        values = [given.at(i) for i in range(given.count or 0)]
        return np.array([wanted.features(v) if _has(wanted, v) else missing for v in values])
    assert not isinstance(given, Choice)  # noqa: S101 - both are numbers
    count = 2 if given.log == wanted.log else SCALE_KNOTS  # the user may change the scale during a study
    scale = Float(float(given.low), float(given.high), log=given.log)
    values = [scale.value(unit) for unit in np.linspace(0.0, 1.0, count).tolist()]
    if not wanted.log:
        return np.array([[(value - wanted.low) / (wanted.high - wanted.low)] for value in values])
    low, high = math.log(wanted.low), math.log(wanted.high)
    return np.array([[(math.log(max(value, 1e-300)) - low) / (high - low)] for value in values])


def _has(choice: Choice, value: object) -> bool:
    return any(type(v) is type(value) and v == value for v in choice.values)
