"""Univariate slice sampling with stepping out and shrinkage, after Neal (2003). Knows nothing of Gaussian processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

LogDensity = Callable[[float], float]


@dataclass(frozen=True)
class Draw:
    """Where the chain is now: the new point and the log density there."""

    point: float
    log_density: float


@dataclass(frozen=True)
class Effort:
    """What the draw cost: the interval that was stepped out to, and how often the density was evaluated."""

    left: float
    right: float
    evaluations: int


def step_out(
    log_density: LogDensity, point: float, level: float, width: float, limit: int, rng: np.random.Generator
) -> Effort:
    """Neal's figure 3: grow an interval of random position around the point until both ends leave the slice."""
    left = point - width * rng.random()
    right = left + width
    # the limit is split at random between the two ends: this keeps the transition reversible
    steps_left = int(rng.integers(limit))
    steps_right = limit - 1 - steps_left
    evaluations = 0
    while steps_left > 0:
        evaluations += 1
        if log_density(left) <= level:
            break
        left, steps_left = left - width, steps_left - 1
    while steps_right > 0:
        evaluations += 1
        if log_density(right) <= level:
            break
        right, steps_right = right + width, steps_right - 1
    return Effort(left, right, evaluations)


def shrink(
    log_density: LogDensity, point: float, level: float, effort: Effort, rng: np.random.Generator
) -> tuple[Draw, Effort]:
    """Neal's figure 5: draw from the interval, shrinking it towards the point with every rejected draw."""
    left, right, evaluations = effort.left, effort.right, effort.evaluations
    while True:
        candidate = left + (right - left) * rng.random()
        value = log_density(candidate)
        evaluations += 1
        if value > level:
            return Draw(candidate, value), Effort(effort.left, effort.right, evaluations)
        if candidate < point:
            left = candidate
        elif candidate > point:
            right = candidate
        else:  # the interval has shrunk onto the point itself
            return Draw(point, value), Effort(effort.left, effort.right, evaluations)


def slice_sample(
    log_density: LogDensity,
    point: float,
    width: float,
    rng: np.random.Generator,
    log_density_here: float | None = None,
    limit: int = 16,
) -> tuple[Draw, Effort]:
    """One transition that leaves the density invariant; `width` is a guess at the size of a slice."""
    here = log_density(point) if log_density_here is None else log_density_here
    if not math.isfinite(here):
        raise ValueError(f"the chain stands where the density is zero: log density {here} at {point}")
    level = here - rng.exponential()
    effort = step_out(log_density, point, level, width, limit, rng)
    return shrink(log_density, point, level, effort, rng)
