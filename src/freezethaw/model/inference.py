"""Slice sampling of the hyperparameters (paper: section 2.1, priors of appendix B).

The elliptical moves of blocks and the intermediate results that `Sampler` keeps go beyond the paper: they change the
speed of the chains, not their target density. S chains are updated at once: values and log evidences are arrays (S,).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from freezethaw.errors import SingularCovarianceError
from freezethaw.model.correlation import of_runs, scaled, scaled_column, squared_distances
from freezethaw.model.curves import Array, Curves, IntArray
from freezethaw.model.posterior import Posterior
from freezethaw.model.priors import LogNormal
from freezethaw.model.pseudo_observations import PseudoObservations, factorise, log_evidence, noisy_covariance, of_rows
from freezethaw.model.slice_sampler import elliptical_slice, slice_sample
from freezethaw.model.specification import Geometry, Parameter, Specification, Values
from freezethaw.model.summaries import Summary, summarise, take_samples

Move = tuple[Parameter, ...]  # hyperparameters that are updated jointly
Chains = dict[str, Array]  # values of S chains by name, each (S,)
Evaluate = Callable[[Chains, IntArray], Array]  # values of some chains, and their indices -> log evidences
TRIES = 100
WIDTH = 3.0  # of the interval in which a slice is searched, in standard deviations of the prior


@dataclass(frozen=True)
class Target:
    """What is sampled: the hyperparameters of a model, given curves."""

    curves: Curves
    specification: Specification
    geometry: Geometry

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All hyperparameters."""
        return self.specification.parameters(self.geometry)

    def log_evidence(self, values: Chains) -> Array:
        """(S,) log evidence at these values; minus infinity if the covariance is numerically singular."""
        inputs = scaled(self.curves.configs, self.geometry, values)
        r = self.pseudo_observations(self.summarise(values), values)
        return self.evidence_of(r, self.correlation(squared_distances(inputs, inputs), r.runs, values), values)

    def summarise(self, values: Chains) -> Summary:
        """Sufficient statistics of the curves at these values."""
        return summarise(self.curves, self.specification.time_model(values))

    def pseudo_observations(self, summary: Summary, values: Chains) -> PseudoObservations:
        """The pseudo-observations at these values."""
        s = self.specification
        return PseudoObservations.from_summary(summary, s.coefficient_means(values), s.scale_model(values))

    def correlation(self, squares: Array, runs: IntArray, values: Chains) -> Array:
        """(S, M, M) correlation of the runs of all pairs of pseudo-observations, from squared distances (S, N, N)."""
        every = np.arange(len(self.curves))
        return of_rows(of_runs(squares, every, every, values), runs)

    def evidence_of(self, r: PseudoObservations, K: Array, values: Chains) -> Array:
        """(S,) log evidence from the pseudo-observations and the correlation of their runs."""
        s = self.specification
        B = noisy_covariance(r, K, s.coefficient_variances(values), s.coefficient_mean_variances())
        found = log_evidence(r, factorise(r, B))
        return np.where(np.isfinite(found), found, -np.inf)


