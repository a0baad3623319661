"""Configurations of runs and candidates, encoded once: their features for the model and their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from freezethaw.errors import SpaceError
from freezethaw.records import Config, Run
from freezethaw.space import Space

Array = NDArray[np.float64]


class Catalogue:
    """Remembers what encoding a configuration gave, by the run's number or by the candidate's place in the list.

    New configurations come from `space`. The model sees them, and older ones that lie outside since the bounds were
    changed, in `modelled`, which holds both.
    """

    def __init__(self, space: Space, candidates: Sequence[Config] | None, modelled: Space | None = None) -> None:
        self.space, self.modelled = space, modelled or space
        self.candidates = None if candidates is None else [space.validate(c) for c in candidates]
        self._listed = None if self.candidates is None else self.modelled.features_of(self.candidates)
        self._listed_keys = None if self.candidates is None else [self.modelled.key(c) for c in self.candidates]
        self._features: dict[int, Array] = {}
        self._keys: dict[int, Hashable] = {}

    def features(self, runs: Sequence[Run]) -> Array:
        """(N, columns) of these runs."""
        for run in runs:
            if run.number not in self._features:
                self._features[run.number] = self.modelled.features(run.config)
        columns = len(self.modelled.lengths)
        return np.array([self._features[run.number] for run in runs]).reshape(len(runs), columns)

    def allows(self, config: Config) -> bool:
        """Whether a configuration lies within the bounds of now."""
        if self.modelled is self.space:
            return True
        try:
            self.space.validate(config)
        except SpaceError:
            return False
        return True

    def features_of_units(self, units: Array) -> Array:
        """(C, columns) of points in the cube of `space`."""
        if self.modelled is self.space:
            return self.space.features_of_units(units)
        return self.modelled.features_of([self.space.config(unit) for unit in units])

    def unstarted(
        self, runs: Sequence[Run], repeats: int, most: int, rng: np.random.Generator
    ) -> tuple[list[Config], Array]:
        """Candidates of the list that were started less than `repeats` times, at most so many, with their features."""
        if self.candidates is None or self._listed is None or self._listed_keys is None:
            return [], np.empty((0, len(self.modelled.lengths)))
        for run in runs[len(self._keys) :]:
            self._keys[run.number] = self.modelled.key(run.config)
        started = Counter(self._keys.values())
        rest = np.array([i for i, key in enumerate(self._listed_keys) if started[key] < repeats], dtype=np.int64)
        if len(rest) > most:
            rest = rng.choice(rest, size=most, replace=False)
        return [self.candidates[i] for i in rest], self._listed[rest]
