"""A share of the epochs for depth: some runs are trained for long, whatever is forecast. Not in the paper.

Forecasts extrapolate what was seen. Where runs start slowly, short runs say nothing about long ones, and the
improvement rate would start short runs for ever. So training time is divided into doublings (epoch 1, epoch 2, 3 to 4,
5 to 8, ...), and enough runs must be trained to the end of each. A search whose forecasts are good does so by itself.
Once losses turn out to be flat, the share is larger, and the runs are drawn at random: then short runs cannot tell
which of them are good.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from freezethaw.policy.surprise import doublings

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

DEPTH = 1 / 8  # as many runs reach the end of each doubling as this share of all epochs would pay for
FLAT_DEPTH = 1 / 2  # the same while losses are flat
FALLING = 2 / 3  # losses are flat if significantly fewer runs than this share have fallen
SIGNIFICANCE = 0.05


def flat_so_far(first: Array, last: Array) -> bool:
    """Whether losses do not fall with training so far, from the first and the last loss of each run (N,).

    Runs whose loss has not changed count as not trained further. A single loss below all first losses by more than
    their interquartile range is enough: then losses fall.
    """
    if not len(first):
        return False
    lowest, low, high = np.quantile(first, [0.0, 0.25, 0.75])
    if last.min() < lowest - (high - low):
        return False
    changed, fallen = int((last != first).sum()), int((last < first).sum())
    return changed > 0 and bool(bdtr(fallen, changed, FALLING) < SIGNIFICANCE)


@dataclass(frozen=True)
class DueDoubling:
    """A doubling of training time to the end of which too few runs were trained."""

    runs: IntArray  # those that may be trained to its end
    end: int  # its last epoch

    def drawn(self, lengths: Array, rng: np.random.Generator) -> DueDoubling:
        """One of the runs only: the one that is furthest in the doubling; if there is none, one of the longest."""
        longest = self.runs[lengths[self.runs] == lengths[self.runs].max()]
        return DueDoubling(rng.choice(longest, size=1), self.end)


def due_doubling(lengths: Array, runs: IntArray, max_epochs: int, share: float) -> DueDoubling | None:
    """The last doubling that has less than its share.

    `lengths` (N,) are the trained epochs of all runs, `runs` the indices of those that can be advanced.
    """
    ends = np.unique(np.round(2.0 ** doublings(max_epochs)[1:])).astype(np.int64)  # 1, 2, 4, ..., max_epochs
    for end in ends[:0:-1].tolist():
        shorter = runs[lengths[runs] < end]
        if (lengths >= end).sum() < int(share * lengths.sum() / end) and len(shorter):
            return DueDoubling(shorter, end)
    return None
