"""Cholesky factors and triangular solves of one matrix or of a stack of them.

Arrays may have leading dimensions, one matrix for each hyperparameter sample. LAPACK is called directly for triangular
systems, which NumPy does not have: the matrices are small and many, and the checks and copies of the general wrappers
would cost as much as the work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs

from freezethaw.errors import SingularCovarianceError

Array = NDArray[np.float64]


def cholesky(A: Array, what: str) -> Array:
    """Lower factor L of a symmetric A = L L^T; `what` is its name in error messages.

    In a stack of matrices, those that are not positive definite get a factor of NaN.
    """
    try:
        L = np.linalg.cholesky(A)
    except np.linalg.LinAlgError:
        L = np.full_like(A, np.nan) if A.ndim == 2 else np.stack([_factor_or_nan(each) for each in A])
    if A.ndim == 2 and len(A) and not np.isfinite(L[-1, -1]):
        raise SingularCovarianceError(f"{what} is not positive definite")
    return np.asarray(L, dtype=np.float64)


def _factor_or_nan(A: Array) -> Array:
    try:
        return np.asarray(np.linalg.cholesky(A), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.full_like(A, np.nan)


def solve_rows(L: Array, rows: Array, transposed: bool = False) -> Array:
    """L^-1 x, or L^-T x, of each row x, for (..., M, M) factors and (..., K, M) rows; leading dimensions broadcast.

    Rows, because LAPACK stores the solutions one after the other.
    """
    if not L.size or not rows.size:
        return rows.copy()
    if L.ndim == 2 and rows.ndim == 2:
        return _solve(L, rows, transposed)
    stack = L.shape[:-2]
    if stack != rows.shape[:-2]:
        stack = np.broadcast_shapes(stack, rows.shape[:-2])
        L, rows = np.broadcast_to(L, (*stack, *L.shape[-2:])), np.broadcast_to(rows, (*stack, *rows.shape[-2:]))
    x = np.empty(rows.shape)
    for i in np.ndindex(stack):
        x[i] = _solve(L[i], rows[i], transposed)
    return x


def solve_lower(L: Array, b: Array, transposed: bool = False) -> Array:
    """The same for (..., M, K) columns."""
    return np.asarray(np.swapaxes(solve_rows(L, np.swapaxes(b, -1, -2), transposed), -1, -2))


def solve_vector(L: Array, b: Array, transposed: bool = False) -> Array:
    """The same for one vector (..., M) for each factor."""
    return np.asarray(solve_rows(L, b[..., None, :], transposed)[..., 0, :])


def _solve(L: Array, rows: Array, transposed: bool) -> Array:
    # L is stored by rows, so its transpose is an upper factor stored by columns, and nothing is copied
    x, info = dtrtrs(L.T, rows.T, lower=0, trans=int(not transposed))
    if info:
        raise SingularCovarianceError("a triangular factor has a zero on its diagonal")
    return np.asarray(x.T)


def transposed(A: Array) -> Array:
    """The transposes of a stack of matrices."""
    return np.asarray(np.swapaxes(A, -1, -2))


def add_to_diagonal(A: Array, values: float | Array) -> None:
    """Add to the diagonals of a stack of matrices, in place."""
    np.einsum("...ii->...i", A)[...] += values
