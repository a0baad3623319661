"""Slice sampling: univariate with shrinkage (Neal 2003) and elliptical (Murray, Adams and MacKay 2010).

Paper: section 2.1 (the univariate sampler). Both are generic: they take any log density.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LogDensity = Callable[[float], float]

SMALLEST_ANGLE = 1e-12  # a bracket of angles this small has shrunk onto the current point


def slice_sample(
    log_density: LogDensity,
    point: float,
    width: float,
    rng: np.random.Generator,
    log_density_here: float | None = None,
) -> tuple[float, float]:
    """One transition that leaves the density invariant: the new point and the log density there.

    The slice is searched in an interval of fixed width at a random position around the point (Neal's section 4 without
    stepping out), so `width` should be as large as the support of the density or larger than most slices.
    """
    here = log_density(point) if log_density_here is None else log_density_here
    if not math.isfinite(here):
        raise ValueError(f"the chain is at a point of zero density: log density {here} at {point}")
    level = here - rng.exponential()
    left, right = place_interval(point, width, rng)
    return shrink(log_density, point, level, left, right, rng)


def place_interval(point: float, width: float, rng: np.random.Generator) -> tuple[float, float]:
    """An interval that contains the point at a uniformly random position: this makes the transition reversible."""
    left = point - width * rng.random()
    return left, left + width


def shrink(
    log_density: LogDensity, point: float, level: float, left: float, right: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Neal's figure 5: draw from the interval, shrinking it towards the point with every rejected draw."""
    while True:
        candidate = left + (right - left) * rng.random()
        value = log_density(candidate)
        if value > level:
            return candidate, value
        if candidate < point:
            left = candidate
        elif candidate > point:
            right = candidate
        else:  # the interval has shrunk onto the point itself
            return point, value


def elliptical_slice(
    log_likelihood: Callable[[Array], float],
    point: Array,
    prior_draw: Array,
    rng: np.random.Generator,
    log_likelihood_here: float | None = None,
) -> tuple[Array, float]:
    """Murray, Adams and MacKay (2010), figure 2: update several variables with a zero-mean normal prior jointly.

    Proposals lie on the ellipse through the point and an independent draw from that prior; there is no step size.
    """
    here = log_likelihood(point) if log_likelihood_here is None else log_likelihood_here
    if not math.isfinite(here):
        raise ValueError(f"the chain is at a point where the likelihood is zero: log likelihood {here}")
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
