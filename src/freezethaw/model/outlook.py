"""Marginal forecasts of many runs at many epochs at once: what decisions are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freezethaw.model.curves import Array, IntArray
from freezethaw.model.posterior import SMALLEST_VARIANCE, Posterior
from freezethaw.model.scales import Mixture, of_new_run, of_runs
from freezethaw.model.summaries import extend_all


@dataclass(frozen=True)
class Outlook:
    """Noise-free losses in model units under one sample: for each of P runs and E epochs a mixture of C components."""

    mean: Array  # (P, E)
    deviations: Array  # (C, P, E) standard deviation of each component
    weights: Array  # (C, P, E)
    likeness: Array  # (P, N) to all N runs of the curves

    def without(self, first: int) -> Outlook:
        """All but the first runs."""
        return Outlook(self.mean[first:], self.deviations[:, first:], self.weights[:, first:], self.likeness[first:])


def look(posterior: Posterior, runs: IntArray, configs: Array, epochs: Array) -> Outlook:
    """Old runs, then configurations that have not been started, at common epochs."""
    likeness = posterior.likeness(runs, configs)
    return _at(posterior, runs, likeness, epochs, *posterior.coefficients(likeness))


def glance(posterior: Posterior, runs: IntArray, configs: Array, epochs: Array) -> Outlook:
    """The same quickly, with all the doubt that a run's own curve leaves, or the curve that a new one is most like."""
    likeness = posterior.likeness(runs, configs)
    return _at(posterior, runs, likeness, epochs, *posterior.hopeful_coefficients(runs, likeness))


def _at(
    posterior: Posterior, runs: IntArray, likeness: Array, epochs: Array, means: Array, covariances: Array
) -> Outlook:
    """From coefficients, of old runs and then of new ones, to losses."""
    fresh = len(means) - len(runs)
    own = extend_all(posterior.curves, posterior.summary, posterior.time, epochs, runs)
    H, prior = posterior.time.basis(epochs), np.diag(posterior.time.covariance(epochs, epochs))
    slope = np.concatenate([own.slope, np.broadcast_to(H, (fresh, *H.shape))])  # (P, E, q)
    mean = np.matmul(slope, means[:, :, None])[:, :, 0]
    mean[: len(runs)] += own.offset
    shared = np.maximum(np.sum(np.matmul(slope, covariances) * slope, axis=2), 0.0)
    residual = np.concatenate([own.variance, np.broadcast_to(prior, (fresh, len(prior)))])
    scales = _scales(posterior, runs, fresh, epochs)
    variance = np.maximum(shared[None] + scales.scales * residual[None], SMALLEST_VARIANCE)
    return Outlook(mean, np.sqrt(variance), scales.weights, likeness)


def _scales(posterior: Posterior, runs: IntArray, fresh: int, epochs: Array) -> Mixture:
    """(C, P, E) of old runs, then of `fresh` new ones, which are all alike."""
    old = of_runs(posterior.rows.scales, runs, posterior.curves.last_epochs[runs], epochs)
    new = of_new_run(posterior.rows.scales.model, epochs)
    parts = zip((old.weights, old.scales, old.freedoms), (new.weights, new.scales, new.freedoms), strict=True)
    return Mixture(*(np.concatenate([a, np.repeat(b[:, None], fresh, axis=1)], axis=1) for a, b in parts))
