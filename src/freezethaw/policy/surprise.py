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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

SURPRISE = 0.05  # probability of a surprise in a doubling of time that no run has been trained through
DEPTH = 0.5  # share of the epochs that are spread evenly over the doublings of training time while losses are flat
FALLING = 0.05  # they are not flat if so many runs fall with this probability by chance
SPREAD = 1.0  # standard deviation after a surprise, in model units


def surprises(lengths: Array, correlation: Array, done: Array, epochs: Array, max_epochs: int) -> Array:
    """(P, E) probability of a surprise between the epochs `done` (P,) of each run and each of the epochs (E,).

    `lengths` (N,) are the trained epochs of all runs, `correlation` (P, N) their correlations with the P runs.
    """
    edges = doublings(max_epochs)
    seen = run_weights(correlation) @ covered(np.zeros(len(lengths)), lengths, edges)  # (P, J)
    ahead = covered(done[:, None], np.broadcast_to(epochs, (len(done), len(epochs))), edges)  # (P, E, J)
    return np.asarray(-np.expm1(np.matmul(ahead, np.log1p(-SURPRISE / (1.0 + seen))[:, :, None])[:, :, 0]))


def flat_so_far(first_and_last: Sequence[tuple[float, float]]) -> bool:
    """Whether losses do not visibly fall with training: a sign test of the first and the last loss of each run.

    Runs whose loss has not changed count as not falling.
    """
    falls = sum(last < first for first, last in first_and_last)
    return float(bdtrc(falls - 1, len(first_and_last), 0.5)) > FALLING if falls else True


@dataclass(frozen=True)
class NeglectedDoubling:
    """A doubling of training time in which too little was trained."""

    runs: IntArray  # places among the options
    epochs: tuple[int, int]  # the first and the last


def neglected_doubling(lengths: Array, runs: IntArray, max_epochs: int) -> NeglectedDoubling | None:
    """The first doubling that has less than its share of the epochs, and the runs that can be trained in it.

    `lengths` (N,) are the trained epochs of all runs, `runs` the indices of those that can be advanced. As long as
    losses do not fall with training, no forecast from short runs can tell what long ones do: then a share DEPTH of all
    epochs is spread evenly over the doublings.
    """
    ends = np.unique(np.round(2.0 ** doublings(max_epochs)[1:])).astype(np.int64)  # 1, 2, 4, ..., max_epochs
    begins = np.concatenate([[0], ends[:-1]])
    trained = np.clip(np.minimum(lengths[:, None], ends) - begins, 0, None).sum(axis=0)
    done = lengths[runs]
    for begin, end, spent in zip(begins[1:].tolist(), ends[1:].tolist(), trained[1:].tolist(), strict=True):
        here = np.flatnonzero((done >= begin) & (done < end))
        if spent < DEPTH * lengths.sum() / len(ends) and len(here):
            return NeglectedDoubling(here, (begin + 1, end))
    return None


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
