"""Slice sampling: univariate with shrinkage (Neal 2003) and elliptical (Murray, Adams and MacKay 2010).

Paper: section 2.1 (the univariate sampler). Both are generic: they take any log density. S independent chains are
updated at once; each has its own slice and its own interval. A log density takes the candidates of some of the chains
and the indices of these chains: those whose candidates were accepted are not evaluated again.

The number of candidates is limited. For each sequence of rejected candidates the transition there and the one back have
the same density, so transitions remain reversible without those that would need more of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
LogDensity = Callable[[Array, IntArray], Array]  # candidates (n, ...) and indices (n,) of chains -> (n,)

TRIES = 6  # candidates of one transition; a chain whose candidates were all rejected stays where it is


def slice_sample(
    log_density: LogDensity, points: Array, width: float, rng: np.random.Generator, here: Array | None = None
) -> tuple[Array, Array]:
    """One transition of each chain that leaves its density invariant: the new points (S,) and the log densities there.

    The slice is searched in an interval of fixed width at a random position around the point (Neal's section 4 without
    stepping out), so `width` should be as large as the support of the density or larger than most slices. `here` are
    the log densities at the points, if they are known.
    """
    here = _checked(log_density(points, np.arange(len(points))) if here is None else here)
    level = here - rng.exponential(size=len(points))
    left, right = place_interval(points, width, rng)
    return shrink(log_density, points, here, level, left, right, rng)


def place_interval(points: Array, width: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Intervals that contain the points at uniformly random positions: this makes the transition reversible."""
    left = points - width * rng.random(len(points))
    return left, left + width


def shrink(
    log_density: LogDensity,
    points: Array,
    here: Array,
    level: Array,
    left: Array,
    right: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Neal's figure 5: draw from the interval, shrinking it towards the point with every rejected draw."""
    found, values, active = points.copy(), here.copy(), np.arange(len(points))
    for _ in range(TRIES):
        candidates = left[active] + (right[active] - left[active]) * rng.random(len(active))
        densities = log_density(candidates, active)
        accepted = densities > level[active]
        found[active[accepted]], values[active[accepted]] = candidates[accepted], densities[accepted]
        active, candidates = active[~accepted], candidates[~accepted]
        below, above = candidates < points[active], candidates > points[active]
        left[active[below]], right[active[above]] = candidates[below], candidates[above]
        if not len(active):
            break
    return found, values


def elliptical_slice(
    log_likelihood: LogDensity, points: Array, prior_draws: Array, rng: np.random.Generator, here: Array
) -> tuple[Array, Array]:
    """Murray, Adams and MacKay (2010), figure 2: update several variables (S, d) with a zero-mean normal prior jointly.

    Proposals lie on the ellipse through the point and an independent draw from that prior; there is no step size.
    """
    level = _checked(here) - rng.exponential(size=len(points))
    angle = rng.uniform(0.0, 2 * np.pi, len(points))
    low, high = angle - 2 * np.pi, angle.copy()
    found, values, active = points.copy(), here.copy(), np.arange(len(points))
    for _ in range(TRIES):
        turn = angle[active, None]
        candidates = points[active] * np.cos(turn) + prior_draws[active] * np.sin(turn)
        likelihoods = log_likelihood(candidates, active)
        accepted = likelihoods > level[active]
        found[active[accepted]], values[active[accepted]] = candidates[accepted], likelihoods[accepted]
        active = active[~accepted]
        if not len(active):
            break
        negative = angle[active] < 0
        low[active[negative]], high[active[~negative]] = angle[active[negative]], angle[active[~negative]]
        angle[active] = rng.uniform(low[active], high[active])
    return found, values


def _checked(here: Array) -> Array:
    if not np.isfinite(here).all():
        raise ValueError(f"a chain is at a point of zero density: log densities {here.tolist()}")
    return here
