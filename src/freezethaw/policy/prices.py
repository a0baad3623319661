"""What an epoch costs: a line through the logarithms of seconds, over configurations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RIDGE = 1.0  # prior precision of the slopes: an epoch costs the same everywhere until the runs say otherwise


def relative_prices(known: Array, seconds: Array, wanted: Array) -> Array:
    """(C,) price of an epoch at `wanted` features, in units of the typical one, from runs that told their seconds.

    Seconds are products of powers (batch size, width, depth), so their logarithm is close to a line in the unit cube.
    """
    logs = np.log(seconds)
    centre = known.mean(axis=0)
    X = known - centre
    slopes = np.linalg.solve(X.T @ X + RIDGE * np.eye(X.shape[1]), X.T @ (logs - logs.mean()))
    # no dearer and no cheaper than anything seen
    low, high = logs.min() - logs.mean(), logs.max() - logs.mean()
    return np.asarray(np.exp(np.clip((wanted - centre) @ slopes, low, high)))
