"""Covariance functions over epochs (paper: section 3) and over configurations (paper: appendix B)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

Array = NDArray[np.float64]

SQRT5 = np.sqrt(5.0)


def exponential_decay(t: Array, u: Array, alpha: float, beta: float) -> Array:
    """Equation 6: a gamma mixture of exponentials, beta^alpha / (t + t' + beta)^alpha. No amplitude: k(0, 0) = 1."""
    return np.asarray((beta / (t[:, None] + u[None, :] + beta)) ** alpha)


def ornstein_uhlenbeck(t: Array, u: Array, length: float) -> Array:
    """exp(-|t - t'| / length), which section 3 adds for less smooth curves. Only figures use it."""
    return np.asarray(np.exp(-np.abs(t[:, None] - u[None, :]) / length))


def smooth_in_log_time(t: Array, u: Array, length: float) -> Array:
    """Matern-5/2 in the logarithm of the epoch: a curve changes from 10 to 20 about as much as from 1 to 2.

    Default model only.
    """
    return matern52(((np.log(t)[:, None] - np.log(u)[None, :]) / length) ** 2)


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
    return np.asarray(betainc(a, b, x))
