"""Configurations as the model sees them, and those that may be started: from a list, or proposed from the space.

Proposals are a low-discrepancy sample of the space and points around the best configurations so far. Each proposal has
neighbours, with which the policy refines its best ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from freezethaw.decide.earlier import EarlierInputs, EarlierStudy
from freezethaw.errors import SpaceError
from freezethaw.model.specification import Geometry
from freezethaw.records import Config, Run
from freezethaw.space import Space

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

LISTED = 256  # candidates of a longer list that are compared in one decision, drawn at random
EVEN = 192  # proposals from the low-discrepancy sequence
NEAR = 64  # proposals around the best runs
EXPECTED = 32  # more, around the best runs of earlier studies; of a list, those that these studies expect to be best
STEPS = (0.02, 0.05, 0.15)  # standard deviations of the steps away from a good configuration, in the unit cube
GUESS_STEP = 0.1
NEIGHBOURS = 6  # of each proposal


@dataclass(frozen=True)
class Neighbours:
    """Configurations near some candidates that may be started too."""

    numbers: IntArray  # (n,) after those of the C candidates
    centres: IntArray  # (n,) the candidate that each is near to
    features: Array  # (n, columns)


@dataclass(frozen=True)
class Candidates:
    """Configurations that may be started: their features, and a function that gives each as a configuration."""

    features: Array  # (C, columns)
    config: Callable[[int], Config]
    neighbours: Callable[[IntArray], Neighbours] | None = None  # of some candidates; None if there are none
    every_neighbour: Callable[[IntArray], Array] | None = None  # (n, columns) features, by number

    def __len__(self) -> int:
        return len(self.features)

    def at(self, indices: IntArray) -> Array:
        """Features of candidates and of neighbours."""
        count = len(self)
        found = np.empty((len(indices), self.features.shape[1]))
        own = indices < count
        found[own] = self.features[indices[own]]
        if self.every_neighbour is not None:
            found[~own] = self.every_neighbour(indices[~own])
        return found


class Configurations:
    """Encodes configurations and remembers the result, by the run's number or the candidate's index.

    New configurations come from `space`. `union` also holds configurations of earlier versions of the space, since
    bounds may be changed during a study; the model's features are those of the union.
    """

    def __init__(
        self,
        space: Space,
        candidates: Sequence[Config] | None,
        union: Space | None = None,
        earlier: Sequence[EarlierStudy] = (),
    ) -> None:
        self.space, self.union = space, union or space
        self.earlier = EarlierInputs(earlier, self.union)
        self.candidates = candidates
        self._listed = self.features_of(candidates or ())
        self._listed_keys = [self.union.key(c) for c in candidates or ()]
        self._features: dict[int, Array] = {}
        self._keys: dict[int, Hashable] = {}

    @cached_property
    def geometry(self) -> Geometry:
        """Length scale and warping of each column of the features: an earlier study has a length scale of its own."""
        lengths, count = self.union.lengths, len(self.earlier.studies)
        first = max(lengths, default=-1) + 1
        return Geometry((*lengths, *range(first, first + count)), (*self.union.warped, *(False,) * count), count)

    def features_of(self, configs: Sequence[Config]) -> Array:
        """(N, columns) of configurations, with the inputs that earlier studies give."""
        return self._with_earlier(self.union.features_of(configs))

    def _with_earlier(self, features: Array) -> Array:
        return np.hstack([features, self.earlier.of(features)]) if self.earlier.studies else features

    def features(self, runs: Sequence[Run]) -> Array:
        """(N, columns) of these runs."""
        for run in runs:
            if run.number not in self._features:
                self._features[run.number] = self.features_of([run.config])[0]
        columns = len(self.geometry.lengths)
        return np.array([self._features[run.number] for run in runs]).reshape(len(runs), columns)

    def new(self, runs: Sequence[Run], best: Sequence[Run], repeats: int, rng: np.random.Generator) -> Candidates:
        """Configurations that may be started, each at most `repeats` times; `best` are the centres of refinement."""
        if self.candidates is not None:
            return self._unstarted(self.candidates, runs, repeats, rng)
        centres = [run.config for run in best if self._within_bounds(run.config)]
        return self._propose(centres, self.features(runs), repeats, rng)

    def _unstarted(
        self, candidates: Sequence[Config], runs: Sequence[Run], repeats: int, rng: np.random.Generator
    ) -> Candidates:
        """Candidates of the list that were started fewer than `repeats` times."""
        for run in runs[len(self._keys) :]:
            self._keys[run.number] = self.union.key(run.config)
        started = Counter(self._keys.values())
        rest = np.array([i for i, key in enumerate(self._listed_keys) if started[key] < repeats], dtype=np.int64)
        if len(rest) > LISTED:
            drawn = rng.choice(rest, size=LISTED, replace=False)
            rest = np.concatenate([drawn, np.setdiff1d(self._expected_to_be_best(rest), drawn)])
        configs = [candidates[i] for i in rest]
        return Candidates(self._listed[rest], lambda i: configs[i])

    def _expected_to_be_best(self, indices: IntArray) -> IntArray:
        """Of these candidates those that earlier studies expect to be best: any of them, and all together."""
        if not self.earlier.studies:
            return indices[:0]
        expected = self._listed[indices, -len(self.earlier.studies) :]
        orders = [np.argsort(e, kind="stable")[:EXPECTED] for e in (expected.min(axis=1), expected.mean(axis=1))]
        return np.unique(indices[np.concatenate(orders)])

    def _propose(self, best: Sequence[Config], started: Array, repeats: int, rng: np.random.Generator) -> Candidates:
        """Distinct configurations started fewer than `repeats` times; `started` are the features of all runs.

        The user's guesses matter less as runs come in.
        """
        space, d = self.space, len(self.space)
        if space.size <= EVEN + NEAR:
            configs = list(space.enumerate())
            features = self.features_of(configs)
            kept = _unstarted_rows(features, started, repeats)
            return Candidates(features[kept], lambda i: configs[kept[i]])
        guessed = round(EVEN / (1 + len(started))) if space.guesses() else 0
        centres = np.array([space.unit(c) for c in best]).reshape(-1, d)
        expected = np.array([space.unit(c) for c in self.earlier.best if self._within_bounds(c)]).reshape(-1, d)
        units = np.concatenate(
            [
                around_guesses(space, guessed, rng),
                low_discrepancy(EVEN - guessed, d, rng),
                near(centres, NEAR if best else 0, rng),
                centres if repeats > 1 else np.empty((0, d)),
                expected,
                near(expected, EXPECTED, rng),
            ]
        )
        features = self._features_of_units(units)
        _, first = np.unique(features, axis=0, return_index=True)
        kept = np.sort(first)
        kept = kept[_unstarted_rows(features[kept], started, repeats)]
        units, features = units[kept], features[kept]
        count, steps = len(units), random_steps(NEIGHBOURS, d, rng)  # the same steps for all: there is nothing to store

        def unit_of(numbers: IntArray) -> Array:
            centres, which = np.divmod(numbers - count, NEIGHBOURS)
            return np.asarray(np.clip(units[centres] + steps[which], 0.0, 1.0))

        def of_neighbours(numbers: IntArray) -> Array:
            return self._features_of_units(unit_of(numbers))

        def neighbours(centres: IntArray) -> Neighbours:
            numbers = (count + NEIGHBOURS * centres[:, None] + np.arange(NEIGHBOURS)).reshape(-1)
            around = of_neighbours(numbers)
            kept = _unstarted_rows(around, started, repeats)
            return Neighbours(numbers[kept], np.repeat(centres, NEIGHBOURS)[kept], around[kept])

        def config(i: int) -> Config:
            return space.config(units[i] if i < count else unit_of(np.array([i]))[0])

        return Candidates(features, config, neighbours, of_neighbours)

    def _within_bounds(self, config: Config) -> bool:
        """Whether a configuration lies within the current bounds."""
        if self.union is self.space:
            return True
        try:
            self.space.validate(config)
        except SpaceError:
            return False
        return True

    def _features_of_units(self, units: Array) -> Array:
        """(C, columns) of points in the cube of `space`."""
        if self.union is self.space:
            return self._with_earlier(self.space.features_of_units(units))
        return self.features_of([self.space.config(unit) for unit in units])


def low_discrepancy(count: int, dimensions: int, rng: np.random.Generator) -> Array:
    """(count, dimensions) points of the R sequence (Roberts 2018), shifted at random."""
    root = 2.0
    for _ in range(60):  # the positive root of x^(d+1) = x + 1, by fixed-point iteration
        root = (1 + root) ** (1 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1.0)
    return np.asarray((rng.random(dimensions) + np.outer(np.arange(1.0, count + 1.0), steps)) % 1.0)


def near(centres: Array, count: int, rng: np.random.Generator) -> Array:
    """Points around good ones."""
    if not len(centres):
        return np.empty((0, centres.shape[1]))
    chosen = centres[rng.integers(len(centres), size=count)]
    return np.asarray(np.clip(chosen + random_steps(count, chosen.shape[1], rng), 0.0, 1.0))


def random_steps(count: int, dimensions: int, rng: np.random.Generator) -> Array:
    """(count, dimensions) steps of several sizes, in some of the dimensions only."""
    size = rng.choice(STEPS, size=(count, 1))
    moved = rng.random((count, dimensions)) < max(0.5, 1.0 / dimensions)
    return np.asarray(size * moved * rng.standard_normal((count, dimensions)))


def around_guesses(space: Space, count: int, rng: np.random.Generator) -> Array:
    """Points where guessed parameters are close to their guess and the others are anywhere."""
    guesses = space.guesses()
    units = low_discrepancy(count, len(space), rng)
    for column, name in enumerate(space.names):
        if name in guesses:
            units[:, column] = np.clip(guesses[name] + GUESS_STEP * rng.standard_normal(count), 0.0, 1.0)
    return units


def _unstarted_rows(features: Array, started: Array, repeats: int) -> NDArray[np.int64]:
    """Indices of the rows that were started fewer than `repeats` times; equal features mean equal configurations."""
    known = Counter(row.tobytes() for row in started)
    return np.array([i for i, row in enumerate(features) if known[row.tobytes()] < repeats], dtype=np.int64)
