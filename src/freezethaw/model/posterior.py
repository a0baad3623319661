"""The posterior: evidence of the curves, and predictions of asymptotes and losses, old runs and new alike.

With the pseudo-observations g = R c + unit noise of `summaries`, and c a Gaussian process over configurations,
everything is one matrix without inverses, B = I + R K R^T, exact for a run with no epoch and stable for near-duplicate
configurations. `condition` returns an immutable `Posterior`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag

from freezethaw.errors import ModelError
from freezethaw.model.correlation import run_correlation, scaled
from freezethaw.model.curves import Array, Curves, IntArray
from freezethaw.model.linear import invert_lower, solve_lower
from freezethaw.model.pseudo_observations import (
    Covariances,
    Factor,
    PseudoObservations,
    factorise,
    log_evidence,
    noisy_covariance,
    update_factor,
)
from freezethaw.model.scales import Mixture, new_run_scales, one_run_scales
from freezethaw.model.specification import Geometry, Specification, Values
from freezethaw.model.summaries import Summary, TimeModel, extend, summarise

SMALLEST_VARIANCE = 1e-12  # of a prediction, in units where losses have variance one: rounding may leave less


NEW = -1  # a run that has not been started


@dataclass(frozen=True)
class Points:
    """Quantities to predict, each `offset + slope . c(config)` plus a scaled residual; of old runs or of new ones."""

    runs: IntArray  # (P,) which old run; negative: one that has not been started
    configs: Array  # (P, D) scaled
    offsets: Array  # (P,)
    slopes: Array  # (P, q)
    residual: Array  # (P, P) covariance of the residuals at scale one
    scales: Mixture

    @staticmethod
    def concatenate(parts: Sequence[Points]) -> Points:
        """All points side by side; residuals of different parts are independent, and so are their new runs."""
        return Points(
            _told_apart([p.runs for p in parts]),
            np.concatenate([p.configs for p in parts]),
            np.concatenate([p.offsets for p in parts]),
            np.concatenate([p.slopes for p in parts]),
            block_diag(*[p.residual for p in parts]),
            Mixture.concatenate([p.scales for p in parts]),
        )


@dataclass(frozen=True)
class Prediction:
    """Joint distribution of some quantities in model units: a Gaussian part, and residuals of unsure scale."""

    mean: Array  # (P,)
    shared: Array  # (P, P) covariance that comes from the coefficients
    residual: Array  # (P, P) at scale one
    scales: Mixture

    @property
    def covariance(self) -> Array:
        """(P, P) with the expected scales."""
        s = np.sqrt(self.scales.mean)
        return np.asarray(self.shared + s[:, None] * self.residual * s[None, :])

    @property
    def variance(self) -> Array:
        """Diagonal of the covariance."""
        return np.asarray(np.diag(self.covariance))

    @property
    def component_variances(self) -> Array:
        """(C, P) squared scale of each component of the marginal distributions."""
        return np.maximum(np.diag(self.shared) + self.scales.scales * np.diag(self.residual), SMALLEST_VARIANCE)


@dataclass(frozen=True)
class Posterior:
    """Curves, a model and the values of its hyperparameters, conditioned: ask it for predictions."""

    curves: Curves
    specification: Specification
    geometry: Geometry
    values: Values
    time: TimeModel
    summary: Summary
    pseudo_observations: PseudoObservations
    log_evidence: float
    inputs: Array  # (N, D) scaled configurations
    factor: Factor

    def asymptotes(self, runs: Sequence[int] = (), configs: ArrayLike | None = None) -> Prediction:
        """Equations 12 to 14: joint distribution of the asymptotes of old runs, then of new configurations."""
        end = [self.specification.horizon]
        parts = [self.points_of_run(run, end) for run in runs]
        if configs is not None:
            parts += [self.points_of_config(config, end) for config in np.atleast_2d(np.asarray(configs, float))]
        return self.joint(Points.concatenate(parts)) if parts else _nothing()

    def losses(self, run: int, epochs: ArrayLike, noise: bool = True) -> Prediction:
        """Equation 15: joint distribution of an old run's losses at any epochs, measured or noise-free."""
        return self.joint(self.points_of_run(run, epochs, noise))

    def new_losses(self, config: ArrayLike, epochs: ArrayLike, noise: bool = True) -> Prediction:
        """Equation 16: joint distribution of the losses of a run that has not been started."""
        return self.joint(self.points_of_config(config, epochs, noise))

    def points_of_run(self, run: int, epochs: ArrayLike, noise: bool = False) -> Points:
        """Losses of run `run` at these epochs, given its own curve."""
        if not 0 <= run < len(self.curves):
            raise ModelError(f"there is no run {run}; the curves hold runs 0 to {len(self.curves) - 1}")
        t = _checked_epochs(epochs)
        e = extend(self.curves, self.summary, self.time, run, t)
        scales = one_run_scales(self.pseudo_observations.scales, run, float(self.curves.last_epochs[run]), t)
        return Points(
            runs=np.full(len(t), run),
            configs=np.repeat(self.inputs[run : run + 1], len(t), axis=0),
            offsets=e.offset,
            slopes=e.slope,
            residual=e.covariance + (self.time.noise * np.eye(len(t)) if noise else 0.0),
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
        return Points(
            runs=np.full(len(t), NEW),
            configs=np.repeat(scaled(x, self.geometry, self.values), len(t), axis=0),
            offsets=np.zeros(len(t)),
            slopes=self.time.basis(t),
            residual=self.time.covariance(t, t) + (self.time.noise * np.eye(len(t)) if noise else 0.0),
            scales=new_run_scales(self.pseudo_observations.scales.model, t),
        )

    def joint(self, points: Points) -> Prediction:
        """Integrate the coefficients out: their posterior is Gaussian, through the factor of B."""
        cross, mean = self.cross(points)
        S = points.slopes
        prior = run_correlation(points.configs, points.runs, points.configs, points.runs, self.values)
        prior *= (S * self.specification.coefficient_variances(self.values)) @ S.T
        prior += (S * self.specification.coefficient_mean_variances()) @ S.T
        return Prediction(mean, prior - cross.T @ cross, points.residual, points.scales)

    def cross(self, points: Points) -> tuple[Array, Array]:
        """L^-1 cov(g, points), and the posterior mean of the points."""
        S, W = points.slopes, self.pseudo_observations.directions
        C = (W * self.specification.coefficient_variances(self.values)) @ S.T
        old = np.arange(len(self.inputs))
        C *= run_correlation(self.inputs, old, points.configs, points.runs, self.values)[self.pseudo_observations.runs]
        C += (W * self.specification.coefficient_mean_variances()) @ S.T
        cross = solve_lower(self.factor.lower, C)
        prior_mean = S @ self.specification.coefficient_means(self.values)
        return cross, points.offsets + prior_mean + cross.T @ self.factor.whitened

    def coefficients(self, correlation: Array) -> tuple[Array, Array]:
        """Mean (P, q) and covariance (P, q, q) of the coefficients of runs of this correlation (P, N) to all runs."""
        a = self.specification.coefficient_variances(self.values)
        tau = self.specification.coefficient_mean_variances()
        Z = self._whitened(correlation, a, tau)
        mean = self.specification.coefficient_means(self.values) + Z @ self.factor.whitened
        return mean, np.diag(a + tau) - np.matmul(Z, Z.transpose(0, 2, 1))

    def _whitened(self, correlation: Array, a: Array, tau: Array) -> Array:
        """(P, q, M) L^-1 cov(g, c_j(x_p))."""
        L, W = self.factor.lower, self.pseudo_observations.directions
        if 2 * len(correlation) < len(W):
            C = correlation.take(self.pseudo_observations.runs, axis=1)[:, None, :] * (W * a).T
            C += (W * tau).T
            return solve_lower(L, C.reshape(-1, len(W)).T).T.reshape(C.shape)
        # for many at once L^-1 itself pays: what the rows of one run have in common is added up first
        inverse = invert_lower(L)
        first = np.flatnonzero(np.diff(self.pseudo_observations.runs, prepend=NEW))
        pulls = [np.add.reduceat(inverse * weights, first, axis=1).T for weights in (W * a).T]  # q times (runs, M)
        Z = np.matmul(correlation.take(self.pseudo_observations.runs[first], axis=1), pulls)  # (q, P, M)
        Z += (inverse @ (W * tau)).T[:, None, :]
        return np.asarray(Z.transpose(1, 0, 2))

    def coefficient_bounds(self, runs: IntArray, correlation: Array) -> tuple[Array, Array]:
        """Of these old runs, then of new ones: the mean (P, q) given all curves, and too large a covariance (P, q, q).

        It is that given one curve only, a run's own or, for a new run, that of the run which it is most like. Other
        curves could only take doubt away; but this needs no large solve.
        """
        W, a = self.pseudo_observations.directions, self.specification.coefficient_variances(self.values)
        tau = self.specification.coefficient_mean_variances()
        whole = solve_lower(self.factor.lower, self.factor.whitened, transposed=True)[:, None]  # B^-1 g
        pulls = np.zeros((len(self.inputs), len(a)))
        np.add.at(pulls, self.pseudo_observations.runs, W * whole)
        mean = self.specification.coefficient_means(self.values) + a * (correlation @ pulls) + tau * pulls.sum(axis=0)
        told = np.zeros((len(self.inputs), len(a), len(a)))
        np.add.at(told, self.pseudo_observations.runs, W[:, :, None] * W[:, None, :])
        root = np.sqrt(a + tau)
        left = root[:, None] * np.linalg.inv(np.eye(len(a)) + root[:, None] * told * root) * root
        nearest = correlation.argmax(axis=1)
        nearest[: len(runs)] = runs
        gain = (correlation[np.arange(len(correlation)), nearest][:, None] * a + tau) / (
            a + tau
        )  # one where it is itself
        covariance = gain[:, :, None] * left[nearest] * gain[:, None, :]
        covariance[:, np.arange(len(a)), np.arange(len(a))] += (a + tau) * (1.0 - gain**2)
        return mean, covariance

    def correlations(self, runs: IntArray, configs: Array) -> Array:
        """(P, N) correlation of old runs, then of new configurations, with all old runs."""
        inputs = np.concatenate([self.inputs[runs], self.new_inputs(configs)])
        who = np.concatenate([runs, np.full(len(configs), NEW)])
        return run_correlation(inputs, who, self.inputs, np.arange(len(self.inputs)), self.values)

    def new_inputs(self, configs: Array) -> Array:
        """Scaled new configurations."""
        return scaled(configs, self.geometry, self.values)

    def covariances(self, configs: Array, places: IntArray | None = None) -> Covariances:
        """Of the coefficients of other runs, among them those of this posterior: in these places, or the first ones."""
        places = np.arange(len(self.inputs)) if places is None else places
        stay = places >= 0
        inputs, new = np.empty_like(configs), np.ones(len(configs), dtype=bool)
        new[places[stay]] = False
        inputs[places[stay]], inputs[new] = self.inputs[stay], self.new_inputs(configs[new])
        s = self.specification
        return Covariances(inputs, self.values, s.coefficient_variances(self.values), s.coefficient_mean_variances())

    def out_of_sample(self, config: ArrayLike, epochs: ArrayLike, losses: ArrayLike, at: ArrayLike) -> Prediction:
        """Losses at epochs `at` of a run that is not among the curves, from its own curve and what the curves say here.

        Exact: the curves give its coefficients a prior, and its own pseudo-observations update those q numbers.
        """
        q = len(self.specification.basis)
        here = self.points_of_config(config, np.ones(q))
        c = self.joint(replace(here, slopes=np.eye(q)))
        single = Curves.of(np.asarray(config, float)[None, :], [losses], [epochs])
        summary = summarise(single, self.time)
        own = PseudoObservations.from_summary(summary, c.mean, self.pseudo_observations.scales.model)
        W = own.directions
        gain = np.linalg.solve(np.eye(len(W)) + W @ c.shared @ W.T, W @ c.shared).T
        mean = c.mean + gain @ own.values
        covariance = c.shared - gain @ W @ c.shared
        t = _checked_epochs(at)
        e = extend(single, summary, self.time, 0, t)
        scales = one_run_scales(own.scales, 0, float(single.last_epochs[0]), t)
        noise = self.time.noise * np.eye(len(t))
        return Prediction(e.offset + e.slope @ mean, e.slope @ covariance @ e.slope.T, e.covariance + noise, scales)


def condition(
    curves: Curves,
    specification: Specification,
    values: Values,
    geometry: Geometry | None = None,
    previous: Posterior | None = None,
    summary: Summary | None = None,
) -> Posterior:
    """Condition the model on the curves at fixed hyperparameters.

    `previous` may be a posterior at the same values, of curves some of which were shorter or are gone, and `summary`
    that of these curves at these values: both spare work.
    """
    geometry = geometry or Geometry.plain(curves.dimensions)
    if len(geometry.lengths) != curves.dimensions:
        raise ModelError(f"the geometry has {len(geometry.lengths)} columns, the configurations {curves.dimensions}")
    time = specification.time_model(_complete(values, specification, geometry))
    summary = summary or summarise(curves, time)
    r = PseudoObservations.from_summary(
        summary, specification.coefficient_means(values), specification.scale_model(values)
    )
    if previous is not None and previous.specification == specification and previous.values == values:
        places = _places(previous.curves, curves)
        c = previous.covariances(curves.configs, places)
        changed = _changed(previous.curves, curves, places)
        inputs, (r, factor) = (
            c.inputs,
            update_factor(previous.pseudo_observations, previous.factor, r, places, changed, c),
        )
    else:
        inputs = scaled(curves.configs, geometry, values)
        every = np.arange(len(inputs))
        a, tau = specification.coefficient_variances(values), specification.coefficient_mean_variances()
        factor = factorise(r, noisy_covariance(r, run_correlation(inputs, every, inputs, every, values), a, tau))
    evidence = log_evidence(r, factor)
    return Posterior(curves, specification, geometry, values, time, summary, r, evidence, inputs, factor)


def _complete(values: Values, specification: Specification, geometry: Geometry) -> Values:
    missing = [p.name for p in specification.parameters(geometry) if p.name not in values]
    if missing:
        raise ModelError(f"no value for hyperparameter {', '.join(missing)} of model {specification.name!r}")
    return values


def _places(before: Curves, curves: Curves) -> IntArray:
    """(N before,) where each run stands now, -1 for one that is gone. Runs are known by their configurations."""
    n = len(before)
    if n <= len(curves) and np.array_equal(before.configs, curves.configs[:n]):
        return np.arange(n)
    here: dict[bytes, list[int]] = {}
    for place in reversed(range(len(curves))):  # of several runs of one configuration the first is the first
        here.setdefault(curves.configs[place].tobytes(), []).append(place)
    found = (here.get(config.tobytes()) for config in before.configs)
    return np.array([places.pop() if places else -1 for places in found], dtype=np.int64)


def _changed(before: Curves, curves: Curves, places: IntArray) -> NDArray[np.bool_]:
    """(N now,) which runs are not as they were, or were not there."""
    changed = np.ones(len(curves), dtype=bool)
    stay = places >= 0
    old, new = np.flatnonzero(stay), places[stay]
    changed[new] = (before.counts[old] != curves.counts[new]) | (before.sums[old] != curves.sums[new])
    return changed


def _told_apart(parts: Sequence[IntArray]) -> IntArray:
    """Runs of all parts; the new ones of each part get numbers of their own."""
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


def _nothing() -> Prediction:
    none = np.empty((1, 0))
    return Prediction(np.empty(0), np.empty((0, 0)), np.empty((0, 0)), Mixture(none, none, none))
