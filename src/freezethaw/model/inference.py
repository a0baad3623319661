"""Slice sampling of the hyperparameters (paper: section 2.1, priors of appendix B).

The elliptical moves of blocks and the caches of `Target` go beyond the paper: they change the speed of the chain, not
its target density.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from freezethaw.errors import SingularCovarianceError
from freezethaw.model.correlation import PairDistances
from freezethaw.model.curves import Array, Curves
from freezethaw.model.factor_updates import recondition
from freezethaw.model.posterior import Posterior
from freezethaw.model.priors import LogNormal
from freezethaw.model.pseudo_observations import PseudoObservations, factorise, log_evidence, noisy_covariance
from freezethaw.model.slice_sampler import elliptical_slice, slice_sample
from freezethaw.model.specification import Geometry, Parameter, Specification, Values
from freezethaw.model.summaries import Summary, summarise

Move = tuple[Parameter, ...]  # hyperparameters that are updated jointly
State = tuple[Values, float]  # values, and the log evidence there
TRIES = 100
WIDTH = 3.0  # of the interval in which a slice is searched, in standard deviations of the prior


class Target:
    """Log evidence of the curves as a function of the hyperparameters, with a cache of the last evaluation.

    The correlation of runs does not depend on the parameters of time, the summaries of the curves do not depend on the
    length scales, and neither depends on mean and amplitudes. So an evaluation costs little more than one Cholesky
    factor.
    """

    def __init__(self, curves: Curves, specification: Specification, geometry: Geometry) -> None:
        self.curves, self.specification, self.geometry = curves, specification, geometry
        self.parameters = specification.parameters(geometry)
        self._names = {part: [p.name for p in self.parameters if p.part == part] for part in ("time", "space")}
        self._distances = PairDistances(curves.configs, geometry)
        self._summary: tuple[list[float], Summary] | None = None
        self._correlation: tuple[list[float], Array] | None = None

    def log_evidence(self, values: Values) -> float:
        """Log evidence at these values; minus infinity if the covariance is numerically singular."""
        s = self.specification
        try:
            r = PseudoObservations.from_summary(
                self._summarised(values), s.coefficient_means(values), s.scale_model(values)
            )
            B = noisy_covariance(
                r, self._correlated(values), s.coefficient_variances(values), s.coefficient_mean_variances()
            )
            return log_evidence(r, factorise(r, B))
        except SingularCovarianceError:
            return -math.inf

    def posterior(self, values: Values, previous: Posterior | None = None) -> Posterior:
        """The posterior at these values. The factor of a `previous` one of earlier curves is reused."""
        return recondition(previous, self.curves, self.specification, values, self.geometry, self._summarised(values))

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


def moves(parameters: Sequence[Parameter]) -> list[Move]:
    """Single hyperparameters and blocks, in order. Hyperparameters that their prior fixes are left out."""
    found: dict[str, Move] = {}
    for p in parameters:
        if not _fixed(p):
            key = p.block or p.name
            found[key] = (*found.get(key, ()), p)
    return list(found.values())


def sweep(target: Target, values: Values, rng: np.random.Generator, chosen: Sequence[Move] | None = None) -> Values:
    """Update all hyperparameters (or these moves) in turn by one slice-sampling transition each."""
    state = values, target.log_evidence(values)
    return advance(target, state, moves(target.parameters) if chosen is None else chosen, rng)[0]


def advance(target: Target, state: State, chosen: Sequence[Move], rng: np.random.Generator) -> State:
    """Apply these moves in turn."""
    for move in chosen:
        state = (_move_block if len(move) > 1 else _move_one)(target, state, move, rng)
    return state


def _move_one(target: Target, state: State, move: Move, rng: np.random.Generator) -> State:
    """Univariate slice sampling, on the log scale for positive parameters."""
    values, log_evidence = state
    (p,) = move

    def log_prior(x: float) -> float:
        """In the sampled coordinate: with the Jacobian of the logarithm."""
        return p.prior.log_density(math.exp(x)) + x if p.log else p.prior.log_density(x)

    def conditional(x: float) -> float:
        prior = log_prior(x)
        value = math.exp(x) if p.log else x
        return prior + target.log_evidence({**values, p.name: value}) if math.isfinite(prior) else -math.inf

    here = math.log(values[p.name]) if p.log else values[p.name]
    width = WIDTH * getattr(p.prior, "scale", 1.0)
    x, log_density = slice_sample(conditional, here, width, rng, log_evidence + log_prior(here))
    return {**values, p.name: math.exp(x) if p.log else x}, log_density - log_prior(x)


def _move_block(target: Target, state: State, move: Move, rng: np.random.Generator) -> State:
    """Elliptical slice sampling of the logarithms, whose priors are normal."""
    values, log_evidence = state
    priors = [p.prior for p in move if isinstance(p.prior, LogNormal)]
    centre = np.array([prior.location for prior in priors])
    spread = np.array([prior.scale for prior in priors])

    def with_deviations(deviations: Array) -> dict[str, float]:
        logs = centre + deviations
        return {**values, **{p.name: math.exp(x) for p, x in zip(move, logs, strict=True)}}

    here = np.array([math.log(values[p.name]) for p in move]) - centre
    draw = spread * rng.standard_normal(len(move))
    deviations, evidence_there = elliptical_slice(
        lambda d: target.log_evidence(with_deviations(d)), here, draw, rng, log_evidence
    )
    return with_deviations(deviations), evidence_there


def _fixed(p: Parameter) -> bool:
    lower, upper = getattr(p.prior, "lower", 0.0), getattr(p.prior, "upper", 1.0)
    return bool(lower == upper)


def draw_prior(parameters: Sequence[Parameter], rng: np.random.Generator) -> Values:
    """One draw of all hyperparameters from their priors."""
    return {p.name: p.prior.sample(rng) for p in parameters}


def draw_start(target: Target, rng: np.random.Generator) -> Values:
    """A draw from the priors with a finite log evidence: a chain must start at a point of positive density."""
    for _ in range(TRIES):
        values = draw_prior(target.parameters, rng)
        if math.isfinite(target.log_evidence(values)):
            return values
    raise SingularCovarianceError(
        f"the log evidence of the curves is not finite at any of {TRIES} draws from the priors"
    )


@dataclass(frozen=True)
class Chains:
    """How to sample from scratch: several chains from draws of the prior, so that a stuck chain is only one of them."""

    count: int = 5
    warm_up: int = 15  # sweeps
    thin: int = 3


def sample(target: Target, count: int, rng: np.random.Generator, chains: Chains | None = None) -> tuple[Values, ...]:
    """`count` samples from scratch, taken from the chains in turn."""
    chains = chains or Chains()
    states = [draw_start(target, rng) for _ in range(min(chains.count, count))]
    for _ in range(chains.warm_up):
        states = [sweep(target, state, rng) for state in states]
    kept: list[Values] = []
    while len(kept) < count:
        for _ in range(chains.thin):
            states = [sweep(target, state, rng) for state in states]
        kept += states
    return tuple(kept[:count])
