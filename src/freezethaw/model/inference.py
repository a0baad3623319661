"""Integrating the hyperparameters out: samples by slice sampling, carried from one observation to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from freezethaw.errors import SingularCovarianceError
from freezethaw.model.correlation import PairDistances
from freezethaw.model.curves import Array, Curves
from freezethaw.model.posterior import evidence, noisy_covariance, rows
from freezethaw.model.slice_sampler import slice_sample
from freezethaw.model.specification import Geometry, Parameter, Specification, Values
from freezethaw.model.summaries import Summary, summarise

WIDTH = 1.0  # first guess at a slice, in units of the log hyperparameter or of the mean


class Target:
    """Log density of the hyperparameters given the curves. Keeps what the last evaluation computed, by part.

    Changing a time parameter leaves the correlation of configurations as it is; a length scale leaves the summaries;
    mean and amplitudes leave both. So a sweep costs little more than one Cholesky factor for each evaluation.
    """

    def __init__(self, curves: Curves, specification: Specification, geometry: Geometry) -> None:
        self.curves, self.specification, self.geometry = curves, specification, geometry
        self.parameters = specification.parameters(geometry)
        self._names = {part: [p.name for p in self.parameters if p.part == part] for part in ("time", "space")}
        self._distances = PairDistances(curves.configs, geometry)
        self._summary: tuple[list[float], Summary] | None = None
        self._correlation: tuple[list[float], Array] | None = None

    def log_evidence(self, values: Values) -> float:
        """Log evidence at these values; minus infinity where the covariance is numerically singular."""
        s = self.specification
        try:
            r = rows(self._summarised(values), s.coefficient_means(values), s.scale_model(values))
            B = noisy_covariance(
                r, self._correlated(values), s.coefficient_variances(values), s.coefficient_mean_variances()
            )
            return evidence(r, B)[0]
        except SingularCovarianceError:
            return -math.inf

    def log_density(self, values: Values) -> float:
        """Log evidence plus the log priors."""
        prior = sum(p.prior.log_density(values[p.name]) for p in self.parameters)
        return prior + self.log_evidence(values) if math.isfinite(prior) else -math.inf

    def _summarised(self, values: Values) -> Summary:
        key = [values[name] for name in self._names["time"]]
        if self._summary is None or self._summary[0] != key:
            self._summary = key, summarise(self.curves, self.specification.time_model(values))
        return self._summary[1]

    def _correlated(self, values: Values) -> Array:
        key = [values[name] for name in self._names["space"]]
        if self._correlation is None or self._correlation[0] != key:
            self._correlation = key, self._distances.correlation(values)
        return self._correlation[1]


def sweep(
    target: Target, values: Values, rng: np.random.Generator, parameters: Sequence[Parameter] | None = None
) -> Values:
    """Update every hyperparameter (or these) in turn by one slice-sampling transition."""
    current = dict(values)
    log_evidence: float | None = None
    for p in target.parameters if parameters is None else parameters:
        if _fixed(p):
            continue

        def conditional(x: float, p: Parameter = p) -> float:
            value = math.exp(x) if p.log else x
            prior = p.prior.log_density(value) + (x if p.log else 0.0)  # the Jacobian of the logarithm
            return prior + target.log_evidence({**current, p.name: value}) if math.isfinite(prior) else -math.inf

        here = math.log(current[p.name]) if p.log else current[p.name]
        at = None
        if log_evidence is not None:
            at = log_evidence + p.prior.log_density(current[p.name]) + (here if p.log else 0.0)
        draw, _ = slice_sample(conditional, here, WIDTH, rng, at)
        current[p.name] = math.exp(draw.point) if p.log else draw.point
        prior = p.prior.log_density(current[p.name]) + (draw.point if p.log else 0.0)
        log_evidence = draw.log_density - prior
    return current


def _fixed(p: Parameter) -> bool:
    lower, upper = getattr(p.prior, "lower", 0.0), getattr(p.prior, "upper", 1.0)
    return bool(lower == upper)


def draw_prior(parameters: Sequence[Parameter], rng: np.random.Generator) -> Values:
    """One draw of all hyperparameters from their priors."""
    return {p.name: p.prior.sample(rng) for p in parameters}


@dataclass(frozen=True)
class Chains:
    """How to sample from scratch: several chains from draws of the prior, so that none that is stuck decides alone."""

    count: int = 5
    burn_in: int = 15
    thin: int = 3


def sample(target: Target, count: int, rng: np.random.Generator, chains: Chains | None = None) -> tuple[Values, ...]:
    """`count` samples from scratch, taken from the chains in turn."""
    chains = chains or Chains()
    states = [draw_prior(target.parameters, rng) for _ in range(min(chains.count, count))]
    for _ in range(chains.burn_in):
        states = [sweep(target, state, rng) for state in states]
    kept: list[Values] = []
    while len(kept) < count:
        for _ in range(chains.thin):
            states = [sweep(target, state, rng) for state in states]
        kept += states
    return tuple(kept[:count])
