"""Training time in stretches, each as long as all before it: epoch 1, epoch 2, epochs 3 and 4, 5 to 8, and so on.

Successive halving spends as much in each stretch as in any other, whatever losses look like. A forecast has no such
caution: where all short curves are flat, it is sure that long ones are, and every epoch goes to new runs. So a quarter
of what successive halving would spend is due to every stretch, and a stretch that has had less is looked into before
anything else. Where late epochs pay, they get more than that anyway.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DUE = 0.25  # of the share that successive halving gives to a stretch


def stretches(max_epochs: int) -> Array:
    """(J + 1,) edges of the stretches, in log2: epoch 1, epoch 2, epochs 3 and 4, 5 to 8, ..., the last cut."""
    last = np.log2(max(max_epochs, 1))
    return np.append(np.arange(-1.0, np.ceil(last)), last)


def covered(start: Array, end: Array, edges: Array) -> Array:
    """(..., J) share of each stretch that lies between two epochs, in log time."""
    a, b = (np.log2(np.maximum(epoch, 0.5))[..., None] for epoch in (start, end))
    return np.asarray(np.clip(np.minimum(b, edges[1:]) - np.maximum(a, edges[:-1]), 0.0, None) / np.diff(edges))


def neglected(lengths: Array, done: Array, max_epochs: int, left: float = np.inf) -> tuple[int, int] | None:
    """Last epochs before and of the stretch that lacks most of its due, by an epoch at least; None if none does.

    `lengths` are those of all runs; one of the runs that may be advanced, at `done`, must stand there and be able to
    come through with the epochs that are `left`. The first stretch is seen by whoever starts a run.
    """
    edges = stretches(max_epochs)
    bounds = np.where(edges < 0, 0.0, np.rint(2.0**edges))
    spent = np.clip(np.minimum(lengths[:, None], bounds[1:]) - bounds[:-1], 0.0, None).sum(axis=0)
    due = DUE * lengths.sum() * np.diff(edges) / (edges[-1] - edges[0])
    stand = (done[:, None] >= bounds[:-1]) & (done[:, None] < bounds[1:]) & (bounds[1:] - done[:, None] <= left)
    lack = np.where(stand.any(axis=0), due - spent, -np.inf)[1:]
    if not len(lack) or lack.max() < 1.0:
        return None
    place = 1 + int(lack.argmax())
    return int(bounds[place]), int(bounds[place + 1])
