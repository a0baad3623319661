"""New configurations to compare: spread evenly over the space, and near the best so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freezethaw.records import Config
from freezethaw.space import Space
from freezethaw.study.catalogue import Catalogue

Array = NDArray[np.float64]

EVEN = 192  # proposals from the low-discrepancy sequence
NEAR = 64  # proposals around the best runs
STEPS = (0.02, 0.05, 0.15)  # sizes of the steps away from a good configuration, in the unit cube
GUESS_STEP = 0.1


def low_discrepancy(count: int, dimensions: int, rng: np.random.Generator) -> Array:
    """(count, dimensions) points of the R sequence (Roberts 2018), shifted at random."""
    root = 2.0
    for _ in range(60):  # the positive root of x^(d+1) = x + 1, by fixed-point iteration
        root = (1 + root) ** (1 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1.0)
    return np.asarray((rng.random(dimensions) + np.outer(np.arange(1.0, count + 1.0), steps)) % 1.0)


def near(centres: Array, count: int, rng: np.random.Generator) -> Array:
    """Points around good ones: steps of several sizes, in some of the dimensions only."""
    if not len(centres):
        return np.empty((0, centres.shape[1]))
    chosen = centres[rng.integers(len(centres), size=count)]
    size = rng.choice(STEPS, size=(count, 1))
    moved = rng.random(chosen.shape) < np.maximum(0.5, 1.0 / chosen.shape[1])
    return np.asarray(np.clip(chosen + size * moved * rng.standard_normal(chosen.shape), 0.0, 1.0))


def around_guesses(space: Space, count: int, rng: np.random.Generator) -> Array:
    """Points where guessed parameters lie near their guess and the others anywhere."""
    guesses = space.guesses()
    units = low_discrepancy(count, len(space), rng)
    for column, name in enumerate(space.names):
        if name in guesses:
            units[:, column] = np.clip(guesses[name] + GUESS_STEP * rng.standard_normal(count), 0.0, 1.0)
    return units


@dataclass(frozen=True)
class Candidates:
    """Configurations that may be started: their features, and each as a configuration where it is wanted."""

    features: Array  # (C, columns)
    config: Callable[[int], Config]

    def __len__(self) -> int:
        return len(self.features)


def propose(
    catalogue: Catalogue, best: Sequence[Config], started: Array, repeats: int, rng: np.random.Generator
) -> Candidates:
    """Distinct configurations that were started less than `repeats` times; `started` are the features of all runs.

    A guess fades as runs come in.
    """
    space = catalogue.space
    d = len(space)
    if space.size <= EVEN + NEAR:
        configs = list(space.enumerate())
        features = catalogue.modelled.features_of(configs)
        kept = _unstarted(features, started, repeats)
        return Candidates(features[kept], lambda i: configs[kept[i]])
    guessed = round(EVEN / (1 + len(started))) if space.guesses() else 0
    centres = np.array([space.unit(c) for c in best]).reshape(-1, d)
    units = np.concatenate(
        [
            around_guesses(space, guessed, rng),
            low_discrepancy(EVEN - guessed, d, rng),
            near(centres, NEAR if best else 0, rng),
            centres if repeats > 1 else np.empty((0, d)),
        ]
    )
    features = catalogue.features_of_units(units)
    _, first = np.unique(features, axis=0, return_index=True)
    kept = np.sort(first)
    kept = kept[_unstarted(features[kept], started, repeats)]
    return Candidates(features[kept], lambda i: space.config(units[kept[i]]))


def _unstarted(features: Array, started: Array, repeats: int) -> NDArray[np.int64]:
    """Indices of the rows that were started less than `repeats` times; equal features mean equal configurations."""
    known = Counter(row.tobytes() for row in started)
    return np.array([i for i, row in enumerate(features) if known[row.tobytes()] < repeats], dtype=np.int64)
