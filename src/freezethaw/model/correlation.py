"""Correlation between runs: Matern-5/2 on warped inputs, one length scale for each hyperparameter.

Paper: appendix B. In the model `luck` two runs of one configuration differ (seeds, order of data), so the correlation
of different runs is multiplied by `repeat_correlation`, which is one in the other models.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from freezethaw.model.curves import Array, IntArray
from freezethaw.model.kernels import matern52, over_pairs, warp
from freezethaw.model.specification import Geometry, Values, repeat_correlation


def warped(configs: Array, values: Values) -> Array:
    """(..., N, D) configurations (N, D) with the warp w_d applied to each column that has warp parameters."""
    columns = [d for d in range(configs.shape[1]) if f"warp.a.{d}" in values]
    if not columns or not len(configs):
        return configs
    a, b = (np.stack([np.asarray(values[f"warp.{ab}.{d}"]) for d in columns], axis=-1) for ab in "ab")
    found = np.broadcast_to(configs, (*a.shape[:-1], *configs.shape)).copy()
    found[..., columns] = warp(configs[:, columns], a[..., None, :], b[..., None, :])
    return found


def scaled(configs: Array, geometry: Geometry, values: Values) -> Array:
    """Warped inputs divided by their length scales: r^2 is the squared Euclidean distance between them."""
    if not geometry.lengths:  # a space without parameters: all runs are of one configuration
        return np.empty((*np.shape(values["noise"]), len(configs), 0))
    lengths = np.stack([np.asarray(values[f"length.{g}"]) for g in geometry.lengths], axis=-1)
    return np.asarray(warped(configs, values) / lengths[..., None, :])


def scaled_column(x: Array, column: int, geometry: Geometry, values: Values) -> Array:
    """(S, N) one column of `scaled` for S samples."""
    if f"warp.a.{column}" in values:
        a, b = (np.asarray(values[f"warp.{ab}.{column}"])[:, None] for ab in "ab")
        x = warp(x, a, b)
    return np.asarray(x / np.asarray(values[f"length.{geometry.lengths[column]}"])[:, None])


def squared_distances(x: Array, z: Array) -> Array:
    """(..., P, N) between all pairs of scaled inputs, computed from differences, for near-duplicates."""
    if x.ndim == 2:
        return np.asarray(cdist(x, z, "sqeuclidean"))
    squares = np.empty((len(x), x.shape[1], z.shape[1]))
    for i in range(len(x)):
        cdist(x[i], z[i], "sqeuclidean", out=squares[i])
    return squares


def correlation(x: Array, z: Array) -> Array:
    """Matern-5/2 between all pairs of scaled inputs."""
    return matern52(squared_distances(x, z))


def run_correlation(x: Array, x_runs: IntArray, z: Array, z_runs: IntArray, values: Values) -> Array:
    """Correlation between the coefficients of all pairs of runs, given their scaled inputs and their indices."""
    return of_runs(squared_distances(x, z), x_runs, z_runs, values)


def of_runs(squares: Array, x_runs: IntArray, z_runs: IntArray, values: Values) -> Array:
    """The same, given the squared distances of the inputs."""
    K = matern52(squares)
    repeats = repeat_correlation(values)
    if repeats is not None:
        K *= over_pairs(repeats)
        K[..., x_runs[:, None] == z_runs[None, :]] = 1.0
    return K
