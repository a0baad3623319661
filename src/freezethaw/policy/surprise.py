"""Exploration in time: what may be gained where no forecast would have it.

A forecast extends what was seen. Where no run has been trained long, nothing was seen that could contradict it: if all
short curves are flat, the model is sure that long ones are, and never finds the run that falls late. So there is a
small gain by surprise, in each doubling of training time, that fades with the number of runs that went through it
without needing it: if n runs have seen that stretch, the chance that the next one shows something new is of the order
of 1 / (n + 1) (Laplace's rule of succession). The gain is the same for all runs that stand at one epoch: which of them
goes on is up to the forecasts. And since a stretch costs as many epochs as it is long, all stretches get about the same
share of the budget, which is how successive halving divides it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SURPRISE = 0.02  # gain expected in a doubling of time that no run has seen, in model units


def surprises(lengths: Array, done: Array, epochs: Array, max_epochs: int) -> Array:
    """(P, E) expected gain by surprise of runs that stand at `done`, up to each epoch; `lengths` of all runs so far."""
    edges = stretches(max_epochs)
    seen = covered(np.zeros(len(lengths)), lengths, edges).sum(axis=0)
    ahead = covered(done[:, None], np.broadcast_to(epochs, (len(done), len(epochs))), edges)
    return np.asarray(ahead @ (SURPRISE / (1.0 + seen)))


def stretches(max_epochs: int) -> Array:
    """(J + 1,) edges of the doublings of time, in log2: epoch 1, epoch 2, epochs 3 and 4, 5 to 8, ..., the last cut."""
    last = np.log2(max(max_epochs, 1))
    return np.append(np.arange(-1.0, np.ceil(last)), last)


def covered(start: Array, end: Array, edges: Array) -> Array:
    """(..., J) share of each stretch that lies between two epochs, in log time."""
    a, b = (np.log2(np.maximum(epoch, 0.5))[..., None] for epoch in (start, end))
    return np.asarray(np.clip(np.minimum(b, edges[1:]) - np.maximum(a, edges[:-1]), 0.0, None) / np.diff(edges))
