"""What the curves say of the coefficients: sufficient statistics by one shared Cholesky factor.

A run's losses are y = H c + r with H = (h_1(t), ..., h_q(t)), coefficients c of its own, and a residual process r with
covariance K_t. Forward substitution only looks back, so one factor L of the longest K_t serves every shorter curve:
V = L^-1 H and u = L^-1 y once, and prefixes of their rows for each run. With the thin factorisation V = Q R,

    |u - V c|^2 = |u - Q Q^T u|^2 + |Q^T u - R c|^2,

so that T losses become at most q *pseudo-observations* g = Q^T u of R c with unit noise, and a residual sum of squares
that knows nothing of c. With q = 1 and h = 1 (the paper) R^2 = lambda_n and R g = gamma_n at zero mean. A run with no
epoch has no row; a run with one epoch has one, whatever q is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from freezethaw.model.curves import Array, Curves, IntArray, Pattern
from freezethaw.model.linear import cholesky, solve_lower

Basis = Callable[[Array], Array]  # epochs (T,) -> (T, q)
Covariance = Callable[[Array, Array], Array]  # epochs (T,), (U,) -> (T, U), without the noise


@dataclass(frozen=True)
class TimeModel:
    """Basis functions of time, the residual's covariance over epochs, and the variance of the noise."""

    basis: Basis
    covariance: Covariance
    noise: float


@dataclass(frozen=True)
class Whitened:
    """One pattern after forward substitution. The last row holds a thinned run's own last epoch, else zeros."""

    factor: Array  # L (T, T)
    basis: Array  # V (n, T + 1, q), zero beyond a run's length
    losses: Array  # u (T + 1, n), likewise
    tails: Array  # (n, T) L^-1 k(t, last epoch), zero beyond the length and where there is none
    tail_scales: Array  # (n,) conditional standard deviation of the last loss, 1 where there is none


@dataclass(frozen=True)
class Summary:
    """Pseudo-observations of all runs, flattened: `values` = `directions` . c[`runs`] + unit noise."""

    runs: IntArray  # (M,)
    directions: Array  # (M, q)
    values: Array  # (M,)
    residuals: Array  # (N,) |u - Q Q^T u|^2
    freedoms: IntArray  # (N,) losses minus pseudo-observations
    log_determinants: Array  # (N,) log |K_tn|
    whitened: tuple[Whitened, ...]


def summarise(curves: Curves, time: TimeModel) -> Summary:
    """Reduce every curve to its sufficient statistics: O(T^3 + N T^2) in a handful of library calls."""
    N, q = len(curves), time.basis(np.ones(1)).shape[1]
    R, g = np.zeros((N, q, q)), np.zeros((N, q))
    residuals, log_determinants = np.zeros(N), np.zeros(N)
    whitened = []
    for pattern in curves.patterns:
        w = _whiten(pattern, time)
        whitened.append(w)
        Q, R_p = _thin_qr(w.basis, pattern)
        u = w.losses.T
        g_p = np.matmul(u[:, None, :], Q)[:, 0, :]
        R[pattern.runs], g[pattern.runs] = R_p, g_p
        residuals[pattern.runs] = np.maximum(np.einsum("nt,nt->n", u, u) - np.einsum("nj,nj->n", g_p, g_p), 0.0)
        log_diagonal = np.concatenate([[0.0], np.cumsum(np.log(np.diag(w.factor)))])
        log_determinants[pattern.runs] = 2 * (log_diagonal[pattern.lengths] + np.log(w.tail_scales))
    ranks = np.minimum(curves.counts, q)
    rows = np.arange(q)[None, :] < ranks[:, None]
    return Summary(
        runs=np.repeat(np.arange(N), ranks),
        directions=R[rows],
        values=g[rows],
        residuals=residuals,
        freedoms=curves.counts - ranks,
        log_determinants=log_determinants,
        whitened=tuple(whitened),
    )


def _whiten(pattern: Pattern, time: TimeModel) -> Whitened:
    t, n = pattern.epochs, len(pattern.runs)
    H = time.basis(t)
    L = _factor(time.covariance(t, t), time.noise)
    z = solve_lower(L, np.hstack([H, pattern.losses]))
    q = H.shape[1]
    seen = np.arange(len(t))[:, None] < pattern.lengths[None, :]  # (T, n)
    V = np.zeros((n, len(t) + 1, q))
    V[:, :-1] = z[None, :, :q] * seen.T[:, :, None]
    u = np.zeros((len(t) + 1, n))
    u[:-1] = z[:, q:] * seen
    tails, scales = np.zeros((n, len(t))), np.ones(n)
    own = np.flatnonzero(pattern.last_epochs > 0)
    if len(own):
        # one more row of the factor for each run that has an epoch of its own: (l, d) with |l|^2 + d^2 = k(e, e)
        e = pattern.last_epochs[own]
        tails[own] = (solve_lower(L, time.covariance(t, e)) * seen[:, own]).T
        variance = _diagonal(time.covariance, e) + time.noise - np.einsum("nt,nt->n", tails[own], tails[own])
        scales[own] = np.sqrt(variance)
        u[-1, own] = (pattern.last_losses[own] - np.einsum("nt,tn->n", tails[own], u[:-1, own])) / scales[own]
        V[own, -1] = (time.basis(e) - np.einsum("nt,ntq->nq", tails[own], V[own, :-1])) / scales[own, None]
    return Whitened(L, V, u, tails, scales)