class Sampler:
    """S chains, and what is known at their current values.

    The correlation of runs does not depend on the parameters of time, the summaries of the curves do not depend on the
    length scales, and neither depends on mean and amplitudes. So an evaluation costs little more than Cholesky factors.
    """

    def __init__(self, target: Target, values: Values, start: Posterior | None = None) -> None:
        """`start` is the posterior at these values, if it is known."""
        self.target = target
        self.values: Chains = {name: np.array(v, dtype=np.float64) for name, v in values.items()}
        if start is None:
            self._inputs = scaled(target.curves.configs, target.geometry, self.values)  # (S, N, D)
            self._summary = target.summarise(self.values)
        else:
            self._inputs, self._summary = start.inputs.copy(), start.summary
        self._summary = replace(self._summary, whitened=())
        self._pseudo = target.pseudo_observations(self._summary, self.values)
        squares = squared_distances(self._inputs, self._inputs)
        self._correlation = target.correlation(squares, self._pseudo.runs, self.values)
        if start is None:
            self.log_evidence = target.evidence_of(self._pseudo, self._correlation, self.values)
        else:
            self.log_evidence = start.log_evidence
        self._moved: Parameter | None = None  # by the last move, and not yet taken into account

    def advance(self, chosen: Sequence[Move], rng: np.random.Generator) -> None:
        """Apply these moves to all chains, in turn."""
        for move in chosen:
            self._refresh()
            (self._move_block if len(move) > 1 else self._move_one)(move, rng)
            self._moved = move[0]

    def _move_one(self, move: Move, rng: np.random.Generator) -> None:
        """Univariate slice sampling, on the log scale for positive parameters."""
        (p,) = move
        evaluate = self._evaluate(p)

        def log_prior(x: Array) -> Array:
            """In the sampled coordinate: with the Jacobian of the logarithm."""
            return np.asarray(p.prior.log_density(np.exp(x)) + x if p.log else p.prior.log_density(x))

        def conditional(x: Array, chains: IntArray) -> Array:
            found = log_prior(x)
            possible = np.flatnonzero(np.isfinite(found))
            if len(possible):
                new = {p.name: np.exp(x[possible]) if p.log else x[possible]}
                found[possible] += evaluate(self._at(chains[possible], new), chains[possible])
            return found

        here = np.log(self.values[p.name]) if p.log else self.values[p.name]
        width = WIDTH * getattr(p.prior, "scale", 1.0)
        x, log_density = slice_sample(conditional, here, width, rng, self.log_evidence + log_prior(here))
        self.values[p.name] = np.exp(x) if p.log else x
        self.log_evidence = log_density - log_prior(x)

    def _move_block(self, move: Move, rng: np.random.Generator) -> None:
        """Elliptical slice sampling of the logarithms, whose priors are normal."""
        evaluate = self._evaluate(move[0])
        priors = [p.prior for p in move if isinstance(p.prior, LogNormal)]
        centre = np.array([prior.location for prior in priors])
        spread = np.array([prior.scale for prior in priors])

        def named(deviations: Array) -> Chains:
            return {p.name: column for p, column in zip(move, np.exp(centre + deviations).T, strict=True)}

        here = np.log(np.stack([self.values[p.name] for p in move], axis=1)) - centre
        draws = spread * rng.standard_normal(here.shape)
        deviations, self.log_evidence = elliptical_slice(
            lambda d, chains: evaluate(self._at(chains, named(d)), chains), here, draws, rng, self.log_evidence
        )
        self.values |= named(deviations)

    def _at(self, chains: IntArray, new: Chains) -> Chains:
        """The values of these chains, some of them replaced."""
        return {name: v[chains] for name, v in self.values.items()} | new

    def _evaluate(self, p: Parameter) -> Evaluate:
        """Log evidence as a function of this hyperparameter and of those in its block."""
        target, K, summary, r = self.target, self._correlation, self._summary, self._pseudo

        def of_time(values: Chains, chains: IntArray) -> Array:
            moved = target.pseudo_observations(target.summarise(values), values)
            return target.evidence_of(moved, _of_chains(K, chains), values)

        def of_scales(values: Chains, chains: IntArray) -> Array:
            moved = target.pseudo_observations(take_samples(summary, chains), values)
            return target.evidence_of(moved, _of_chains(K, chains), values)

        def of_amplitude(values: Chains, chains: IntArray) -> Array:
            return target.evidence_of(take_samples(r, chains), _of_chains(K, chains), values)

        if p.part != "space":
            return of_time if p.part == "time" else of_amplitude if p.name.endswith(".variance") else of_scales
        columns = self._columns(p)
        kept = np.delete(self._inputs, columns, axis=2)
        others = squared_distances(kept, kept)

        def of_space(values: Chains, chains: IntArray) -> Array:
            squares = others[chains]
            for column in columns:
                x = scaled_column(target.curves.configs[:, column], column, target.geometry, values)
                squares += (x[:, :, None] - x[:, None, :]) ** 2
            return target.evidence_of(take_samples(r, chains), target.correlation(squares, r.runs, values), values)

        return of_space

    def _columns(self, p: Parameter) -> list[int]:
        """Columns of the configurations whose scaled values depend on this hyperparameter."""
        return [c for c, length in enumerate(self.target.geometry.lengths) if length == p.dimension]

    def _refresh(self) -> None:
        """Recompute what depends on the hyperparameters of the last move."""
        p, target = self._moved, self.target
        if p is None:
            return
        if p.part == "space":
            for c in self._columns(p):
                self._inputs[:, :, c] = scaled_column(target.curves.configs[:, c], c, target.geometry, self.values)
            squares = squared_distances(self._inputs, self._inputs)
            self._correlation = target.correlation(squares, self._pseudo.runs, self.values)
            return
        if p.part == "time":
            self._summary = replace(target.summarise(self.values), whitened=())
        self._pseudo = target.pseudo_observations(self._summary, self.values)


