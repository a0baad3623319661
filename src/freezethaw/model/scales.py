"""Run scales: each run has its own noise level, so predictions are Student-t mixtures. Default model only.

The scale s_n^2 of run n is inverse-gamma(nu/2, nu/2), so predictions are Student-t with nu + k degrees of freedom,
where k are those of the residuals of the run. In addition a run may be *stalled*, with a variance of nearly zero: stuck
at chance level or at a clipped value, its losses are constant to the last digit. Without this component a few stalled
runs would imply a tiny noise for all runs. The scale may change: the probability that a run observed up to epoch n
still has the same scale at epoch e is a power of n / e, which does not depend on the unit of time. After a change the
scale has the distribution of a new run.

In the paper all scales are one. Arrays may have leading dimensions, one entry for each hyperparameter sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from freezethaw.model.curves import Array, IntArray
from freezethaw.model.kernels import over_pairs
from freezethaw.model.priors import LOG_2PI

STALLED = 0.1  # prior probability that a run is stalled
STALLED_VARIANCE = 1e-8  # noise variance of a stalled run, in units in which losses have variance one
# hazard rates per unit of log time
RESUME_HAZARD = 0.25  # a stalled run stops being stalled
CHANGE_HAZARD = 0.1  # the scale of any other run changes


@dataclass(frozen=True)
class ScaleModel:
    """Prior of the run scales; without a `freedom` all are one, as in the paper."""

    freedom: float | Array | None  # nu (...)
    noise: float | Array  # (...) variance of the noise at scale one

    @property
    def stalled_scale(self) -> Array:
        """(...) s^2 of a stalled run: its noise has the variance STALLED_VARIANCE."""
        return np.minimum(STALLED_VARIANCE / np.asarray(self.noise), 1.0)


@dataclass(frozen=True)
class Scales:
    """Posterior of the scale of each run, given its residuals."""

    model: ScaleModel
    log_density: Array  # (..., N) of the residuals, the scale integrated out
    plug_in: Array  # (..., N) posterior mean of s^2
    active_scale: Array  # (..., N) s^2 of the Student-t of a run that is not stalled
    active_freedom: Array  # (..., N) its degrees of freedom
    stalled: Array  # (..., N) posterior probability of being stalled


@dataclass(frozen=True)
class Mixture:
    """Distribution of s^2 for each of P predictions: C Student-t components."""

    weights: Array  # (C, ..., P)
    scales: Array  # (C, ..., P)
    freedoms: Array  # (C, ..., P)

    @property
    def mean(self) -> Array:
        """(..., P) weighted mean of the scales of the components."""
        return np.asarray((self.weights * self.scales).sum(axis=0))

    @staticmethod
    def concatenate(parts: list[Mixture]) -> Mixture:
        """The mixtures of all predictions."""
        return Mixture(
            np.concatenate([m.weights for m in parts], axis=-1),
            np.concatenate([m.scales for m in parts], axis=-1),
            np.concatenate([m.freedoms for m in parts], axis=-1),
        )


def infer_scales(residuals: Array, freedoms: IntArray, model: ScaleModel) -> Scales:
    """Posterior of the scale of each run from its residual sum of squares (..., N) and degrees of freedom k (N,)."""
    rss, k = residuals, freedoms
    if model.freedom is None:
        one = np.ones(rss.shape)
        return Scales(model, -0.5 * (rss + k * LOG_2PI), one, one, np.inf * one, np.zeros(rss.shape))
    nu, r = np.asarray(model.freedom)[..., None], model.stalled_scale[..., None]
    log_t = gammaln((nu + k) / 2) - gammaln(nu / 2) - 0.5 * (k * np.log(nu * math.pi) + (nu + k) * np.log1p(rss / nu))
    log_stalled = -0.5 * (k * (LOG_2PI + np.log(r)) + rss / r)
    both = np.logaddexp(math.log1p(-STALLED) + log_t, math.log(STALLED) + log_stalled)
    p = np.exp(math.log(STALLED) + log_stalled - both)
    plug_in = (1 - p) * (nu + rss) / (nu + k - 2) + p * r
    return Scales(model, both, plug_in, (nu + rss) / (nu + k), nu + k, p)


def one_run_scales(scales: Scales, run: int, last: float, epochs: Array) -> Mixture:
    """s^2 at these epochs for a run last observed at epoch `last`; zero for a run with no epoch yet."""
    one = old_run_scales(scales, np.array([run]), np.array([last]), epochs)
    return Mixture(one.weights[..., 0, :], one.scales[..., 0, :], one.freedoms[..., 0, :])


def old_run_scales(scales: Scales, runs: IntArray, last: Array, epochs: Array) -> Mixture:
    """The same for many runs at common epochs: arrays of shape (C, ..., runs, epochs)."""
    # a run with no epoch yet has no residuals, so its posterior is the prior of a new run
    observed_share = np.minimum(np.maximum(last[:, None], 1.0) / np.maximum(epochs[None, :], 1.0), 1.0)
    of_runs = (scales.active_scale, scales.active_freedom, scales.stalled)
    scale, freedom, stalled = (v[..., runs, None] for v in of_runs)
    return _mixture(scales.model, scale, freedom, stalled, observed_share)


def new_run_scales(model: ScaleModel, epochs: Array) -> Mixture:
    """s^2 at these epochs for a run that has not been started: arrays of shape (C, ..., epochs)."""
    one = np.ones((*np.shape(model.noise), 1, 1))
    freedom = one if model.freedom is None else over_pairs(model.freedom)
    new = _mixture(model, one, freedom, STALLED * one, 1.0 / np.maximum(epochs[None, :], 1.0))
    return Mixture(new.weights[..., 0, :], new.scales[..., 0, :], new.freedoms[..., 0, :])


def _mixture(model: ScaleModel, scale: Array, freedom: Array, stalled: Array, observed_share: Array) -> Mixture:
    """Three components: active with an unchanged scale; still stalled; changed, with the prior of a new run."""
    one = np.ones(np.broadcast_shapes(scale.shape, observed_share.shape))
    if model.freedom is None:
        return Mixture(one[None], one[None], np.inf * one[None])
    active, still_stalled = (1 - stalled) * observed_share**CHANGE_HAZARD, stalled * observed_share**RESUME_HAZARD
    weights = np.stack([active, still_stalled, 1 - active - still_stalled])
    scales = np.stack([scale * one, over_pairs(model.stalled_scale) * one, one])
    freedoms = np.stack([freedom * one, np.inf * one, over_pairs(model.freedom) * one])
    return Mixture(weights, scales, freedoms)
