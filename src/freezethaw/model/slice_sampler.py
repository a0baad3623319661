"""Slice sampling: univariate with stepping out and shrinkage (Neal 2003), and elliptical (Murray et al. 2010).

Neither knows anything of the density that it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LogDensity = Callable[[float], float]

SMALLEST_ANGLE = 1e-12  # the bracket has shrunk onto the point itself


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


def elliptical_slice(
    log_likelihood: Callable[[Array], float],
    point: Array,
    prior_draw: Array,
    rng: np.random.Generator,
    log_likelihood_here: float | None = None,
) -> tuple[Array, float]:
    """Murray, Adams and MacKay (2010), figure 2: one joint move of several numbers with a zero-mean normal prior.

    The move stays on the ellipse through the point and an independent draw from that prior; nothing is to be tuned.
    """
    here = log_likelihood(point) if log_likelihood_here is None else log_likelihood_here
    if not math.isfinite(here):
        raise ValueError(f"the chain stands where the likelihood is zero: {here}")
    level = here - rng.exponential()
    angle = rng.uniform(0.0, 2 * math.pi)
    low, high = angle - 2 * math.pi, angle
    while True:
        candidate = point * math.cos(angle) + prior_draw * math.sin(angle)
        value = log_likelihood(candidate)
        if value > level or high - low < SMALLEST_ANGLE:
            return (candidate, value) if value > level else (point, here)
        if angle < 0:
            low = angle
        else:
            high = angle
        angle = rng.uniform(low, high)
