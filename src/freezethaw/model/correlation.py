"""Correlation between runs: Matern-5/2 on warped inputs, one length scale for each hyperparameter.

Paper: appendix B. In the model `luck` two runs of one configuration differ (seeds, order of data), so the correlation
of different runs is multiplied by `repeat_correlation`, which is one in the other models.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist, squareform

from freezethaw.model.curves import Array, IntArray
from freezethaw.model.kernels import matern52, warp
from freezethaw.model.specification import Geometry, Values, repeat_correlation


def warped(configs: Array, values: Values) -> Array:
    """Apply the warp w_d to each column that has warp parameters."""
    columns = [d for d in range(configs.shape[1]) if f"warp.a.{d}" in values]
    found = np.array(configs)
    if columns and len(configs):
        a, b = (np.array([values[f"warp.{ab}.{d}"] for d in columns]) for ab in "ab")
        found[:, columns] = warp(configs[:, columns], a, b)
    return found


def _warped_column(x: Array, column: int, values: Values) -> Array:
    a = values.get(f"warp.a.{column}")
    return x if a is None else warp(x, a, values[f"warp.b.{column}"])


def scaled(configs: Array, geometry: Geometry, values: Values) -> Array:
    """Warped inputs divided by their length scales: r^2 is the squared Euclidean distance between them."""
    lengths = np.array([values[f"length.{g}"] for g in geometry.lengths])
    return np.asarray(warped(configs, values) / lengths)


def correlation(x: Array, z: Array) -> Array:
    """Matern-5/2 between all pairs of scaled inputs. Distances are computed from differences, for near-duplicates."""
    return matern52(np.asarray(cdist(x, z, "sqeuclidean")))


def run_correlation(x: Array, x_runs: IntArray, z: Array, z_runs: IntArray, values: Values) -> Array:
    """Correlation between the coefficients of all pairs of runs, given their scaled inputs and their indices."""
    K = correlation(x, z)
    if repeat_correlation(values) < 1.0:
        K *= repeat_correlation(values)
        K[x_runs[:, None] == z_runs[None, :]] = 1.0
    return K


class PairDistances:
    """Squared distances of all pairs of N configurations, cached by dimension for the sampler.

    Changing a length scale or a warp changes one dimension only.
    """

    def __init__(self, configs: Array, geometry: Geometry) -> None:
        self._configs = configs
        self._left, self._right = (index.astype(np.int64) for index in np.triu_indices(len(configs), 1))
        self._squares = np.zeros((geometry.count, len(self._left)))
        self._warps: list[tuple[float | None, ...] | None] = [None] * geometry.count
        self._columns = [[c for c, g in enumerate(geometry.lengths) if g == group] for group in range(geometry.count)]
        self._warp_names = [[f"warp.{ab}.{c}" for c in columns for ab in "ab"] for columns in self._columns]
        self._length_names = [f"length.{g}" for g in range(geometry.count)]

    def correlation(self, values: Values) -> Array:
        """(N, N) correlation matrix at these values."""
        for group, columns in enumerate(self._columns):
            self._refresh(group, columns, values)
        precisions = np.array([values[name] ** -2.0 for name in self._length_names])
        K = np.asarray(squareform(repeat_correlation(values) * matern52(precisions @ self._squares), checks=False))
        K.flat[:: len(K) + 1] = 1.0  # the diagonal
        return K

    def _refresh(self, group: int, columns: list[int], values: Values) -> None:
        key = tuple(map(values.get, self._warp_names[group]))
        if self._warps[group] == key:
            return
        total = np.zeros(len(self._left))
        for c in columns:
            w = _warped_column(self._configs[:, c], c, values)
            difference = w[self._left] - w[self._right]
            total += difference * difference
        self._squares[group], self._warps[group] = total, key
