"""Marginal predictions of many runs at many epochs at once, for decisions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freezethaw.model.curves import Array, IntArray
from freezethaw.model.posterior import SMALLEST_VARIANCE, Posterior
from freezethaw.model.scales import Mixture, new_run_scales, old_run_scales
from freezethaw.model.summaries import extend_all


@dataclass(frozen=True)
class Predictions:
    """Noise-free losses in model units under one sample: for each of P runs and E epochs a mixture of C components."""

    mean: Array  # (P, E)
    deviations: Array  # (C, P, E) standard deviation of each component
    weights: Array  # (C, P, E)
    correlation: Array  # (P, N) with all N runs of the curves

    def without(self, first: int) -> Predictions:
        """All but the first runs."""
        return Predictions(
            self.mean[first:], self.deviations[:, first:], self.weights[:, first:], self.correlation[first:]
        )


def predict(posterior: Posterior, runs: IntArray, configs: Array, epochs: Array) -> Predictions:
    """Predictive distributions of old runs, then of new runs with these configurations, at common epochs."""
    correlation = posterior.correlations(runs, configs)
    return _from_coefficients(posterior, runs, correlation, epochs, *posterior.coefficients(correlation))


def predict_upper_bound(posterior: Posterior, runs: IntArray, configs: Array, epochs: Array) -> Predictions:
    """Cheap predictions for screening: the exact means with upper bounds of the variances.

    The variance is that given a single curve: a run's own or, for a new run, the one it is most correlated with.
    """
    correlation = posterior.correlations(runs, configs)
    return _from_coefficients(posterior, runs, correlation, epochs, *posterior.coefficient_bounds(runs, correlation))


def _from_coefficients(
    posterior: Posterior, runs: IntArray, correlation: Array, epochs: Array, means: Array, covariances: Array
) -> Predictions:
    """Losses from the distribution of the coefficients of old runs, then of new ones."""
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
    return Predictions(mean, np.sqrt(variance), scales.weights, correlation)


def _scales(posterior: Posterior, runs: IntArray, fresh: int, epochs: Array) -> Mixture:
    """(C, P, E) of old runs, then of `fresh` new ones, which all have the same."""
    scales = posterior.pseudo_observations.scales
    old = old_run_scales(scales, runs, posterior.curves.last_epochs[runs], epochs)
    new = new_run_scales(scales.model, epochs)
    parts = zip((old.weights, old.scales, old.freedoms), (new.weights, new.scales, new.freedoms), strict=True)
    return Mixture(*(np.concatenate([a, np.repeat(b[:, None], fresh, axis=1)], axis=1) for a, b in parts))
