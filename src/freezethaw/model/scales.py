"""Each run's own scale: why the bands have the tails that real curves have.

Runs differ in how much they wander about their trend. The scale s_n^2 of run n is inverse-gamma(nu/2, nu/2), so that
predictions are Student-t with nu + k degrees of freedom, k those of the run's own residuals. And some runs are
*stalled*: stuck at chance level or at a clipped value, they repeat themselves to the last digit. That is a second
explanation of a curve, with a variance of next to nothing. Without it a few dead runs would teach the model that noise
is nearly zero for all. Nothing lasts: a stalled run may wake, and a quiet one may turn wild. The longer it has been as
it is, the longer it will be, whatever the unit of time, so the chance that a run seen up to epoch n is still the same
at epoch e is a power of n / e. Of one that has changed nothing more is known than of a new run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from freezethaw.model.curves import Array, IntArray
from freezethaw.model.priors import LOG_2PI

STALLED = 0.1  # prior probability that a run is stalled
STALLED_VARIANCE = 1e-8  # of a stalled run, in units where losses have variance one; below any noise
# hazards per unit of log time: of a stalled run's waking, and of a change in another run's scale
RESUME_HAZARD = 0.25
CHANGE_HAZARD = 0.1


@dataclass(frozen=True)
class ScaleModel:
    """How the scales of runs are distributed; an infinite `freedom` means that all are one, as in the paper."""

    freedom: float  # nu
    noise: float  # variance of the noise at scale one

    @property
    def stalled_scale(self) -> float:
        """s^2 of a stalled run: its noise has the variance STALLED_VARIANCE."""
        return min(STALLED_VARIANCE / self.noise, 1.0)


@dataclass(frozen=True)
class Scales:
    """What the residuals of each run say of its scale."""

    model: ScaleModel
    log_density: Array  # (N,) of the residuals, the scale integrated out
    plug_in: Array  # (N,) posterior mean of s^2
    awake_scale: Array  # (N,) s^2 of the Student-t of a run that is awake
    awake_freedom: Array  # (N,)
    stalled: Array  # (N,) posterior probability


@dataclass(frozen=True)
class Mixture:
    """Distribution of s^2 for each of P predictions: C Student-t components, by weight, scale and freedom."""

    weights: Array  # (C, P)
    scales: Array  # (C, P)
    freedoms: Array  # (C, P)

    @property
    def mean(self) -> Array:
        """(P,) expected s^2, counting each component at its scale."""
        return np.asarray((self.weights * self.scales).sum(axis=0))

    @staticmethod
    def concatenate(parts: list[Mixture]) -> Mixture:
        """All predictions side by side."""
        return Mixture(
            np.concatenate([m.weights for m in parts], axis=1),
            np.concatenate([m.scales for m in parts], axis=1),
            np.concatenate([m.freedoms for m in parts], axis=1),
        )


def infer_scales(residuals: Array, freedoms: IntArray, model: ScaleModel) -> Scales:
    """Posterior of each run's scale from its residual sum of squares and the residuals' degrees of freedom k."""
    rss, k, nu = residuals, freedoms, model.freedom
    if math.isinf(nu):
        one: Array = np.ones(len(rss))
        none: Array = np.full(len(rss), nu)
        return Scales(model, -0.5 * (rss + k * LOG_2PI), one, one, none, np.zeros(len(rss)))
    awake = gammaln((nu + k) / 2) - gammaln(nu / 2) - 0.5 * (k * math.log(nu * math.pi) + (nu + k) * np.log1p(rss / nu))
    r = model.stalled_scale
    stalled = -0.5 * (k * (LOG_2PI + math.log(r)) + rss / r)
    both = np.logaddexp(math.log1p(-STALLED) + awake, math.log(STALLED) + stalled)
    p = np.exp(math.log(STALLED) + stalled - both)
    plug_in = (1 - p) * (nu + rss) / (nu + k - 2) + p * r
    return Scales(model, both, plug_in, (nu + rss) / (nu + k), np.asarray(nu + k, dtype=np.float64), p)


def one_run_scales(scales: Scales, run: int, last: float, epochs: Array) -> Mixture:
    """s^2 for later losses of a run last seen at epoch `last`; zero for a run with no epoch yet."""
    one = old_run_scales(scales, np.array([run]), np.array([last]), epochs)
    return Mixture(one.weights[:, 0], one.scales[:, 0], one.freedoms[:, 0])


def old_run_scales(scales: Scales, runs: IntArray, last: Array, epochs: Array) -> Mixture:
    """The same for many runs at common epochs: arrays of shape (C, runs, epochs)."""
    # a run with no epoch yet has the prior of a new one: nothing seen, and so posterior = prior
    seen_share = np.minimum(np.maximum(last[:, None], 1.0) / np.maximum(epochs[None, :], 1.0), 1.0)
    scale, freedom, stalled = (v[runs][:, None] for v in (scales.awake_scale, scales.awake_freedom, scales.stalled))
    return _mixture(scales.model, scale, freedom, stalled, seen_share)


def new_run_scales(model: ScaleModel, epochs: Array) -> Mixture:
    """s^2 for the losses of a run that has not been started."""
    one = np.ones(1)
    return _mixture(model, one, model.freedom * one, STALLED * one, 1.0 / np.maximum(epochs, 1.0))


def _mixture(model: ScaleModel, scale: Array, freedom: Array, stalled: Array, seen_share: Array) -> Mixture:
    """Three components: awake and as it was; stalled and still asleep; changed, and like a new run."""
    one = np.ones_like(seen_share)
    if math.isinf(model.freedom):
        return Mixture(one[None], one[None], math.inf * one[None])
    awake, asleep = (1 - stalled) * seen_share**CHANGE_HAZARD, stalled * seen_share**RESUME_HAZARD
    weights = np.stack([awake, asleep, 1 - awake - asleep])
    scales = np.stack([scale * one, model.stalled_scale * one, one])
    freedoms = np.stack([freedom * one, math.inf * one, model.freedom * one])
    return Mixture(weights, scales, freedoms)
