"""Exploration in time: the chance that a run does what no forecast would have it do.

A forecast extends what was seen. Where no run has been trained long, nothing was seen that could contradict it: if all
short curves are flat, the model is sure that long ones are, and never finds the run that falls late. So in each
doubling of training time a run may surprise, and is then anywhere within the spread of all losses about its forecast.
If n runs have been through that stretch, the chance is of the order of 1 / (n + 1) (Laplace's rule of succession).
Runs speak for those that are like them: where all long runs lie in one corner of the space, they say little of the
rest, whatever the forecasts there extend. Since a stretch costs as many epochs as it is long, all stretches get about
the same share of what exploring costs, as in successive halving.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SURPRISE = 0.05  # chance in a doubling of time that no run has seen
SPREAD = 1.0  # of a run that surprises, in model units: that of all losses


def surprises(lengths: Array, correlation: Array, done: Array, epochs: Array, max_epochs: int) -> Array:
    """(P, E) chance of a surprise of runs that stand at `done`, up to each epoch.

    `lengths` (N,) are those of all runs, and `correlation` (P, N) how much each of them speaks for each of the P.
    """
    edges = stretches(max_epochs)
    seen = neighbours(correlation) @ covered(np.zeros(len(lengths)), lengths, edges)  # (P, J)
    ahead = covered(done[:, None], np.broadcast_to(epochs, (len(done), len(epochs))), edges)  # (P, E, J)
    return np.asarray(-np.expm1(np.matmul(ahead, np.log1p(-SURPRISE / (1.0 + seen))[:, :, None])[:, :, 0]))


def neighbours(correlation: Array) -> Array:
    """(P, N) for how many runs each of the N counts: for one on average, and for more the more alike it is."""
    total = correlation.sum(axis=1, keepdims=True)
    counts = correlation * correlation.shape[1]
    return np.asarray(np.divide(counts, total, out=np.zeros_like(counts), where=total > 0.0))


def stretches(max_epochs: int) -> Array:
    """(J + 1,) edges of the doublings of time, in log2: epoch 1, epoch 2, epochs 3 and 4, 5 to 8, ..., the last cut."""
    last = np.log2(max(max_epochs, 1))
    return np.append(np.arange(-1.0, np.ceil(last)), last)


def covered(start: Array, end: Array, edges: Array) -> Array:
    """(..., J) share of each stretch that lies between two epochs, in log time."""
    a, b = (np.log2(np.maximum(epoch, 0.5))[..., None] for epoch in (start, end))
    return np.asarray(np.clip(np.minimum(b, edges[1:]) - np.maximum(a, edges[:-1]), 0.0, None) / np.diff(edges))
