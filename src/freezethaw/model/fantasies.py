"""Losses awaited of runs under way, taken as if they had come: what parallel decisions stand on.

Given all that was observed, an awaited loss is one more observation of its run's coefficients. So it is one more row
behind those that are there, and nothing is factored again. The scales of the runs stay as their own residuals say:
what was only imagined teaches nothing about noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from freezethaw.model.curves import Array, Curves
from freezethaw.model.linear import cholesky, solve_lower
from freezethaw.model.posterior import Points, Posterior
from freezethaw.model.rows import appended
from freezethaw.model.scales import scales_of
from freezethaw.model.summaries import summarise


@dataclass(frozen=True)
class Awaited:
    """The next losses of a run under one sample, and how they hang together with what was observed."""

    points: Points
    cross: Array  # (M, E) L^-1 cov(g, points)
    mean: Array  # (E,)


def awaited(posterior: Posterior, who: Sequence[int | Array], counts: Sequence[int]) -> list[Awaited]:
    """The next losses of runs (by index), or the first ones of configurations that are being started; `counts` of each.

    They are looked at together, which is quick, but each by itself: what is awaited of one says nothing of another.
    """
    points = [_points(posterior, each, np.arange(1.0, count + 1.0)) for each, count in zip(who, counts, strict=True)]
    if not points:
        return []
    cross, mean = posterior.cross(Points.together(points))
    ends = np.cumsum(counts)[:-1]
    parts = zip(points, np.split(cross, ends, axis=1), np.split(mean, ends), strict=True)
    return [Awaited(*part) for part in parts]


def _points(posterior: Posterior, who: int | Array, ahead: Array) -> Points:
    if isinstance(who, np.ndarray):
        return posterior.points_of_config(who, ahead, noise=True)
    return posterior.points_of_run(who, posterior.curves.last_epochs[who] + ahead, noise=True)


def suppose(
    posterior: Posterior, curves: Curves, runs: Sequence[int], awaiting: Sequence[Awaited], losses: Sequence[Array]
) -> Posterior:
    """The posterior as if these losses had been told. `curves` hold them already; `runs` says whose they are there.

    Its evidence remains that of what was observed.
    """
    summary = summarise(curves, posterior.time)
    scales = scales_of(summary.residuals, summary.freedoms, posterior.rows.scales.model)
    parts = [_pseudo_observations(posterior, a, y) for a, y in zip(awaiting, losses, strict=True)]
    count = np.array([len(values) for _, values, _ in parts])
    directions, values, cross = (np.concatenate(column) for column in zip(*parts, strict=True))
    more = replace(posterior.rows, runs=np.repeat(np.asarray(runs), count), directions=directions, values=values)
    c = posterior.covariances(curves.configs)
    r, factor = appended(posterior.rows, posterior.factor, more, cross, c)
    return replace(
        posterior, curves=curves, summary=summary, rows=replace(r, scales=scales), inputs=c.inputs, factor=factor
    )


def _pseudo_observations(posterior: Posterior, a: Awaited, losses: Array) -> tuple[Array, Array, Array]:
    """Awaited losses as at most q observations of R c with unit noise: R, the values, and their cross covariances."""
    points, spec = a.points, posterior.specification
    root = cholesky(_scale(posterior, int(points.runs[0])) * points.residual, "the covariance of awaited losses")
    centred = losses - points.offsets - points.slopes @ spec.coefficient_means(posterior.values)
    R, values, cross = solve_lower(root, points.slopes), solve_lower(root, centred), solve_lower(root, a.cross.T)
    if len(R) > R.shape[1]:  # more losses than coefficients: what is orthogonal to R says nothing of c
        Q = np.linalg.qr(R)[0].T
        R, values, cross = Q @ R, Q @ values, Q @ cross
    return R, values, cross


def _scale(posterior: Posterior, run: int) -> float:
    """s^2 of a run as its own residuals say; of one that is being started as expected before it has any."""
    scales = posterior.rows.scales
    if run < 0:
        scales, run = scales_of(np.zeros(1), np.zeros(1, dtype=np.int64), scales.model), 0
    return float(scales.plug_in[run])
