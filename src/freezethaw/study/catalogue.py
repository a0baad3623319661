"""Configurations of runs and candidates, encoded once: their features for the model and their keys."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from freezethaw.records import Config, Run
from freezethaw.space import Space

Array = NDArray[np.float64]


class Catalogue:
    """Remembers what encoding a configuration gave, by the run's number or by the candidate's place in the list."""

    def __init__(self, space: Space, candidates: Sequence[Config] | None) -> None:
        self.space = space
        self.candidates = None if candidates is None else [space.validate(c) for c in candidates]
        self._listed = None if self.candidates is None else space.features_of(self.candidates)
        self._listed_keys = None if self.candidates is None else [space.key(c) for c in self.candidates]
        self._features: dict[int, Array] = {}
        self._keys: dict[int, Hashable] = {}

    def features(self, runs: Sequence[Run]) -> Array:
        """(N, columns) of these runs."""
        for run in runs:
            if run.number not in self._features:
                self._features[run.number] = self.space.features(run.config)
        columns = len(self.space.lengths)
        return np.array([self._features[run.number] for run in runs]).reshape(len(runs), columns)

    def unstarted(self, runs: Sequence[Run], most: int, rng: np.random.Generator) -> tuple[list[Config], Array]:
        """Candidates of the list that were not started, at most so many, with their features."""
        if self.candidates is None or self._listed is None or self._listed_keys is None:
            return [], np.empty((0, len(self.space.lengths)))
        for run in runs[len(self._keys) :]:
            self._keys[run.number] = self.space.key(run.config)
        started = set(self._keys.values())
        rest = np.array([i for i, key in enumerate(self._listed_keys) if key not in started], dtype=np.int64)
        if len(rest) > most:
            rest = rng.choice(rest, size=most, replace=False)
        return [self.candidates[i] for i in rest], self._listed[rest]
