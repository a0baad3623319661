"""Marginal predictions of many runs at many epochs at once, exact or as a cheap upper bound for screening.

Not in the paper: the predictive distributions are those of `posterior`, computed for the basket in a few library calls.
Arrays may have leading dimensions (...), one entry for each hyperparameter sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from freezethaw.model.correlation import run_correlation
from freezethaw.model.curves import Array, IntArray
from freezethaw.model.linear import solve_rows, solve_vector, transposed
from freezethaw.model.posterior import NEW, SMALLEST_VARIANCE, Posterior
from freezethaw.model.scales import Mixture, new_run_scales, old_run_scales


@dataclass(frozen=True)
class Predictions:
    """Noise-free losses in model units: for each of P runs and E epochs a mixture of C components."""

    mean: Array  # (..., P, E)
    deviations: Array  # (C, ..., P, E) standard deviation of each component
    weights: Array  # (C, ..., P, E)
    correlation: Array  # (..., P, N) with all N runs of the curves

    def without(self, first: int) -> Predictions:
        """All but the first runs."""
        return Predictions(
            self.mean[..., first:, :],
            self.deviations[..., first:, :],
            self.weights[..., first:, :],
            self.correlation[..., first:, :],
        )


Predict = Callable[[Posterior, IntArray, Array, Array], Predictions]  # `predict` or `predict_upper_bound`


def predict(posterior: Posterior, runs: IntArray, configs: Array, epochs: Array) -> Predictions:
    """Predictive distributions of old runs, then of new runs with these configurations, at common epochs."""
    correlation = correlations(posterior, runs, configs)
    return _from_coefficients(posterior, runs, correlation, epochs, *coefficients(posterior, correlation))


def predict_upper_bound(posterior: Posterior, runs: IntArray, configs: Array, epochs: Array) -> Predictions:
    """Cheap predictions for screening: the exact means, with upper bounds of the variances."""
    correlation = correlations(posterior, runs, configs)
    return _from_coefficients(posterior, runs, correlation, epochs, *coefficient_bounds(posterior, runs, correlation))


def correlations(posterior: Posterior, runs: IntArray, configs: Array) -> Array:
    """(..., P, N) correlation of old runs, then of new configurations, with all old runs."""
    old = posterior.inputs[..., runs, :]
    inputs = np.concatenate([old, posterior.new_inputs(configs)], axis=-2) if len(configs) else old
    index = np.concatenate([runs, np.full(len(configs), NEW)])
    every = np.arange(posterior.inputs.shape[-2])
    return run_correlation(inputs, index, posterior.inputs, every, posterior.values)


def coefficients(posterior: Posterior, correlation: Array) -> tuple[Array, Array]:
    """Mean (..., P, q) and covariance (..., P, q, q) of the coefficients of runs with this correlation (..., P, N)."""
    spec = posterior.specification
    a, tau = spec.coefficient_variances(posterior.values), spec.coefficient_mean_variances()
    Z = _whitened_cross(posterior, correlation, a, tau)
    mean = spec.coefficient_means(posterior.values)[..., None, :]
    mean = mean + (Z @ posterior.factor.whitened[..., None, :, None])[..., 0]
    prior = (a + tau)[..., None, :, None] * np.eye(a.shape[-1])
    return mean, prior - Z @ transposed(Z)


def _whitened_cross(posterior: Posterior, correlation: Array, a: Array, tau: Array) -> Array:
    """(..., P, q, M) L^-1 cov(g, c_j(x_p))."""
    L, W, runs = posterior.factor.lower, posterior.pseudo_observations.directions, posterior.pseudo_observations.runs
    *stack, P, _ = correlation.shape
    M, q = W.shape[-2:]
    scaled, shifted = transposed(W * a[..., None, :]), transposed(W * tau)  # (..., q, M)
    C = correlation.take(runs, axis=-1)[..., None, :] * scaled[..., None, :, :]
    C += shifted[..., None, :, :]
    return solve_rows(L, C.reshape(*stack, P * q, M)).reshape(C.shape)


def coefficient_bounds(posterior: Posterior, runs: IntArray, correlation: Array) -> tuple[Array, Array]:
    """The exact mean (..., P, q) and an upper bound of the covariance (..., P, q, q) of the coefficients.

    Of old runs, then of new ones. The bound is the covariance given a single curve: the run's own or, for a new run,
    the one it is most correlated with. All other curves can only reduce it. No large system has to be solved.
    """
    spec, r = posterior.specification, posterior.pseudo_observations
    a, tau = spec.coefficient_variances(posterior.values), spec.coefficient_mean_variances()
    *stack, M, q = r.directions.shape
    N = posterior.inputs.shape[-2]
    of_run = _of_run(posterior)
    sums = _weights_of_runs(posterior, of_run)
    mean = spec.coefficient_means(posterior.values)[..., None, :] + a[..., None, :] * (correlation @ sums)
    mean = mean + (tau * sums.sum(axis=-2))[..., None, :]
    squares = r.directions[..., :, None] * r.directions[..., None, :]
    precision = (of_run @ squares.reshape(*stack, M, q * q)).reshape(*stack, N, q, q)  # R^T R of each run
    root = np.sqrt(a + tau)[..., None, :]
    alone = root[..., None] * np.linalg.inv(np.eye(q) + root[..., None] * precision * root[..., None, :])
    alone *= root[..., None, :]
    nearest = correlation.argmax(axis=-1)  # (..., P)
    nearest[..., : len(runs)] = runs
    # regression on the coefficients of the nearest run; one for an old run, which is its own nearest
    own = np.take_along_axis(correlation, nearest[..., None], axis=-1)  # (..., P, 1)
    gain = (own * a[..., None, :] + tau) / (a + tau)[..., None, :]
    covariance = gain[..., :, None] * np.take_along_axis(alone, nearest[..., None, None], axis=-3) * gain[..., None, :]
    np.einsum("...jj->...j", covariance)[...] += (a + tau)[..., None, :] * (1.0 - gain**2)
    return mean, covariance


def _of_run(posterior: Posterior) -> Array:
    """(N, M) one where a pseudo-observation belongs to a run."""
    runs = posterior.pseudo_observations.runs
    return np.asarray(np.arange(posterior.inputs.shape[-2])[:, None] == runs, dtype=np.float64)


def _weights_of_runs(posterior: Posterior, of_run: Array) -> Array:
    """(..., N, q) R^T B^-1 g of each run."""
    solved = solve_vector(posterior.factor.lower, posterior.factor.whitened, transposed=True)  # B^-1 g
    return np.asarray(of_run @ (posterior.pseudo_observations.directions * solved[..., None]))


def asymptote_weights(posterior: Posterior) -> tuple[Array, float]:
    """The posterior mean of the asymptote under one sample: a constant, plus weights (N,) times the correlations."""
    spec = posterior.specification
    a, tau = spec.coefficient_variances(posterior.values), spec.coefficient_mean_variances()
    sums = _weights_of_runs(posterior, _of_run(posterior))
    end = posterior.time.basis(np.array([spec.horizon]))[0]  # (q,)
    constant = end @ (spec.coefficient_means(posterior.values) + tau * sums.sum(axis=0))
    return np.asarray(sums @ (a * end)), float(constant)


def _from_coefficients(
    posterior: Posterior, runs: IntArray, correlation: Array, epochs: Array, means: Array, covariances: Array
) -> Predictions:
    """Losses from the distribution of the coefficients of old runs, then of new ones."""
    fresh = means.shape[-2] - len(runs)
    own = extend_all(posterior, epochs, runs)
    H, prior = posterior.time.basis(epochs), posterior.time.variance(epochs)
    slope = np.concatenate([own.slope, _repeated(H, fresh, -3)], axis=-3)  # (..., P, E, q)
    mean = (slope @ means[..., None])[..., 0]
    mean[..., : len(runs), :] += own.offset
    shared = np.maximum(np.sum((slope @ covariances) * slope, axis=-1), 0.0)
    residual = np.concatenate([own.variance, _repeated(prior, fresh, -2)], axis=-2)
    scales = _scales(posterior, runs, fresh, epochs)
    variance = np.maximum(shared + scales.scales * residual, SMALLEST_VARIANCE)
    return Predictions(mean, np.sqrt(variance), scales.weights, correlation)


def _repeated(a: Array, count: int, axis: int) -> Array:
    """The array repeated along a new axis."""
    return np.repeat(np.expand_dims(a, axis), count, axis)


def _scales(posterior: Posterior, runs: IntArray, fresh: int, epochs: Array) -> Mixture:
    """(C, ..., P, E) of old runs, then of `fresh` new ones, which all have the same."""
    scales = posterior.pseudo_observations.scales
    old = old_run_scales(scales, runs, posterior.curves.last_epochs[runs], epochs)
    new = new_run_scales(scales.model, epochs)
    parts = zip((old.weights, old.scales, old.freedoms), (new.weights, new.scales, new.freedoms), strict=True)
    return Mixture(*(np.concatenate([a, _repeated(b, fresh, -2)], axis=-2) for a, b in parts))


@dataclass(frozen=True)
class Extensions:
    """Losses of P runs at common epochs, given their coefficients: mean = offset + slope . c, and a variance."""

    offset: Array  # (..., P, E)
    slope: Array  # (..., P, E, q)
    variance: Array  # (..., P, E) of the noise-free losses at scale one


def extend_all(posterior: Posterior, epochs: Array, runs: IntArray) -> Extensions:
    """`summaries.extend` for many runs at once, without covariances between epochs. Observed epochs are smoothed."""
    curves, time = posterior.curves, posterior.time
    slope, variance = _repeated(time.basis(epochs), len(runs), -3), _repeated(time.variance(epochs), len(runs), -2)
    offset = np.zeros(variance.shape)
    for index, (pattern, w) in enumerate(zip(curves.patterns, posterior.summary.whitened, strict=True)):
        here = np.flatnonzero(curves.places[runs, 0] == index)
        if not len(here):
            continue
        columns, t = curves.places[runs[here], 1], pattern.epochs
        seen = (np.arange(len(t))[None, :] < pattern.lengths[columns][:, None]).astype(np.float64)  # (n, T)
        back = solve_rows(w.factor, time.covariance(epochs, t))  # (..., E, T)
        offset[..., here, :] += w.losses[..., columns, :-1] @ transposed(back)
        ends = pattern.distinct_ends[1][columns]
        slope[..., here, :, :] -= (back[..., None, :, :] @ w.basis[..., :-1, :])[..., ends, :, :]
        variance[..., here, :] -= seen @ transposed(back * back)
        own = pattern.last_epochs[columns] > 0
        if own.any():  # the extra row for the last epoch of a thinned run
            here, columns = here[own], columns[own]
            cross = time.covariance(pattern.last_epochs[columns], epochs)
            tail = (cross - w.tails[..., columns, :] @ transposed(back)) / w.tail_scales[
                ..., columns, None
            ]  # (..., own, E)
            offset[..., here, :] += w.losses[..., columns, -1, None] * tail
            slope[..., here, :, :] -= w.basis[..., ends[own], -1, None, :] * tail[..., None]
            variance[..., here, :] -= tail * tail
    return Extensions(offset, slope, np.maximum(variance, 0.0))
