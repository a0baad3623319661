"""The pseudo-observations of all runs, their covariance B and its Cholesky factor, and the log evidence.

Paper: section 4.2, in an equivalent form. With one scale for all runs (the paper) nothing is divided by a scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freezethaw.model.curves import Array, IntArray
from freezethaw.model.linear import cholesky, solve_lower
from freezethaw.model.priors import LOG_2PI
from freezethaw.model.scales import ScaleModel, Scales, infer_scales
from freezethaw.model.summaries import Summary


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
