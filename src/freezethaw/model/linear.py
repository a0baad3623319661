"""Cholesky factor, triangular solves and triangular inverse.

LAPACK is called directly: the matrices are small and many, and the checks and copies of the general wrappers would cost
as much as the work. Factors are stored in column-major order, so that no solve copies them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri, dtrtrs

from freezethaw.errors import SingularCovarianceError

Array = NDArray[np.float64]


def cholesky(A: Array, what: str) -> Array:
    """Lower factor L of a symmetric A = L L^T. A is overwritten; `what` is its name in error messages."""
    if not len(A):
        return A
    # A is symmetric, so its transpose is A in column-major order, and is factorised in place
    L, info = dpotrf(A.T, lower=1, clean=1, overwrite_a=1)
    if info or not np.isfinite(L[-1, -1]):
        raise SingularCovarianceError(f"{what} is not positive definite")
    return np.asarray(L)


def solve_lower(L: Array, b: Array, transposed: bool = False) -> Array:
    """L^-1 b, or L^-T b, for one or several columns b."""
    if not L.size or not b.size:
        return b.copy()
    x, info = dtrtrs(L, b, lower=1, trans=int(transposed))
    if info:
        raise SingularCovarianceError("a triangular factor has a zero on its diagonal")
    return np.asarray(x)


def invert_lower(L: Array) -> Array:
    """L^-1, which is cheaper than many solves."""
    if not L.size:
        return L
    inverse, info = dtrtri(L, lower=1)
    if info:
        raise SingularCovarianceError("a triangular factor has a zero on its diagonal")
    return np.asarray(inverse)
