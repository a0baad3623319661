"""Exploration in time: the probability that a run leaves its predictive distribution. Not in the paper.

Predictions extrapolate the observed curves. If no run has been trained for long and all short curves are flat, the
model predicts that long curves are flat too, and a run that improves late is never found. So in each doubling of
training time a run has a small probability of a *surprise*: its loss is then normal about its predicted mean with the
standard deviation SPREAD of all losses. If n runs have been trained through that doubling, the probability is
proportional to 1 / (n + 1) (Laplace's rule of succession). Runs are counted by their correlation with the run in
question, so long runs in one region of the space say little about the others. A doubling costs as many epochs as it is
long, so all doublings get about the same share of the exploration, as in successive halving.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

SURPRISE = 0.05  # probability of a surprise in a doubling of time that no run has been trained through
SPREAD = 1.0  # standard deviation after a surprise, in model units


def surprises(lengths: Array, correlation: Array, done: Array, epochs: Array, max_epochs: int) -> Array:
    """(P, E) probability of a surprise between the epochs `done` (P,) of each run and each of the epochs (E,).

    `lengths` (N,) are the trained epochs of all runs, `correlation` (P, N) their correlations with the P runs.
    """
    edges = doublings(max_epochs)
    seen = run_weights(correlation) @ covered(np.zeros(len(lengths)), lengths, edges)  # (P, J)
    ahead = covered(done[:, None], np.broadcast_to(epochs, (len(done), len(epochs))), edges)  # (P, E, J)
    return np.asarray(-np.expm1(np.matmul(ahead, np.log1p(-SURPRISE / (1.0 + seen))[:, :, None])[:, :, 0]))


def run_weights(correlation: Array) -> Array:
    """(P, N) weight of each run in the count of runs: proportional to the correlation, with a mean of one."""
    total = correlation.sum(axis=1, keepdims=True)
    counts = correlation * correlation.shape[1]
    return np.asarray(np.divide(counts, total, out=np.zeros_like(counts), where=total > 0.0))


def doublings(max_epochs: int) -> Array:
    """(J + 1,) edges of the doublings of time, in log2: epoch 1, epoch 2, epochs 3 and 4, 5 to 8, ..., the last cut."""
    last = np.log2(max(max_epochs, 1))
    return np.append(np.arange(-1.0, np.ceil(last)), last)


def covered(start: Array, end: Array, edges: Array) -> Array:
    """(..., J) share of each doubling that lies between two epochs, in log time."""
    a, b = (np.log2(np.maximum(epoch, 0.5))[..., None] for epoch in (start, end))
    return np.asarray(np.clip(np.minimum(b, edges[1:]) - np.maximum(a, edges[:-1]), 0.0, None) / np.diff(edges))