def _factor(K: Array, noise: float) -> Array:
    K = K.copy()
    K.flat[:: len(K) + 1] += noise  # the diagonal
    return cholesky(K, f"the covariance over epochs with noise variance {noise:g}")


def _diagonal(covariance: Covariance, t: Array) -> Array:
    return np.array([covariance(e, e)[0, 0] for e in t[:, None]])


def _thin_qr(V: Array, pattern: Pattern) -> tuple[Array, Array]:
    """V = Q R for every run; runs that stopped at the same epoch share theirs, so each is factored once."""
    first, which = pattern.distinct_ends
    distinct = V[first]
    short = distinct.shape[2] - distinct.shape[1]
    if short > 0:  # fewer epochs than basis functions: rows of zeros complete the thin factor
        distinct = np.concatenate([distinct, np.zeros((len(distinct), short, distinct.shape[2]))], axis=1)
    Q, R = np.linalg.qr(distinct)
    return Q[which, : V.shape[1]], R[which]


@dataclass(frozen=True)
class Extension:
    """Losses at further epochs of one run, given its coefficients: mean = offset + slope . c, and a covariance."""

    offset: Array  # (E,)
    slope: Array  # (E, q)   the paper's Omega
    covariance: Array  # (E, E) of the noise-free losses


def extend(curves: Curves, summary: Summary, time: TimeModel, run: int, epochs: Array) -> Extension:
    """Equation 15's conditional before the coefficients are integrated out; exact for a run with no epoch."""
    H, K = time.basis(epochs), time.covariance(epochs, epochs)
    place, column = curves.places[run]
    if place < 0:
        return Extension(np.zeros(len(epochs)), H, K)
    pattern, w = curves.patterns[place], summary.whitened[place]
    n = pattern.lengths[column]
    back = np.zeros((len(pattern.epochs) + 1, len(epochs)))  # L^-1 k(t, epochs) on the run's own rows
    back[:n] = solve_lower(w.factor[:n, :n], time.covariance(pattern.epochs[:n], epochs))
    last = pattern.last_epochs[column]
    if last > 0:
        cross = time.covariance(np.array([last]), epochs)[0]
        back[-1] = (cross - w.tails[column] @ back[:-1]) / w.tail_scales[column]
    return Extension(back.T @ w.losses[:, column], H - back.T @ w.basis[column], K - back.T @ back)


@dataclass(frozen=True)
class Extensions:
    """Losses of P runs at common epochs, given their coefficients: mean = offset + slope . c, and a variance."""

    offset: Array  # (P, E)
    slope: Array  # (P, E, q)
    variance: Array  # (P, E) of the noise-free losses at scale one


def extend_all(curves: Curves, summary: Summary, time: TimeModel, epochs: Array, runs: IntArray) -> Extensions:
    """`extend` for many runs at once, without covariances between epochs. Epochs already seen are smoothed."""
    H, prior = time.basis(epochs), np.diag(time.covariance(epochs, epochs))
    offset, variance = np.zeros((len(runs), len(epochs))), np.repeat(prior[None], len(runs), axis=0)
    slope = np.repeat(H[None], len(runs), axis=0)
    for index, (pattern, w) in enumerate(zip(curves.patterns, summary.whitened, strict=True)):
        here = np.flatnonzero(curves.places[runs, 0] == index)
        columns = curves.places[runs[here], 1]
        t = pattern.epochs
        seen = (np.arange(len(t))[None, :] < pattern.lengths[columns, None]).astype(np.float64)  # (n, T)
        back = solve_lower(w.factor, time.covariance(t, epochs))  # (T, E)
        offset[here] += w.losses[:-1, columns].T @ back
        slope[here] -= np.matmul(back.T, w.basis[columns, :-1])
        variance[here] -= seen @ (back * back)
        own = pattern.last_epochs[columns] > 0
        if own.any():  # the bordered row of a thinned run's last epoch
            here, columns = here[own], columns[own]
            cross = time.covariance(pattern.last_epochs[columns], epochs)
            tail = (cross - w.tails[columns] @ back) / w.tail_scales[columns, None]  # (own, E)
            offset[here] += w.losses[-1, columns][:, None] * tail
            slope[here] -= w.basis[columns, -1][:, None, :] * tail[:, :, None]
            variance[here] -= tail * tail
    return Extensions(offset, slope, np.maximum(variance, 0.0))