def _of_chains(matrices: Array, chains: IntArray) -> Array:
    """The matrices of these chains, not copied if these are all chains."""
    return matrices if len(chains) == len(matrices) else matrices[chains]


def moves(parameters: Sequence[Parameter]) -> list[Move]:
    """Single hyperparameters and blocks, in order. Hyperparameters that their prior fixes are left out."""
    found: dict[str, Move] = {}
    for p in parameters:
        if not _fixed(p):
            key = p.block or p.name
            found[key] = (*found.get(key, ()), p)
    return list(found.values())


def _fixed(p: Parameter) -> bool:
    lower, upper = getattr(p.prior, "lower", 0.0), getattr(p.prior, "upper", 1.0)
    return bool(lower == upper)


def sweep(target: Target, values: Values, rng: np.random.Generator, chosen: Sequence[Move] | None = None) -> Chains:
    """Update all hyperparameters (or these moves) of S chains in turn, by one slice-sampling transition each."""
    sampler = Sampler(target, values)
    sampler.advance(moves(target.parameters) if chosen is None else chosen, rng)
    return sampler.values


def draw_prior(parameters: Sequence[Parameter], rng: np.random.Generator, count: int) -> Chains:
    """Independent draws of all hyperparameters from their priors."""
    return {p.name: p.prior.sample(rng, count) for p in parameters}


def draw_start(target: Target, rng: np.random.Generator, count: int) -> Chains:
    """Draws from the priors with a finite log evidence: a chain must start at a point of positive density."""
    values = draw_prior(target.parameters, rng, count)
    for _ in range(TRIES):
        impossible = np.flatnonzero(~np.isfinite(target.log_evidence(values)))
        if not len(impossible):
            return values
        for name, draws in draw_prior(target.parameters, rng, len(impossible)).items():
            values[name][impossible] = draws
    raise SingularCovarianceError(
        f"the log evidence of the curves is not finite at any of {TRIES} draws from the priors"
    )


@dataclass(frozen=True)
class Schedule:
    """How to sample from scratch: several chains from draws of the prior, so that a stuck chain is only one of them."""

    chains: int = 5
    warm_up: int = 15  # sweeps
    thin: int = 3


def sample(target: Target, count: int, rng: np.random.Generator, schedule: Schedule | None = None) -> Chains:
    """`count` samples from scratch, taken from the chains in turn."""
    schedule = schedule or Schedule()
    all_moves = moves(target.parameters)
    sampler = Sampler(target, draw_start(target, rng, min(schedule.chains, count)))
    sampler.advance(all_moves * schedule.warm_up, rng)
    kept: list[Chains] = []
    while len(kept) * schedule.chains < count:
        sampler.advance(all_moves * schedule.thin, rng)
        kept.append(dict(sampler.values))
    return {name: np.concatenate([values[name] for values in kept])[:count] for name in kept[0]}
