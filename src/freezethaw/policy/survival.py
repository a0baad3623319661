"""The chance that a run does not diverge: a fact about configurations, learnt from those that did and did not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]

# prior of a logistic regression on features scaled to [-1, 1] and their squares: most runs survive, and where they do
# not, a rate that is too high or a size that is too large is to blame
INTERCEPT, INTERCEPT_SPREAD = 2.2, 1.5  # nine in ten
SLOPE_SPREAD, SQUARE_SPREAD = 3.0, 1.5
ROUNDS = 15  # of Newton's method; the target is concave


def survival(known: Array, survived: Array, wanted: Array) -> Array:
    """(C,) chance to survive at `wanted` features, from runs at `known` features that did (1) or did not (0)."""
    X, Z = _design(known), _design(wanted)
    D = known.shape[1]
    mean = np.concatenate([[INTERCEPT], np.zeros(2 * D)])
    precision = np.concatenate([[INTERCEPT_SPREAD], np.full(D, SLOPE_SPREAD), np.full(D, SQUARE_SPREAD)]) ** -2.0
    w = mean.copy()
    for _ in range(ROUNDS):
        p = expit(X @ w)
        gradient = X.T @ (survived - p) - precision * (w - mean)
        hessian = (X.T * np.maximum(p * (1 - p), 1e-9)) @ X + np.diag(precision)
        step = np.linalg.solve(hessian, gradient)
        w = w + step / max(1.0, np.abs(step).max())
    # averaged over the doubt about w (MacKay's approximation)
    variance = np.einsum("ci,ij,cj->c", Z, np.linalg.inv(hessian), Z, optimize=True)
    return np.asarray(expit((Z @ w) / np.sqrt(1 + np.pi * variance / 8)))


def _design(features: Array) -> Array:
    x = 2 * features - 1
    return np.column_stack([np.ones(len(x)), x, x * x])
