"""The pseudo-observations of all runs, their covariance B and its Cholesky factor, and the log evidence.

Paper: section 4.2, in an equivalent form. `update_factor` and `append` belong to sequential inference: a decision
changes one or two runs. The rows are in the order in which their runs last changed, so the rows that change next are
usually near the end, and the Cholesky factor of all rows before the first changed one is reused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.correlation import run_correlation
from freezethaw.model.curves import Array, IntArray
from freezethaw.model.linear import cholesky, solve_lower
from freezethaw.model.priors import LOG_2PI
from freezethaw.model.scales import ScaleModel, Scales, infer_scales
from freezethaw.model.specification import Values
from freezethaw.model.summaries import Summary

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class PseudoObservations:
    """g = R c + unit noise for all runs: centred on the prior mean and divided by the scale of the run."""

    runs: IntArray  # (M,)
    directions: Array  # R (M, q)
    values: Array  # g (M,)
    scales: Scales
    log_density: float  # of everything that does not depend on the coefficients c

    @classmethod
    def from_summary(cls, summary: Summary, means: Array, model: ScaleModel) -> PseudoObservations:
        """Divide by the scale of each run, estimated from its residuals, which do not depend on c."""
        scales = infer_scales(summary.residuals, summary.freedoms, model)
        s = np.sqrt(scales.plug_in[summary.runs])
        half_logs = -0.5 * (summary.log_determinants.sum() + len(summary.runs) * LOG_2PI)
        return cls(
            runs=summary.runs,
            directions=summary.directions / s[:, None],
            values=(summary.values - summary.directions @ means) / s,
            scales=scales,
            log_density=float(half_logs + scales.log_density.sum() - np.log(s).sum()),
        )


def noisy_covariance(r: PseudoObservations, K: Array, variances: Array, mean_variances: Array) -> Array:
    """B = I + R (K x A) R^T + R T R^T, the covariance of the pseudo-observations; A, T diagonal."""
    W = r.directions
    B = (W * variances) @ W.T
    B *= K.take(r.runs, axis=0).take(r.runs, axis=1)
    if mean_variances.any():
        B += (W * mean_variances) @ W.T
    B.flat[:: len(B) + 1] += 1.0  # the diagonal
    return B


@dataclass(frozen=True)
class Factor:
    """The Cholesky factor L of B, and L^-1 g."""

    lower: Array  # (M, M)
    whitened: Array  # (M,)


def factorise(r: PseudoObservations, B: Array) -> Factor:
    """Factorise all of B."""
    L = cholesky(B, "the covariance of the curves' coefficients")
    return Factor(L, solve_lower(L, r.values))


def log_evidence(r: PseudoObservations, factor: Factor) -> float:
    """Log evidence of all losses (the marginal likelihood of section 4.2)."""
    z = factor.whitened
    return float(r.log_density - 0.5 * z @ z - np.log(np.diag(factor.lower)).sum())


@dataclass(frozen=True)
class Covariances:
    """The prior covariance of the coefficients of N runs, evaluated between any rows."""

    inputs: Array  # (N, D) scaled configurations
    values: Values
    variances: Array  # (q,) amplitudes of the coefficients
    mean_variances: Array  # (q,) variances of their common means

    def between(self, r: PseudoObservations, some: slice, others: slice) -> Array:
        """R (K x A) R^T + R T R^T between two ranges of rows."""
        V, W = r.directions[some], r.directions[others]
        left, right = r.runs[some], r.runs[others]
        K = run_correlation(self.inputs[left], left, self.inputs[right], right, self.values)
        return (V * self.variances) @ W.T * K + (V * self.mean_variances) @ W.T


def update_factor(
    old: PseudoObservations,
    factor: Factor,
    new: PseudoObservations,
    places: IntArray,
    changed: BoolArray,
    c: Covariances,
) -> tuple[PseudoObservations, Factor]:
    """Reorder the new pseudo-observations and factorise them, reusing the factor of the old ones.

    `places` (N before,) is the current index of each old run, -1 for a run that was removed; `changed` (N now,) marks
    current runs that are new or whose curve changed.
    """
    runs = places[old.runs]
    touched = (runs < 0) | changed[runs]
    first = int(touched.argmax()) if touched.any() else len(runs)
    staying = np.flatnonzero(~touched)
    r = _reordered(new, runs[staying], changed)
    n, M = len(staying), len(r.runs)
    # [L11 0; L21 L22]: L11 is reused, and so are the rows of L21 whose runs have not changed
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


def append(
    old: PseudoObservations, factor: Factor, new: PseudoObservations, cross: Array, c: Covariances
) -> tuple[PseudoObservations, Factor]:
    """Append rows; `cross` holds, one row for each, L^-1 times their covariance with the old ones."""
    m, M = len(old.runs), len(old.runs) + len(new.runs)
    r = replace(
        old,
        runs=np.concatenate([old.runs, new.runs]),
        directions=np.concatenate([old.directions, new.directions]),
        values=np.concatenate([old.values, new.values]),
    )
    S = c.between(r, slice(m, M), slice(m, M)) - cross @ cross.T
    S.flat[:: len(S) + 1] += 1.0  # the diagonal
    L = np.zeros((M, M), order="F")
    L[:m, :m], L[m:, :m] = factor.lower, cross
    L[m:, m:] = cholesky(S, "the covariance of pending losses")
    rest = solve_lower(L[m:, m:], new.values - cross @ factor.whitened)
    return r, Factor(L, np.concatenate([factor.whitened, rest]))


def _reordered(r: PseudoObservations, staying: IntArray, changed: BoolArray) -> PseudoObservations:
    """Rows of unchanged runs in their old order, then those of changed runs. The rows of a run stay together."""
    start = np.searchsorted(r.runs, staying)  # first row of each run; r is sorted by run
    begins = np.concatenate([[True], staying[1:] != staying[:-1]]) if len(staying) else np.zeros(0, dtype=bool)
    index = np.arange(len(staying))
    within = index - np.maximum.accumulate(np.where(begins, index, 0))
    order = np.concatenate([start + within, np.flatnonzero(changed[r.runs])]).astype(np.int64)
    return replace(r, runs=r.runs[order], directions=r.directions[order], values=r.values[order])
