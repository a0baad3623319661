"""Expected improvement: how much lower than the best a loss is expected to be, counting only the good outcomes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]

SQRT_2PI = np.sqrt(2 * np.pi)


def expected_improvement(best: float, mean: Array, deviation: Array) -> Array:
    """E max(best - y, 0) of a normal y (equation 3), elementwise."""
    z = (best - mean) / deviation
    return np.asarray(deviation * (z * ndtr(z) + np.exp(-0.5 * z * z) / SQRT_2PI))


def probability_of_improvement(best: float, mean: Array, deviation: Array) -> Array:
    """P(y < best) of a normal y, elementwise."""
    return np.asarray(ndtr((best - mean) / deviation))
