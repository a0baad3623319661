"""Learning curves in model units: runs of different lengths that share one sequence of epochs.

All runs are trained on the same epochs 1, 2, 3, ..., so the epochs of a shorter run are a *prefix* of those of a longer
one. Curves with gaps (imported ones) form further `Pattern`s, one for each sequence of epochs. Very long curves are
thinned to a common grid, dense at first and geometric later; the last epoch of each run is always kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freezethaw.errors import ModelError

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Pattern:
    """Runs observed on prefixes of one sequence of epochs; a thinned run may have a last epoch outside the sequence."""

    epochs: Array  # (T,) increasing
    runs: IntArray  # (n,) indices of the runs
    lengths: IntArray  # (n,) how many of the epochs each run has
    losses: Array  # (n, T), zero after the last epoch of a run
    last_epochs: Array  # (n,) the last epoch of a thinned run, zero if it is on the grid
    last_losses: Array  # (n,)

    @cached_property
    def distinct_ends(self) -> tuple[IntArray, IntArray]:
        """First column of each distinct last epoch, and for each run the index of its own."""
        ends = np.stack([self.lengths.astype(np.float64), self.last_epochs])
        _, first, which = np.unique(ends, axis=1, return_index=True, return_inverse=True)
        return first, which.reshape(-1)


@dataclass(frozen=True)
class Curves:
    """N runs: their configurations in the unit cube and their losses. Construct it with `Curves.of`."""

    configs: Array  # (N, D)
    patterns: tuple[Pattern, ...]
    counts: IntArray  # (N,) number of losses used of each run
    places: IntArray  # (N, 2) pattern and column of each run, -1 for a run with no epoch yet

    @classmethod
    def of(
        cls,
        configs: ArrayLike,
        losses: Sequence[ArrayLike],
        epochs: Sequence[ArrayLike] | None = None,
        dense_epochs: int | None = None,
    ) -> Curves:
        """Group runs into patterns. By default `epochs` are 1, 2, ...; with `dense_epochs` later ones are thinned."""
        cube = _checked_configs(configs)
        if len(losses) != len(cube):
            raise ModelError(f"{len(cube)} configurations but {len(losses)} curves; there must be one curve for each")
        if epochs is not None and len(epochs) != len(losses):
            raise ModelError(f"{len(losses)} curves but {len(epochs)} sequences of epochs")
        curves = _checked_losses(losses)
        counts = np.array([len(y) for y in curves], dtype=np.int64)
        if epochs is None and dense_epochs is None:
            patterns = _one_pattern(curves, counts)
        else:
            times = [np.arange(1.0, n + 1.0) for n in counts]
            if epochs is not None:
                times = [_checked_epochs(t, int(n), run) for run, (t, n) in enumerate(zip(epochs, counts, strict=True))]
            observed = list(zip(times, curves, strict=True))
            if dense_epochs is not None:
                observed = _thinned(observed, dense_epochs)
                counts = np.array([len(t) for t, _ in observed], dtype=np.int64)
            patterns = _patterns(observed, dense_epochs is not None)
        places = np.full((len(cube), 2), -1, dtype=np.int64)
        for index, pattern in enumerate(patterns):
            places[pattern.runs, 0] = index
            places[pattern.runs, 1] = np.arange(len(pattern.runs))
        return cls(cube, patterns, counts, places)

    def __len__(self) -> int:
        return len(self.configs)

    @property
    def dimensions(self) -> int:
        """Number of columns of a configuration."""
        return int(self.configs.shape[1])

    @cached_property
    def last_epochs(self) -> Array:
        """(N,) the last observed epoch of each run, zero for a run with no epoch yet."""
        last = np.zeros(len(self))
        for p in self.patterns:
            last[p.runs] = np.where(p.last_epochs > 0, p.last_epochs, p.epochs[p.lengths - 1])
        return last

    @cached_property
    def sums(self) -> Array:
        """(N,) the sum of the losses of each run: with their number, it shows which curves have changed."""
        total = np.zeros(len(self))
        for p in self.patterns:
            total[p.runs] = p.losses.sum(axis=1) + p.last_losses
        return total

    def observed(self, run: int) -> tuple[Array, Array]:
        """Epochs and losses of one run, as the model uses them."""
        pattern, column = self.places[run]
        if pattern < 0:
            return np.empty(0), np.empty(0)
        p = self.patterns[pattern]
        n = p.lengths[column]
        t, y = p.epochs[:n], p.losses[column, :n]
        if p.last_epochs[column] > 0:
            t, y = np.append(t, p.last_epochs[column]), np.append(y, p.last_losses[column])
        return t, y


def geometric_epochs(dense_epochs: int, last: float) -> Array:
    """1, 2, ..., dense_epochs, then each about 1 + 1/dense_epochs times the one before, up to `last`."""
    grid = [1.0]
    while grid[-1] < last:
        grid.append(float(max(grid[-1] + 1, np.floor(grid[-1] * (1 + 1 / dense_epochs)))))
    return np.array([g for g in grid if g <= last])


def _thinned(observed: list[tuple[Array, Array]], dense_epochs: int) -> list[tuple[Array, Array]]:
    if dense_epochs < 2:
        raise ModelError(f"dense_epochs must be at least 2, not {dense_epochs}")
    grid = geometric_epochs(dense_epochs, max((t[-1] for t, _ in observed if len(t)), default=1.0))
    kept = []
    for t, y in observed:
        keep = np.isin(t, grid)
        keep[-1:] = True
        kept.append((t[keep], y[keep]))
    return kept


def _one_pattern(curves: list[Array], counts: IntArray) -> tuple[Pattern, ...]:
    """Runs that were all observed at epochs 1, 2, 3, ...: one pattern, the longest runs first."""
    runs = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    if not len(runs):
        return ()
    lengths, T = counts[runs], int(counts[runs[0]])
    losses = np.zeros((len(runs), T))
    losses[np.arange(T)[None, :] < lengths[:, None]] = np.concatenate([curves[run] for run in runs])
    nothing = np.zeros(len(runs))
    return (Pattern(np.arange(1.0, T + 1.0), runs, lengths, losses, nothing, nothing),)


def _patterns(observed: list[tuple[Array, Array]], thinned: bool) -> tuple[Pattern, ...]:
    """Group the runs: a pattern contains all runs whose epochs are a prefix of its own."""
    members: list[
        tuple[Array, list[tuple[int, int, float, float]]]
    ] = []  # epochs, (run, length, last epoch, last loss)
    by_length = sorted((run for run, (t, _) in enumerate(observed) if len(t)), key=lambda run: -len(observed[run][0]))
    for run in by_length:
        t, y = observed[run]
        for epochs, rows in members:
            if len(t) <= len(epochs) and np.array_equal(epochs[: len(t)], t):
                rows.append((run, len(t), 0.0, 0.0))
                break
            n = len(t) - 1
            if thinned and n and n <= len(epochs) and np.array_equal(epochs[:n], t[:n]):
                rows.append((run, n, float(t[-1]), float(y[-1])))
                break
        else:
            members.append((t, [(run, len(t), 0.0, 0.0)]))
    patterns = []
    for epochs, rows in members:
        runs, lengths, last_epochs, last_losses = (np.array(column) for column in zip(*rows, strict=True))
        losses = np.zeros((len(rows), len(epochs)))
        for row, (run, length, _, _) in enumerate(rows):
            losses[row, :length] = observed[run][1][:length]
        patterns.append(Pattern(epochs, runs, lengths, losses, last_epochs, last_losses))
    return tuple(patterns)


def _checked_configs(configs: ArrayLike) -> Array:
    cube = np.array(configs, dtype=np.float64)
    if cube.ndim != 2:
        raise ModelError(f"configurations must be a table of runs by hyperparameters, not of shape {cube.shape}")
    bad = ~np.isfinite(cube)
    if bad.any():
        run, d = np.argwhere(bad)[0]
        raise ModelError(f"configuration of run {run} has {cube[run, d]} in dimension {d}; all values must be finite")
    if cube.size and (cube.min() < 0 or cube.max() > 1):
        run, d = np.argwhere((cube < 0) | (cube > 1))[0]
        raise ModelError(f"configuration of run {run} has {cube[run, d]:g} in dimension {d}, outside the unit cube")
    return cube


def _checked_losses(curves: Sequence[ArrayLike]) -> list[Array]:
    found = [np.array(curve, dtype=np.float64) for curve in curves]
    for run, y in enumerate(found):
        if y.ndim != 1:
            raise ModelError(f"the curve of run {run} must be a list of losses, not of shape {y.shape}")
    if found and not np.isfinite(np.concatenate(found)).all():
        run, y = next((run, y) for run, y in enumerate(found) if not np.isfinite(y).all())
        where = int(np.argmin(np.isfinite(y)))
        raise ModelError(
            f"loss {where + 1} of run {run} is {y[where]}; a diverged run is cut before its first non-finite loss"
        )
    return found


def _checked_epochs(epochs: ArrayLike, count: int, run: int) -> Array:
    t = np.array(epochs, dtype=np.float64)
    if t.shape != (count,):
        raise ModelError(f"run {run} has {count} losses but epochs of shape {t.shape}")
    if not np.isfinite(t).all() or (count and t[0] <= 0) or np.any(np.diff(t) <= 0):
        raise ModelError(f"epochs of run {run} must be positive and increase: {t.tolist()}")
    return t
