"""The pseudo-observations of all runs, their covariance B and its Cholesky factor, and the log evidence.

Paper: section 4.2, in an equivalent form. With one scale for all runs (the paper) nothing is divided by a scale. Arrays
may have leading dimensions (...), one entry for each hyperparameter sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freezethaw.model.curves import Array, IntArray
from freezethaw.model.linear import add_to_diagonal, cholesky, solve_vector, transposed
from freezethaw.model.priors import LOG_2PI
from freezethaw.model.scales import ScaleModel, Scales, infer_scales
from freezethaw.model.summaries import Summary


@dataclass(frozen=True)
class PseudoObservations:
    """g = R c + unit noise for all runs: centred on the prior mean and divided by the scale of the run."""

    runs: IntArray  # (M,) the same for all samples
    directions: Array  # R (..., M, q)
    values: Array  # g (..., M)
    scales: Scales
    log_density: Array  # (...) of everything that does not depend on the coefficients c

    @classmethod
    def from_summary(cls, summary: Summary, means: Array, model: ScaleModel) -> PseudoObservations:
        """Divide by the scale of each run, estimated from its residuals, which do not depend on c."""
        scales = infer_scales(summary.residuals, summary.freedoms, model)
        s = np.sqrt(scales.plug_in.take(summary.runs, axis=-1))
        half_logs = -0.5 * (summary.log_determinants.sum(axis=-1) + len(summary.runs) * LOG_2PI)
        return cls(
            runs=summary.runs,
            directions=summary.directions / s[..., None],
            values=(summary.values - (summary.directions @ means[..., None])[..., 0]) / s,
            scales=scales,
            log_density=np.asarray(half_logs + scales.log_density.sum(axis=-1) - np.log(s).sum(axis=-1)),
        )

    def rows(self, order: IntArray) -> PseudoObservations:
        """The same in another order."""
        return replace(
            self, runs=self.runs[order], directions=self.directions[..., order, :], values=self.values[..., order]
        )


def noisy_covariance(r: PseudoObservations, K: Array, variances: Array, mean_variances: Array) -> Array:
    """B = I + R (K x A) R^T + R T R^T, the covariance of the pseudo-observations; A, T diagonal.

    K (..., M, M) is the correlation of the runs of each pair of pseudo-observations.
    """
    W = r.directions
    B = (W * variances[..., None, :]) @ transposed(W)
    B *= K
    if mean_variances.any():
        B += (W * mean_variances) @ transposed(W)
    add_to_diagonal(B, 1.0)
    return B


def of_rows(K: Array, runs: IntArray) -> Array:
    """(..., M, M) the correlation of runs (..., N, N) for each pair of pseudo-observations."""
    return np.asarray(K.take(runs, axis=-2).take(runs, axis=-1))


@dataclass(frozen=True)
class Factor:
    """The Cholesky factor L of B, and L^-1 g."""

    lower: Array  # (..., M, M)
    whitened: Array  # (..., M)


def factorise(r: PseudoObservations, B: Array) -> Factor:
    """Factorise all of B."""
    L = cholesky(B, "the covariance of the curves' coefficients")
    return Factor(L, solve_vector(L, r.values))


def log_evidence(r: PseudoObservations, factor: Factor) -> Array:
    """(...) log evidence of all losses (the marginal likelihood of section 4.2); NaN if B was not positive definite."""
    z, diagonal = factor.whitened, np.einsum("...ii->...i", factor.lower)
    return np.asarray(r.log_density - 0.5 * np.einsum("...i,...i->...", z, z) - np.log(diagonal).sum(axis=-1))
