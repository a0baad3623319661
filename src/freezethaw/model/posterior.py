"""The posterior of the curves at fixed hyperparameters: log evidence, and predictions of asymptotes and losses.

Paper: sections 4.2 and 4.3, equations 9 to 16, in an equivalent form. The pseudo-observations are g = R c + unit noise
(`summaries`), and the coefficients c are a Gaussian process over configurations with covariance K, so everything
follows from one matrix, B = I + R K R^T. No covariance is inverted: this is exact for a run with no epoch and stable
for near-duplicate configurations.

Arrays may have leading dimensions (...), one entry for each hyperparameter sample: conditioning on S samples gives S
posteriors in one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from freezethaw.errors import ModelError
from freezethaw.model.correlation import run_correlation, scaled
from freezethaw.model.curves import Array, Curves, IntArray
from freezethaw.model.linear import solve_lower, transposed
from freezethaw.model.pseudo_observations import (
    Factor,
    PseudoObservations,
    factorise,
    log_evidence,
    noisy_covariance,
    of_rows,
)
from freezethaw.model.scales import Mixture, new_run_scales, one_run_scales
from freezethaw.model.specification import Geometry, Specification, Values
from freezethaw.model.summaries import Summary, TimeModel, extend, summarise, take_samples

SMALLEST_VARIANCE = 1e-12  # of a prediction, in units in which losses have variance one: rounding may leave less
NEW = -1  # index of a run that has not been started


@dataclass(frozen=True)
class Points:
    """P quantities to predict, each `offset + slope . c(config)` plus a scaled residual; of old runs or new ones."""

    runs: IntArray  # (P,) index of the old run; negative for a new run
    configs: Array  # (..., P, D) scaled
    offsets: Array  # (..., P)
    slopes: Array  # (..., P, q)
    residual: Array  # (..., P, P) covariance of the residuals at scale one
    scales: Mixture

    @staticmethod
    def concatenate(parts: Sequence[Points]) -> Points:
        """All points; the residuals of different parts are independent, and so are their new runs."""
        return Points(
            _distinct_runs([p.runs for p in parts]),
            np.concatenate([p.configs for p in parts], axis=-2),
            np.concatenate([p.offsets for p in parts], axis=-1),
            np.concatenate([p.slopes for p in parts], axis=-2),
            _block_diagonal([p.residual for p in parts]),
            Mixture.concatenate([p.scales for p in parts]),
        )


@dataclass(frozen=True)
class Prediction:
    """Joint predictive distribution in model units: a Gaussian part, and residuals whose scale is uncertain."""

    mean: Array  # (..., P)
    shared: Array  # (..., P, P) covariance due to the coefficients
    residual: Array  # (..., P, P) at scale one
    scales: Mixture

    @property
    def covariance(self) -> Array:
        """(..., P, P) with the expected scales."""
        s = np.sqrt(self.scales.mean)
        return np.asarray(self.shared + s[..., :, None] * self.residual * s[..., None, :])

    @property
    def variance(self) -> Array:
        """Diagonal of the covariance."""
        return _diagonal(self.covariance)

    @property
    def component_variances(self) -> Array:
        """(C, ..., P) squared scale of each component of the marginal distributions."""
        return np.maximum(_diagonal(self.shared) + self.scales.scales * _diagonal(self.residual), SMALLEST_VARIANCE)


@dataclass(frozen=True)
class Posterior:
    """A model conditioned on curves, at fixed hyperparameters or at S samples of them."""

    curves: Curves
    specification: Specification
    geometry: Geometry
    values: Values
    time: TimeModel
    summary: Summary
    pseudo_observations: PseudoObservations
    log_evidence: Array  # (...)
    inputs: Array  # (..., N, D) scaled configurations
    factor: Factor

    def sample(self, index: int | IntArray) -> Posterior:
        """The posterior at one of S samples, or at some of them."""
        values = {name: np.asarray(v)[index] for name, v in self.values.items()}
        return replace(
            self,
            values=values,
            time=self.specification.time_model(values),
            summary=take_samples(self.summary, index),
            pseudo_observations=take_samples(self.pseudo_observations, index),
            log_evidence=self.log_evidence[index],
            inputs=self.inputs[index],
            factor=take_samples(self.factor, index),
        )

    def asymptotes(self, runs: Sequence[int] = (), configs: ArrayLike | None = None) -> Prediction:
        """Equations 12 to 14: joint distribution of the asymptotes of old runs, then of new configurations."""
        end = [self.specification.horizon]
        parts = [self.points_of_run(run, end) for run in runs]
        if configs is not None:
            parts += [self.points_of_config(config, end) for config in np.atleast_2d(np.asarray(configs, float))]
        return self.joint(Points.concatenate(parts)) if parts else _empty_prediction()

    def losses(self, run: int, epochs: ArrayLike, noise: bool = True) -> Prediction:
        """Equation 15: joint distribution of the losses of an old run at any epochs, measured or noise-free."""
        return self.joint(self.points_of_run(run, epochs, noise))

    def new_losses(self, config: ArrayLike, epochs: ArrayLike, noise: bool = True) -> Prediction:
        """Equation 16: joint distribution of the losses of a run that has not been started."""
        return self.joint(self.points_of_config(config, epochs, noise))

    def out_of_sample(self, config: ArrayLike, epochs: ArrayLike, losses: ArrayLike, at: ArrayLike) -> Prediction:
        """Losses at epochs `at` of a run that is not among the curves, given its own losses at `epochs`.

        Exact: the posterior is the prior of its coefficients, and its pseudo-observations update these q numbers. Not
        in the paper.
        """
        q = len(self.specification.basis)
        here = self.points_of_config(config, np.ones(q))
        c = self.joint(replace(here, slopes=np.broadcast_to(np.eye(q), (*here.slopes.shape[:-2], q, q))))
        single = Curves.of(np.asarray(config, float)[None, :], [losses], [epochs])
        summary = summarise(single, self.time)
        own = PseudoObservations.from_summary(summary, c.mean, self.pseudo_observations.scales.model)
        W = own.directions
        gain = transposed(np.asarray(np.linalg.solve(np.eye(W.shape[-2]) + W @ c.shared @ transposed(W), W @ c.shared)))
        mean = c.mean + (gain @ own.values[..., None])[..., 0]
        covariance = c.shared - gain @ W @ c.shared
        t = _checked_epochs(at)
        e = extend(single, summary, self.time, 0, t)
        scales = one_run_scales(own.scales, 0, float(single.last_epochs[0]), t)
        losses_at = e.offset + (e.slope @ mean[..., None])[..., 0]
        return Prediction(losses_at, e.slope @ covariance @ transposed(e.slope), e.covariance + self._noise(t), scales)

    def points_of_run(self, run: int, epochs: ArrayLike, noise: bool = False) -> Points:
        """Losses of run `run` at these epochs, given its own curve."""
        if not 0 <= run < len(self.curves):
            raise ModelError(f"there is no run {run}; the curves hold runs 0 to {len(self.curves) - 1}")
        t = _checked_epochs(epochs)
        e = extend(self.curves, self.summary, self.time, run, t)
        scales = one_run_scales(self.pseudo_observations.scales, run, float(self.curves.last_epochs[run]), t)
        return Points(
            runs=np.full(len(t), run),
            configs=np.repeat(self.inputs[..., run : run + 1, :], len(t), axis=-2),
            offsets=e.offset,
            slopes=e.slope,
            residual=e.covariance + (self._noise(t) if noise else 0.0),
            scales=scales,
        )

    def points_of_config(self, config: ArrayLike, epochs: ArrayLike, noise: bool = False) -> Points:
        """Losses at these epochs of a new run with this configuration."""
        t = _checked_epochs(epochs)
        x = np.asarray(config, dtype=np.float64).reshape(1, -1)
        if x.shape[1] != self.curves.dimensions or not np.isfinite(x).all():
            raise ModelError(f"a configuration must be {self.curves.dimensions} finite numbers, not {x[0].tolist()}")
        if x.min(initial=0.0) < 0 or x.max(initial=1.0) > 1:
            raise ModelError(f"configuration {x[0].tolist()} lies outside the unit cube")
        slopes = self.time.basis(t)
        return Points(
            runs=np.full(len(t), NEW),
            configs=np.repeat(self.new_inputs(x), len(t), axis=-2),
            offsets=np.zeros(slopes.shape[:-1]),
            slopes=slopes,
            residual=self.time.covariance(t, t) + (self._noise(t) if noise else 0.0),
            scales=new_run_scales(self.pseudo_observations.scales.model, t),
        )

    def _noise(self, t: Array) -> Array:
        """(..., T, T) covariance of the noise at scale one."""
        return np.asarray(self.time.noise[..., None, None] * np.eye(len(t)))

    def joint(self, points: Points) -> Prediction:
        """Integrate out the coefficients, whose posterior is Gaussian, through the factor of B."""
        cross, mean = self.cross(points)
        S, a = points.slopes, self.specification.coefficient_variances(self.values)
        prior = run_correlation(points.configs, points.runs, points.configs, points.runs, self.values)
        prior *= (S * a[..., None, :]) @ transposed(S)
        prior += (S * self.specification.coefficient_mean_variances()) @ transposed(S)
        return Prediction(mean, prior - transposed(cross) @ cross, points.residual, points.scales)

    def cross(self, points: Points) -> tuple[Array, Array]:
        """L^-1 cov(g, points), and the posterior mean of the points."""
        S, W = points.slopes, self.pseudo_observations.directions
        C = (W * self.specification.coefficient_variances(self.values)[..., None, :]) @ transposed(S)
        old = np.arange(self.inputs.shape[-2])
        K = run_correlation(self.inputs, old, points.configs, points.runs, self.values)
        C *= K.take(self.pseudo_observations.runs, axis=-2)
        C += (W * self.specification.coefficient_mean_variances()) @ transposed(S)
        cross = solve_lower(self.factor.lower, C)
        prior_mean = (S @ self.specification.coefficient_means(self.values)[..., None])[..., 0]
        return cross, points.offsets + prior_mean + (transposed(cross) @ self.factor.whitened[..., None])[..., 0]

    def new_inputs(self, configs: Array) -> Array:
        """Configurations, warped and divided by the length scales."""
        return scaled(configs, self.geometry, self.values)


def condition(
    curves: Curves,
    specification: Specification,
    values: Values,
    geometry: Geometry | None = None,
) -> Posterior:
    """Condition the model on the curves at fixed hyperparameters, or at S samples of them."""
    geometry = geometry or Geometry.plain(curves.dimensions)
    if len(geometry.lengths) != curves.dimensions:
        raise ModelError(f"the geometry has {len(geometry.lengths)} columns, the configurations {curves.dimensions}")
    missing = [p.name for p in specification.parameters(geometry) if p.name not in values]
    if missing:
        raise ModelError(f"no value for hyperparameter {', '.join(missing)} of model {specification.name!r}")
    time = specification.time_model(values)
    summary = summarise(curves, time)
    r = PseudoObservations.from_summary(
        summary, specification.coefficient_means(values), specification.scale_model(values)
    )
    inputs = scaled(curves.configs, geometry, values)
    every = np.arange(len(curves))
    K = run_correlation(inputs, every, inputs, every, values)
    a, tau = specification.coefficient_variances(values), specification.coefficient_mean_variances()
    factor = factorise(r, noisy_covariance(r, of_rows(K, r.runs), a, tau))
    evidence = log_evidence(r, factor)
    return Posterior(curves, specification, geometry, values, time, summary, r, evidence, inputs, factor)


def _diagonal(matrices: Array) -> Array:
    return np.asarray(np.einsum("...pp->...p", matrices))


def _block_diagonal(blocks: Sequence[Array]) -> Array:
    """(..., P, P) with these blocks on the diagonal, all of which have the same leading dimensions."""
    ends = np.cumsum([block.shape[-1] for block in blocks])
    found = np.zeros((*blocks[0].shape[:-2], ends[-1], ends[-1]))
    for block, end in zip(blocks, ends, strict=True):
        part = slice(end - block.shape[-1], end)
        found[..., part, part] = block
    return found


def _distinct_runs(parts: Sequence[IntArray]) -> IntArray:
    """Runs of all parts; the new runs of each part get negative numbers of their own."""
    found, below = [], 0
    for runs in parts:
        found.append(np.where(runs < 0, runs + below, runs))
        below += min(int(runs.min(initial=0)), 0)
    return np.concatenate(found)


def _checked_epochs(epochs: ArrayLike) -> Array:
    t = np.atleast_1d(np.asarray(epochs, dtype=np.float64))
    if t.ndim != 1 or np.isnan(t).any() or np.any(t <= 0):
        raise ModelError(f"epochs to predict must be a list of positive numbers: {t.tolist()}")
    return t


def _empty_prediction() -> Prediction:
    none = np.empty((1, 0))
    return Prediction(np.empty(0), np.empty((0, 0)), np.empty((0, 0)), Mixture(none, none, none))
