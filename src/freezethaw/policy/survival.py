"""The chance that a run does not diverge: a fact about configurations, learnt from those that did and did not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STRENGTH = 1.0  # runs' worth of belief in the overall rate


def survival(similarity: Array, diverged: Array, optimism: float = 0.9) -> Array:
    """(C,) kernel-weighted share of survivors near each candidate; `similarity` (C, N) in [0, 1].

    The overall rate, itself started at `optimism`, stands in where nothing is near.
    """
    overall = (STRENGTH * optimism + np.sum(1 - diverged)) / (STRENGTH + len(diverged))
    near = similarity**2
    return np.asarray((STRENGTH * overall + near @ (1 - diverged)) / (STRENGTH + near.sum(axis=1)))
