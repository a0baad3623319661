"""Sufficient statistics of the curves for their coefficients, by one shared Cholesky factor over epochs.

Paper: section 4.2 (gamma and Lambda of equation 11), in an equivalent form for q basis functions.

The losses of a run are y = H c + r with H = (h_1(t), ..., h_q(t)), the coefficients c of the run, and a residual
process r with covariance K_t. The leading block of a Cholesky factor is the factor of the leading block, so one factor
L of the longest K_t serves every shorter curve: V = L^-1 H and u = L^-1 y are computed once, and each run uses its
first rows. With the thin QR factorisation V = Q R,

    |u - V c|^2 = |u - Q Q^T u|^2 + |Q^T u - R c|^2,

so T losses become at most q *pseudo-observations* g = Q^T u of R c with unit noise, and a residual sum of squares that
does not depend on c. With q = 1 and h = 1 (the paper) R^2 = lambda_n and R g = gamma_n at zero mean. A run with no
epoch has no row; a run with one epoch has one, whatever q is. A basis function that is zero up to the last epoch of a
run adds no row.

Arrays may have leading dimensions (...), one entry for each hyperparameter sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.curves import Array, Curves, IntArray, Pattern
from freezethaw.model.linear import add_to_diagonal, cholesky, solve_rows, transposed

Basis = Callable[[Array], Array]  # epochs (T,) -> (..., T, q)
Covariance = Callable[[Array, Array], Array]  # epochs (T,), (U,) -> (..., T, U), without the noise


@dataclass(frozen=True)
class TimeModel:
    """Basis functions of time, covariance of the residual over epochs, and variance of the noise."""

    basis: Basis
    covariance: Covariance
    noise: Array  # (...)

    def variance(self, t: Array) -> Array:
        """(..., T) of the residual at each epoch, without the noise."""
        return np.asarray(np.einsum("...tt->...t", self.covariance(t, t)))


@dataclass(frozen=True)
class Whitened:
    """One pattern after forward substitution. The last row is for the last epoch of a thinned run, otherwise zero."""

    factor: Array  # L (..., T, T)
    basis: Array  # V (..., m, T + 1, q) for the m distinct last epochs of the pattern, zero after them
    losses: Array  # u (..., n, T + 1), likewise
    tails: Array  # (..., n, T) L^-1 k(t, last epoch), zero after the last epoch of a run and for runs not thinned
    tail_scales: Array  # (..., n) conditional standard deviation of the last loss, 1 for runs that are not thinned


@dataclass(frozen=True)
class Summary:
    """Pseudo-observations of all runs, flattened: `values` = `directions` . c[`runs`] + unit noise."""

    runs: IntArray  # (M,)
    directions: Array  # (..., M, q)
    values: Array  # (..., M)
    residuals: Array  # (..., N) |u - Q Q^T u|^2
    freedoms: IntArray  # (N,) losses minus pseudo-observations
    log_determinants: Array  # (..., N) log |K_tn|
    whitened: tuple[Whitened, ...]


Record = TypeVar("Record")


def take_samples(record: Record, index: int | IntArray) -> Record:
    """The entries of one hyperparameter sample, or of some, in a record whose arrays have one entry for each.

    Arrays of integers are those that all samples share.
    """

    def entry(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value if value.dtype.kind == "i" else value[index]
        if isinstance(value, tuple):
            return tuple(map(entry, value))
        return value if value is None else take_samples(value, index)

    names = [f.name for f in fields(cast(Any, record))]
    return cast(Record, replace(cast(Any, record), **{name: entry(getattr(record, name)) for name in names}))


def summarise(curves: Curves, time: TimeModel) -> Summary:
    """Reduce every curve to its sufficient statistics, in O(T^3 + N T^2)."""
    N, (*stack, _, q) = len(curves), time.basis(np.ones(1)).shape
    R, g = np.zeros((*stack, N, q, q)), np.zeros((*stack, N, q))
    residuals, log_determinants = np.zeros((*stack, N)), np.zeros((*stack, N))
    rows = np.zeros((N, q), dtype=bool)
    whitened = []
    for pattern in curves.patterns:
        w = _whiten(pattern, time)
        whitened.append(w)
        runs = pattern.runs
        counts = curves.counts[runs]
        rows[runs] = _informed(w, pattern, counts)
        R[..., runs, :, :], g[..., runs, :], residuals[..., runs] = _project(w, pattern, rows[runs], counts)
        log_diagonal = np.zeros((*stack, len(pattern.epochs) + 1))
        np.cumsum(np.log(np.einsum("...tt->...t", w.factor)), axis=-1, out=log_diagonal[..., 1:])
        log_determinants[..., runs] = 2 * (log_diagonal[..., pattern.lengths] + np.log(w.tail_scales))
    ranks = rows.sum(axis=1)
    return Summary(
        runs=np.repeat(np.arange(N), ranks),
        directions=R[..., rows, :],
        values=g[..., rows],
        residuals=residuals,
        freedoms=curves.counts - ranks,
        log_determinants=log_determinants,
        whitened=tuple(whitened),
    )


def _whiten(pattern: Pattern, time: TimeModel) -> Whitened:
    t, n = pattern.epochs, len(pattern.runs)
    H = time.basis(t)
    *stack, T, q = H.shape
    K = np.array(time.covariance(t, t))
    add_to_diagonal(K, time.noise[..., None])
    noise = "" if stack else f" with noise variance {time.noise}"  # for the error, which names one matrix only
    L = cholesky(K, f"the covariance over epochs{noise}")
    losses = np.broadcast_to(pattern.losses, (*stack, n, T))
    z = solve_rows(L, np.concatenate([transposed(H), losses], axis=-2))  # (..., q + n, T)
    seen = np.arange(T)[None, :] < pattern.lengths[:, None]  # (n, T)
    first, which = pattern.distinct_ends
    V = np.zeros((*stack, len(first), T + 1, q))
    V[..., :-1, :] = transposed(z[..., :q, :])[..., None, :, :] * seen[first, :, None]
    u = np.zeros((*stack, n, T + 1))
    u[..., :-1] = z[..., q:, :] * seen
    tails, scales = np.zeros((*stack, n, T)), np.ones((*stack, n))
    own = np.flatnonzero(pattern.last_epochs > 0)
    if len(own):
        # one more row of the factor for each thinned run: (l, d) with |l|^2 + d^2 = k(e, e) + noise
        e = pattern.last_epochs[own]
        tail = solve_rows(L, time.covariance(e, t)) * seen[own]
        d = np.sqrt(time.variance(e) + time.noise[..., None] - np.einsum("...nt,...nt->...n", tail, tail))
        u[..., own, -1] = (pattern.last_losses[own] - np.einsum("...nt,...nt->...n", tail, u[..., own, :-1])) / d
        explained = np.einsum("...nt,...ntq->...nq", tail, V[..., which[own], :-1, :])
        V[..., which[own], -1, :] = (time.basis(e) - explained) / d[..., None]
        tails[..., own, :], scales[..., own] = tail, d
    return Whitened(L, V, u, tails, scales)


def _informed(w: Whitened, pattern: Pattern, counts: IntArray) -> NDArray[np.bool_]:
    """(n, q) the pseudo-observations that a run has: at most one for each epoch, none where the basis is still zero."""
    which = pattern.distinct_ends[1]
    nonzero = (w.basis != 0).any(axis=(*range(w.basis.ndim - 3), -2))[which]
    return np.asarray(nonzero & (nonzero.cumsum(axis=1) <= counts[:, None]))


def _project(w: Whitened, pattern: Pattern, rows: NDArray[np.bool_], counts: IntArray) -> tuple[Array, Array, Array]:
    """R (..., n, q, q), g = Q^T u (..., n, q) and |u - Q Q^T u|^2 (..., n) of V = Q R, by modified Gram-Schmidt.

    Applied to V and then to u, it is as accurate as Householder's method (Bjorck 1967). Runs with the same last epoch
    have the same Q and R, which are computed once.
    """
    first, which = pattern.distinct_ends
    V, u = w.basis.copy(), w.losses
    q = V.shape[-1]
    R, g = np.zeros((*V.shape[:-2], q, q)), np.zeros((*u.shape[:-1], q))
    for j in range(q):
        column = V[..., j]
        norm = np.sqrt(np.einsum("...nt,...nt->...n", column, column))
        # where a run has no more directions, what is left of its column is rounding
        norm = np.where(rows[first, j], norm, 0.0)
        Q = np.divide(column, norm[..., None], out=np.zeros_like(column), where=norm[..., None] > 0)
        R[..., j, j] = norm
        for k in range(j + 1, q):
            R[..., j, k] = np.einsum("...nt,...nt->...n", Q, V[..., k])
            V[..., k] -= R[..., j, k, None] * Q
        Q = Q.take(which, axis=-2)
        g[..., j] = np.einsum("...nt,...nt->...n", Q, u)
        u = u - g[..., j, None] * Q
    return R.take(which, axis=-3), g, np.where(counts > rows.sum(axis=1), np.einsum("...nt,...nt->...n", u, u), 0.0)


@dataclass(frozen=True)
class Extension:
    """Losses of one run at further epochs, given its coefficients: mean = offset + slope . c, and a covariance."""

    offset: Array  # (..., E)
    slope: Array  # (..., E, q)   the paper's Omega
    covariance: Array  # (..., E, E) of the noise-free losses


def extend(curves: Curves, summary: Summary, time: TimeModel, run: int, epochs: Array) -> Extension:
    """Equation 15 before the coefficients are integrated out; exact for a run with no epoch."""
    H, K = time.basis(epochs), time.covariance(epochs, epochs)
    place, column = curves.places[run]
    if place < 0:
        return Extension(np.zeros(H.shape[:-1]), H, K)
    pattern, w = curves.patterns[place], summary.whitened[place]
    n = pattern.lengths[column]
    back = np.zeros((*H.shape[:-2], len(epochs), len(pattern.epochs) + 1))  # L^-1 k(t, epochs) on the run's own rows
    back[..., :n] = solve_rows(w.factor[..., :n, :n], time.covariance(epochs, pattern.epochs[:n]))
    last = pattern.last_epochs[column]
    if last > 0:
        cross = time.covariance(np.array([last]), epochs)[..., 0, :]
        explained = (back[..., :-1] @ w.tails[..., column, :, None])[..., 0]
        back[..., -1] = (cross - explained) / w.tail_scales[..., column, None]
    offset = (back @ w.losses[..., column, :, None])[..., 0]
    return Extension(
        offset, H - back @ w.basis[..., pattern.distinct_ends[1][column], :, :], K - back @ transposed(back)
    )
