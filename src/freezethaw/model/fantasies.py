"""Fantasies: losses of pending epochs, assumed to be already known, for decisions of parallel workers.

Given the observed losses, a pending loss is one more observation of its run's coefficients: one more row of the
pseudo-observations, appended to the existing factor. The scales of the runs are not changed by fantasies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from freezethaw.model.curves import Array, Curves
from freezethaw.model.factor_updates import Covariances, append
from freezethaw.model.linear import cholesky, solve_lower, solve_vector, transposed
from freezethaw.model.posterior import Points, Posterior
from freezethaw.model.scales import infer_scales
from freezethaw.model.summaries import summarise

RunOrConfig = int | Array  # index of a run, or the configuration of a run that is being started


@dataclass(frozen=True)
class PendingLosses:
    """The next E losses of one run: their predictive mean and covariance with the observations."""

    points: Points
    cross: Array  # (..., M, E) L^-1 cov(g, points)
    mean: Array  # (..., E)


def pending_losses(posterior: Posterior, targets: Sequence[RunOrConfig], counts: Sequence[int]) -> list[PendingLosses]:
    """The next `counts` losses of runs (by index), or the first ones of configurations that are being started.

    One solve serves all of them, but each entry is conditioned on the observed losses only, not on the others.
    """
    points = [_points(posterior, target, np.arange(1.0, n + 1.0)) for target, n in zip(targets, counts, strict=True)]
    if not points:
        return []
    cross, mean = posterior.cross(Points.concatenate(points))
    ends = np.cumsum(counts)[:-1]
    parts = zip(points, np.split(cross, ends, axis=-1), np.split(mean, ends, axis=-1), strict=True)
    return [PendingLosses(*part) for part in parts]


def _points(posterior: Posterior, target: RunOrConfig, ahead: Array) -> Points:
    if isinstance(target, np.ndarray):
        return posterior.points_of_config(target, ahead, noise=True)
    return posterior.points_of_run(target, posterior.curves.last_epochs[target] + ahead, noise=True)


def condition_on_pending(
    posterior: Posterior,
    curves: Curves,
    runs: Sequence[int],
    pending: Sequence[PendingLosses],
    losses: Sequence[Array],
) -> Posterior:
    """The posterior as if the pending losses had these values; its evidence remains that of the observed losses.

    `curves` already contain these losses, and `runs` are the indices of the pending runs in them.
    """
    summary = summarise(curves, posterior.time)
    scales = infer_scales(summary.residuals, summary.freedoms, posterior.pseudo_observations.scales.model)
    parts = [_pseudo_observations(posterior, a, y) for a, y in zip(pending, losses, strict=True)]
    count = [values.shape[-1] for _, values, _ in parts]
    directions = np.concatenate([part[0] for part in parts], axis=-2)
    values = np.concatenate([part[1] for part in parts], axis=-1)
    cross = np.concatenate([part[2] for part in parts], axis=-2)
    old = posterior.pseudo_observations
    new = replace(old, runs=np.repeat(np.asarray(runs), count), directions=directions, values=values)
    c = Covariances.extending(posterior, curves.configs)
    both, factor = append(old, posterior.factor, new, cross, c)
    return replace(
        posterior,
        curves=curves,
        summary=summary,
        pseudo_observations=replace(both, scales=scales),
        inputs=c.inputs,
        factor=factor,
    )


def _pseudo_observations(posterior: Posterior, a: PendingLosses, losses: Array) -> tuple[Array, Array, Array]:
    """Pending losses as at most q observations of R c with unit noise: R, the values, and their cross covariances."""
    points, spec = a.points, posterior.specification
    scale = _scale(posterior, int(points.runs[0]))[..., None, None]
    root = cholesky(scale * points.residual, "the covariance of pending losses")
    prior_mean = (points.slopes @ spec.coefficient_means(posterior.values)[..., None])[..., 0]
    R, values = solve_lower(root, points.slopes), solve_vector(root, losses - points.offsets - prior_mean)
    cross = solve_lower(root, transposed(a.cross))
    if R.shape[-2] > R.shape[-1]:  # more losses than coefficients: what is orthogonal to R does not depend on c
        Q = transposed(np.linalg.qr(R)[0])
        R, values, cross = Q @ R, (Q @ values[..., None])[..., 0], Q @ cross
    return R, values, cross


def _scale(posterior: Posterior, run: int) -> Array:
    """(...) s^2 of a run: the posterior mean given its residuals, or the prior mean for a run that is being started."""
    scales = posterior.pseudo_observations.scales
    if run < 0:
        nothing = np.zeros((*np.shape(scales.model.noise), 1))
        scales, run = infer_scales(nothing, np.zeros(1, dtype=np.int64), scales.model), 0
    return np.asarray(scales.plug_in[..., run])
