"""The pseudo-observations as rows of one matrix: their covariance B, its factor, and the evidence of the curves.

A decision changes one run or two. Rows stand in the order in which their runs last changed, so those that change next
stand near the end; and a Cholesky factor only looks back, so all that stands before the first changed row stays as it
was: `renewed` factors the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.correlation import kinship
from freezethaw.model.curves import Array, IntArray
from freezethaw.model.linear import cholesky, solve_lower
from freezethaw.model.priors import LOG_2PI
from freezethaw.model.scales import ScaleModel, Scales, scales_of
from freezethaw.model.specification import Values
from freezethaw.model.summaries import Summary

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """The pseudo-observations, each divided by its run's scale, and centred on the prior mean."""

    runs: IntArray  # (M,)
    directions: Array  # W (M, q)
    values: Array  # (M,)
    scales: Scales
    log_density: float  # of all that the coefficients do not enter


def rows(summary: Summary, means: Array, model: ScaleModel) -> Rows:
    """Scale the pseudo-observations by what each run's own residuals, which know nothing of c, say of its noise."""
    scales = scales_of(summary.residuals, summary.freedoms, model)
    s = np.sqrt(scales.plug_in[summary.runs])
    half_logs = -0.5 * (summary.log_determinants.sum() + len(summary.runs) * LOG_2PI)
    return Rows(
        runs=summary.runs,
        directions=summary.directions / s[:, None],
        values=(summary.values - summary.directions @ means) / s,
        scales=scales,
        log_density=float(half_logs + scales.log_density.sum() - np.log(s).sum()),
    )


def noisy_covariance(r: Rows, K: Array, variances: Array, mean_variances: Array) -> Array:
    """B = I + R (K x A) R^T + R T R^T, the covariance of the pseudo-observations; A, T diagonal."""
    W = r.directions
    B = (W * variances) @ W.T
    B *= K.take(r.runs, axis=0).take(r.runs, axis=1)
    if mean_variances.any():
        B += (W * mean_variances) @ W.T
    B.flat[:: len(B) + 1] += 1.0  # the diagonal
    return B


@dataclass(frozen=True)
class Covariances:
    """Of the coefficients: inputs and values (kinship), amplitudes, variances of the common means."""

    inputs: Array  # (N, D) scaled configurations
    values: Values
    variances: Array  # (q,)
    mean_variances: Array  # (q,)

    def between(self, r: Rows, some: slice, others: slice) -> Array:
        """R (K x A) R^T + R T R^T between two ranges of rows."""
        V, W = r.directions[some], r.directions[others]
        left, right = r.runs[some], r.runs[others]
        K = kinship(self.inputs[left], left, self.inputs[right], right, self.values)
        return (V * self.variances) @ W.T * K + (V * self.mean_variances) @ W.T


@dataclass(frozen=True)
class Factor:
    """L of B, and L^-1 g."""

    lower: Array  # (M, M)
    whitened: Array  # (M,)


def factored(r: Rows, B: Array) -> Factor:
    """The whole factor."""
    L = cholesky(B, "the covariance of the curves' coefficients")
    return Factor(L, solve_lower(L, r.values))


def evidence(r: Rows, factor: Factor) -> float:
    """Log evidence of all losses (the marginal likelihood of section 4.2)."""
    z = factor.whitened
    return float(r.log_density - 0.5 * z @ z - np.log(np.diag(factor.lower)).sum())


def renewed(
    old: Rows, factor: Factor, new: Rows, places: IntArray, changed: BoolArray, c: Covariances
) -> tuple[Rows, Factor]:
    """Rows in their new order and their factor, from those before some runs changed.

    `places` (N before,) says which run each has become, -1 for one that is gone, and `changed` (N now,) which of those
    that are here now are not as they were, or not of old.
    """
    runs = places[old.runs]
    touched = (runs < 0) | changed[runs]
    first = int(touched.argmax()) if touched.any() else len(runs)
    staying = np.flatnonzero(~touched)
    r = _ordered(new, runs[staying], changed)
    n, M = len(staying), len(r.runs)
    # [L11 0; L21 L22]: L11 stays, and so do the rows of L21 whose runs have not changed
    L = np.zeros((M, M), order="F")
    head = slice(0, first)
    L[head, head] = factor.lower[head, head]
    L[first:n, :first] = factor.lower[staying[first:], :first]
    L[n:, :first] = solve_lower(L[:first, :first], c.between(r, head, slice(n, M))).T
    tail = slice(first, M)
    S = c.between(r, tail, tail) - L[tail, head] @ L[tail, head].T
    S.flat[:: len(S) + 1] += 1.0  # the diagonal
    L[tail, tail] = cholesky(S, "the covariance of the curves' coefficients")
    z = factor.whitened[:first]
    rest = solve_lower(L[tail, tail], r.values[tail] - L[tail, head] @ z)
    return r, Factor(L, np.concatenate([z, rest]))


def appended(old: Rows, factor: Factor, more: Rows, cross: Array, c: Covariances) -> tuple[Rows, Factor]:
    """Put rows behind those that are there; `cross` is L^-1 times their covariance with these, one row for each."""
    m, M = len(old.runs), len(old.runs) + len(more.runs)
    r = replace(
        old,
        runs=np.concatenate([old.runs, more.runs]),
        directions=np.concatenate([old.directions, more.directions]),
        values=np.concatenate([old.values, more.values]),
    )
    S = c.between(r, slice(m, M), slice(m, M)) - cross @ cross.T
    S.flat[:: len(S) + 1] += 1.0  # the diagonal
    L = np.zeros((M, M), order="F")
    L[:m, :m], L[m:, :m] = factor.lower, cross
    L[m:, m:] = cholesky(S, "the covariance of the awaited losses")
    rest = solve_lower(L[m:, m:], more.values - cross @ factor.whitened)
    return r, Factor(L, np.concatenate([factor.whitened, rest]))


def _ordered(r: Rows, staying: IntArray, changed: BoolArray) -> Rows:
    """Rows of the runs that stay, in their old order, then those that changed. A run's rows stand together."""
    start = np.searchsorted(r.runs, staying)  # of each row's run, among rows that are sorted by run
    begins = np.concatenate([[True], staying[1:] != staying[:-1]]) if len(staying) else np.zeros(0, dtype=bool)
    place = np.arange(len(staying))
    within = place - np.maximum.accumulate(np.where(begins, place, 0))
    order = np.concatenate([start + within, np.flatnonzero(changed[r.runs])]).astype(np.int64)
    return replace(r, runs=r.runs[order], directions=r.directions[order], values=r.values[order])
