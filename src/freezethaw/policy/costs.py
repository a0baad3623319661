"""Costs of training, and the probability that a configuration trains without diverging: two small regressions.

Not in the paper. Both are fitted to the runs of the study, over configurations in the unit cube.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]

COST_POWER = 0.5
RIDGE = 1.0  # prior precision of the slopes: by default an epoch costs the same for every configuration

# prior of the logistic regression, on features scaled to [-1, 1] and their squares: most runs survive, and divergence
# is usually explained by an extreme value of one feature
INTERCEPT, INTERCEPT_SPREAD = 2.2, 1.5  # a survival probability of 0.9
SLOPE_SPREAD, SQUARE_SPREAD = 3.0, 1.5
NEWTON_STEPS = 15  # the log posterior is concave


def relative_costs(known: Array, seconds: Array, wanted: Array) -> Array:
    """(C,) cost of an epoch at `wanted` features relative to the typical one, from runs with measured seconds.

    Ridge regression on the logarithm of the seconds: costs are close to products of powers (batch size, width, depth).
    """
    logs = np.log(seconds)
    centre = known.mean(axis=0)
    X = known - centre
    slopes = np.linalg.solve(X.T @ X + RIDGE * np.eye(X.shape[1]), X.T @ (logs - logs.mean()))
    # never outside the range of the measured costs
    low, high = logs.min() - logs.mean(), logs.max() - logs.mean()
    return np.asarray(np.exp(np.clip((wanted - centre) @ slopes, low, high)))


def cost_factor(known: Array, seconds: Array, wanted: Array) -> Array:
    """(C,) what the scores at `wanted` features are divided by: the relative cost to the power COST_POWER.

    The full cost can keep a search with cheap configurations long after the best of them are known. In "cost cooling"
    (Lee et al. 2020) the power falls from one to zero as the time is spent. How much is left is seldom known: as much
    as was spent is assumed.
    """
    return np.asarray(relative_costs(known, seconds, wanted) ** COST_POWER)


def survival_probability(known: Array, survived: Array, wanted: Array) -> Array:
    """(C,) probability of not diverging at `wanted` features, from runs at `known` features: 1 survived, 0 did not.

    Bayesian logistic regression: Newton's method for the mode, then the Laplace approximation around it.
    """
    X, Z = _design(known), _design(wanted)
    D = known.shape[1]
    mean = np.concatenate([[INTERCEPT], np.zeros(2 * D)])
    precision = np.concatenate([[INTERCEPT_SPREAD], np.full(D, SLOPE_SPREAD), np.full(D, SQUARE_SPREAD)]) ** -2.0
    w = mean.copy()
    for _ in range(NEWTON_STEPS):
        p = expit(X @ w)
        gradient = X.T @ (survived - p) - precision * (w - mean)
        hessian = (X.T * np.maximum(p * (1 - p), 1e-9)) @ X + np.diag(precision)
        step = np.linalg.solve(hessian, gradient)
        w = w + step / max(1.0, np.abs(step).max())
    # the predictive probability, averaged over the posterior of w (MacKay's approximation)
    variance = np.einsum("ci,ij,cj->c", Z, np.linalg.inv(hessian), Z, optimize=True)
    return np.asarray(expit((Z @ w) / np.sqrt(1 + np.pi * variance / 8)))


def _design(features: Array) -> Array:
    x = 2 * features - 1
    return np.column_stack([np.ones(len(x)), x, x * x])


def epochs_to_grant(switch_cost: float, ahead: int) -> int:
    """How many epochs to train before the next decision, if switching runs costs as much as `switch_cost` epochs.

    Deciding again after k epochs costs at most switch_cost / k per epoch trained; not deciding wastes about k / 2
    epochs if the run disappoints. The sum is smallest at k = sqrt(2 switch_cost). At most `ahead`.
    """
    return max(1, min(round(math.sqrt(2 * switch_cost)), ahead))
