"""Covariance functions over epochs (paper: section 3) and over configurations (paper: appendix B).

Hyperparameters may have leading dimensions (one value for each sample); a covariance then has them too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc

Array = NDArray[np.float64]

SQRT5 = np.sqrt(5.0)


def exponential_decay(t: Array, u: Array, alpha: ArrayLike, beta: ArrayLike) -> Array:
    """Equation 6: a gamma mixture of exponentials, beta^alpha / (t + t' + beta)^alpha. No amplitude: k(0, 0) = 1."""
    a, b = over_pairs(alpha), over_pairs(beta)
    return np.asarray((b / (t[:, None] + u[None, :] + b)) ** a)


def ornstein_uhlenbeck(t: Array, u: Array, length: ArrayLike) -> Array:
    """exp(-|t - t'| / length), which section 3 adds for less smooth curves. Only figures use it."""
    return np.asarray(np.exp(-np.abs(t[:, None] - u[None, :]) / over_pairs(length)))


def smooth_in_log_time(t: Array, u: Array, length: ArrayLike) -> Array:
    """Matern-5/2 in the logarithm of the epoch: a curve changes from 10 to 20 about as much as from 1 to 2.

    Default model only.
    """
    return matern52(((np.log(t)[:, None] - np.log(u)[None, :]) / over_pairs(length)) ** 2)


def matern52(squared_distance: Array) -> Array:
    """Matern-5/2 correlation (1 + sqrt(5 r^2) + 5/3 r^2) exp(-sqrt(5 r^2)) of squared scaled distances r^2."""
    s = SQRT5 * np.sqrt(squared_distance)
    # in place, because the sampler spends most of its time here
    k = s * s
    k *= 1.0 / 3.0
    k += s
    k += 1.0
    np.negative(s, out=s)
    np.exp(s, out=s)
    k *= s
    return np.asarray(k)


def warp(x: Array, a: float | Array, b: float | Array) -> Array:
    """Input warping w(x) = BetaCDF(x; a, b) on [0, 1] (Snoek et al. 2014); a = b = 1 is the identity."""
    return np.asarray(betainc(a, b, x), dtype=np.float64)


def over_pairs(hyperparameter: ArrayLike) -> Array:
    """A hyperparameter with two trailing dimensions, for functions of pairs of epochs or configurations."""
    return np.asarray(hyperparameter, dtype=np.float64)[..., None, None]
