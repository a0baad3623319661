"""A share of the epochs for depth: some runs are trained for long, whatever is forecast. Not in the paper.

Forecasts extrapolate what was seen. Where runs start slowly, short runs say nothing about long ones, and the
improvement rate would start short runs for ever. So training time is divided into doublings (epoch 1, epoch 2, 3 to 4,
5 to 8, ...), and enough runs must be trained to the end of each. A search whose forecasts are good does so by itself.
Once losses turn out to be flat, the share is larger; and as long as none has fallen at all, the runs are drawn at
random, because short runs cannot tell which of them are good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from freezethaw.policy.surprise import doublings

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

DEPTH = 1 / 8  # as many runs reach the end of each doubling as this share of all epochs would pay for
FLAT_DEPTH, BLIND_DEPTH = 1 / 4, 1 / 2  # the same while losses are flat, and while none has fallen at all
FALLING = 2 / 3  # losses are flat if significantly fewer runs than this share have fallen
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Depth:
    """The share of the epochs for depth, and whether short runs can tell which of them to train for long."""

    share: float = DEPTH
    blind: bool = False

    @classmethod
    def of(cls, first: Array, last: Array) -> Depth:
        """From the first and the last loss of each run (N,).

        Runs whose loss has not changed count as not trained further. Losses have fallen at all if one is below all
        first losses by more than their interquartile range.
        """
        changed, fallen = int((last != first).sum()), int((last < first).sum())
        if not changed or bdtr(fallen, changed, FALLING) >= SIGNIFICANCE:
            return cls()
        lowest, low, high = np.quantile(first, [0.0, 0.25, 0.75])
        return cls(FLAT_DEPTH) if last.min() < lowest - (high - low) else cls(BLIND_DEPTH, blind=True)

    def of_decision(self, number: int, workers: int) -> Depth:
        """That of one decision. At most every second one is for depth; of several workers' only this share.

        So new configurations are tried too: good ones may be rare and show at once. And where one run is due, not every
        worker trains one.
        """
        turns = max(workers, 2)
        return self if number % turns < math.ceil(turns * self.share) else replace(self, share=0.0)


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
