"""Sufficient statistics of the curves for their coefficients, by one shared Cholesky factor over epochs.

Paper: section 4.2 (gamma and Lambda of equation 11), in an equivalent form for q basis functions.

The losses of a run are y = H c + r with H = (h_1(t), ..., h_q(t)), the coefficients c of the run, and a residual
process r with covariance K_t. The leading block of a Cholesky factor is the factor of the leading block, so one factor
L of the longest K_t serves every shorter curve: V = L^-1 H and u = L^-1 y are computed once, and each run uses its
first rows. With the thin QR factorisation V = Q R,

    |u - V c|^2 = |u - Q Q^T u|^2 + |Q^T u - R c|^2,

so T losses become at most q *pseudo-observations* g = Q^T u of R c with unit noise, and a residual sum of squares that
does not depend on c. With q = 1 and h = 1 (the paper) R^2 = lambda_n and R g = gamma_n at zero mean. A run with no
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
    """Basis functions of time, covariance of the residual over epochs, and variance of the noise."""

    basis: Basis
    covariance: Covariance
    noise: float


@dataclass(frozen=True)
class Whitened:
    """One pattern after forward substitution. The last row is for the last epoch of a thinned run, otherwise zero."""

    factor: Array  # L (T, T)
    basis: Array  # V (n, T + 1, q), zero after the last epoch of a run
    losses: Array  # u (T + 1, n), likewise
    tails: Array  # (n, T) L^-1 k(t, last epoch), zero after the last epoch of a run and for runs that are not thinned
    tail_scales: Array  # (n,) conditional standard deviation of the last loss, 1 for runs that are not thinned


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
    """Reduce every curve to its sufficient statistics, in O(T^3 + N T^2)."""
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
        # one more row of the factor for each thinned run: (l, d) with |l|^2 + d^2 = k(e, e) + noise
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
    """V = Q R for every run; runs with the same last epoch have the same factors, which are computed once."""
    first, which = pattern.distinct_ends
    distinct = V[first]
    short = distinct.shape[2] - distinct.shape[1]
    if short > 0:  # fewer epochs than basis functions: rows of zeros complete the thin factor
        distinct = np.concatenate([distinct, np.zeros((len(distinct), short, distinct.shape[2]))], axis=1)
    Q, R = np.linalg.qr(distinct)
    return Q[which, : V.shape[1]], R[which]


@dataclass(frozen=True)
class Extension:
    """Losses of one run at further epochs, given its coefficients: mean = offset + slope . c, and a covariance."""

    offset: Array  # (E,)
    slope: Array  # (E, q)   the paper's Omega
    covariance: Array  # (E, E) of the noise-free losses


def extend(curves: Curves, summary: Summary, time: TimeModel, run: int, epochs: Array) -> Extension:
    """Equation 15 before the coefficients are integrated out; exact for a run with no epoch."""
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
