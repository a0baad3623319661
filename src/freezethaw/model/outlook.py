"""Marginal forecasts of many runs at many epochs at once: what decisions are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freezethaw.model.curves import Array, IntArray
from freezethaw.model.posterior import SMALLEST_VARIANCE, Posterior
from freezethaw.model.scales import of_new_run, of_runs
from freezethaw.model.summaries import Extensions, extend_all


@dataclass(frozen=True)
class Outlook:
    """Noise-free losses in model units under one sample: for each of P runs and E epochs a mixture of C components."""

    mean: Array  # (P, E)
    deviations: Array  # (C, P, E) standard deviation of each component
    weights: Array  # (C, P, E)


def of_old_runs(posterior: Posterior, runs: IntArray, epochs: Array, extensions: Extensions) -> Outlook:
    """Old runs at common epochs; `extensions` from `extend_old_runs` at the same epochs."""
    means, covariances = posterior.coefficients(posterior.old_inputs(runs))
    slope = extensions.slope[runs]
    mean = extensions.offset[runs] + np.einsum("pej,pj->pe", slope, means)
    shared = np.einsum("pei,pij,pej->pe", slope, covariances, slope, optimize=True)
    scales = of_runs(posterior.rows.scales, runs, posterior.curves.last_epochs[runs], epochs)
    return _outlook(mean, shared, extensions.variance[runs], scales.weights, scales.scales)


def of_new_runs(posterior: Posterior, configs: Array, epochs: Array) -> Outlook:
    """Configurations that have not been started, at common epochs."""
    means, covariances = posterior.coefficients(posterior.new_inputs(configs))
    H = posterior.time.basis(epochs)
    shared = np.einsum("ei,pij,ej->pe", H, covariances, H, optimize=True)
    residual = np.diag(posterior.time.covariance(epochs, epochs))
    scales = of_new_run(posterior.rows.scales.model, epochs)
    return _outlook(means @ H.T, shared, residual[None], scales.weights[:, None], scales.scales[:, None])


def extend_old_runs(posterior: Posterior, epochs: Array) -> Extensions:
    """What each run's own curve says of these epochs, its coefficients apart."""
    return extend_all(posterior.curves, posterior.summary, posterior.time, epochs)


def _outlook(mean: Array, shared: Array, residual: Array, weights: Array, scales: Array) -> Outlook:
    variance = np.maximum(shared, 0.0)[None] + scales * residual[None]
    return Outlook(mean, np.sqrt(np.maximum(variance, SMALLEST_VARIANCE)), np.broadcast_to(weights, variance.shape))
