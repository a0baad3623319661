"""The choice of a coin: start a new run or thaw one at random. What every other policy has to beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def choose(frozen: Sequence[int], may_start: bool, rng: np.random.Generator) -> int | None:
    """A run to thaw, or None to start a new one. At least one of the two must be possible."""
    if not frozen or (may_start and rng.random() < 0.5):
        return None
    return frozen[int(rng.integers(len(frozen)))]
