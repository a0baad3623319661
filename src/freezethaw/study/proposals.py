"""New configurations to compare: spread evenly over the space, and near the best so far."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from freezethaw.records import Config
from freezethaw.space import Space

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


def propose(
    space: Space, best: Sequence[Config], started: set[Hashable], runs: int, rng: np.random.Generator
) -> tuple[list[Config], Array]:
    """Distinct configurations that were not started, with their features. A guess fades as runs come in."""
    d = len(space)
    if d == 0:
        configs: list[Config] = [] if space.key(space.config([])) in started else [space.config([])]
        return configs, space.features_of(configs)
    guessed = round(EVEN / (1 + runs)) if space.guesses() else 0
    units = np.concatenate(
        [
            around_guesses(space, guessed, rng),
            low_discrepancy(EVEN - guessed, d, rng),
            near(np.array([space.unit(c) for c in best]).reshape(-1, d), NEAR if best else 0, rng),
        ]
    )
    if space.size <= len(units):
        configs = [c for c in space.enumerate() if space.key(c) not in started]
        return configs, space.features_of(configs)
    features = space.features_of_units(units)
    return _distinct(space, units, features, started)


def _distinct(space: Space, units: Array, features: Array, started: set[Hashable]) -> tuple[list[Config], Array]:
    _, first = np.unique(features, axis=0, return_index=True)
    seen = set(started)
    configs: list[Config] = []
    kept = []
    for place in np.sort(first):
        config = space.config(units[place])
        key = space.key(config)
        if key not in seen:
            seen.add(key)
            configs.append(config)
            kept.append(place)
    return configs, features[kept]
