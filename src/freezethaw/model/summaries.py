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
from scipy.linalg import solve_triangular

from freezethaw.errors import SingularCovarianceError
from freezethaw.model.curves import Array, Curves, IntArray, Pattern

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
    z = solve_triangular(L, np.hstack([H, pattern.losses]), lower=True, check_finite=False)
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
        tails[own] = (solve_triangular(L, time.covariance(t, e), lower=True, check_finite=False) * seen[:, own]).T
        variance = _diagonal(time.covariance, e) + time.noise - np.einsum("nt,nt->n", tails[own], tails[own])
        scales[own] = np.sqrt(variance)
        u[-1, own] = (pattern.last_losses[own] - np.einsum("nt,tn->n", tails[own], u[:-1, own])) / scales[own]
        V[own, -1] = (time.basis(e) - np.einsum("nt,ntq->nq", tails[own], V[own, :-1])) / scales[own, None]
    return Whitened(L, V, u, tails, scales)


def _factor(K: Array, noise: float) -> Array:
    K = K.copy()
    K[np.diag_indices_from(K)] += noise
    try:
        return np.asarray(np.linalg.cholesky(K))
    except np.linalg.LinAlgError:
        raise SingularCovarianceError(
            f"the covariance over epochs is not positive definite with noise variance {noise:g}"
        ) from None


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
    back[:n] = solve_triangular(
        w.factor[:n, :n], time.covariance(pattern.epochs[:n], epochs), lower=True, check_finite=False
    )
    last = pattern.last_epochs[column]
    if last > 0:
        cross = time.covariance(np.array([last]), epochs)[0]
        back[-1] = (cross - w.tails[column] @ back[:-1]) / w.tail_scales[column]
    return Extension(back.T @ w.losses[:, column], H - back.T @ w.basis[column], K - back.T @ back)


@dataclass(frozen=True)
class Extensions:
    """Losses of every run at common epochs, given its coefficients: mean = offset + slope . c, and a variance."""

    offset: Array  # (N, E)
    slope: Array  # (N, E, q)
    variance: Array  # (N, E) of the noise-free losses at scale one


def extend_all(curves: Curves, summary: Summary, time: TimeModel, epochs: Array) -> Extensions:
    """`extend` for all runs at once, without covariances between epochs. Epochs already seen are smoothed."""
    H, prior = time.basis(epochs), np.diag(time.covariance(epochs, epochs))
    N, q = len(curves), H.shape[1]
    offset, variance = np.zeros((N, len(epochs))), np.repeat(prior[None], N, axis=0)
    slope = np.repeat(H[None], N, axis=0)
    for pattern, w in zip(curves.patterns, summary.whitened, strict=True):
        t, runs = pattern.epochs, pattern.runs
        seen = (np.arange(len(t))[None, :] < pattern.lengths[:, None]).astype(np.float64)  # (n, T)
        back = solve_triangular(w.factor, time.covariance(t, epochs), lower=True, check_finite=False)  # (T, E)
        offset[runs] += w.losses[:-1].T @ back
        slope[runs] -= (
            (w.basis[:, :-1].transpose(0, 2, 1).reshape(-1, len(t)) @ back).reshape(len(runs), q, -1).transpose(0, 2, 1)
        )
        variance[runs] -= seen @ (back * back)
        own = np.flatnonzero(pattern.last_epochs > 0)
        if len(own):  # the bordered row of a thinned run's last epoch
            cross = time.covariance(pattern.last_epochs[own], epochs)
            tail = (cross - w.tails[own] @ back) / w.tail_scales[own, None]  # (own, E)
            offset[runs[own]] += w.losses[-1, own][:, None] * tail
            slope[runs[own]] -= w.basis[own, -1][:, None, :] * tail[:, :, None]
            variance[runs[own]] -= tail * tail
    return Extensions(offset, slope, np.maximum(variance, 0.0))
