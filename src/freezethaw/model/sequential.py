"""Sequential inference: hyperparameter samples are initialised once and updated after every new loss.

Not in the paper, which samples from scratch (`from_scratch`). Each new loss multiplies a sample's importance weight by
the sample's predictive density of that loss. This is exact as long as the loss units stay fixed. The slice sampler then
updates samples: all of them at each decision while losses are few, later one at a time, so that no decision is slow.
New units are fitted when a loss falls outside the range of the old ones or when the number of losses has grown by 30 %;
the samples are then mapped to the new units. Successive units differ little, so the regular updates suffice as warm-up.
The first samples are draws from the prior and need no warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
from scipy.special import logsumexp

from freezethaw.errors import ModelError, SingularCovarianceError
from freezethaw.model.curves import Array
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.model.inference import Chains, Target, advance, draw_start, moves, sample, sweep
from freezethaw.model.loss_units import LossUnits, Observations, gather, specify, standardised
from freezethaw.model.posterior import Posterior
from freezethaw.model.specification import Values

SAMPLES = 10  # the paper's number
SWEEPS = 20  # slice-sampling sweeps of every sample by the time the number of losses has doubled, approximately


def sample_count(model: str, losses: int) -> int:
    """How many samples to use: ten for the paper's model; for the default model fewer as losses accumulate.

    With few losses the posterior is wide and samples are cheap: 20 up to 100 losses. From 200 to 500 there are ten.
    With many losses the posterior is narrow and samples are expensive: five from 1000 on.
    """
    if standardised(model):
        return SAMPLES
    n = max(losses, 1)
    return max(min(2 * SAMPLES, 2000 // n), min(SAMPLES, 5000 // n), SAMPLES // 2)


def initialise(
    observations: Observations, model: str, rng: np.random.Generator, count: int | None = None
) -> HyperparameterSamples:
    """The first samples: draws from the prior, each updated by one sweep."""
    count = count or sample_count(model, observations.count)
    units = LossUnits.fit(observations, model)
    target = _target(observations, model, units)
    values = tuple(sweep(target, draw_start(target, rng), rng) for _ in range(count))
    return _equally_weighted(model, units, values, target)


def from_scratch(
    observations: Observations, model: str, rng: np.random.Generator, count: int = SAMPLES, chains: Chains | None = None
) -> HyperparameterSamples:
    """Samples that depend on no earlier ones: Markov chains with a warm-up."""
    units = LossUnits.fit(observations, model)
    target = _target(observations, model, units)
    return _equally_weighted(model, units, sample(target, count, rng, chains), target)


def update(
    samples: HyperparameterSamples,
    observations: Observations,
    rng: np.random.Generator,
    before: Forecaster | None = None,
) -> tuple[HyperparameterSamples, Forecaster]:
    """The samples after new losses, and the forecaster they give. Factors of the forecaster `before` are reused."""
    if samples.units.cover(observations.all_losses()):
        target = _target(observations, samples.model, samples.units)
    else:
        units = LossUnits.fit(observations, samples.model)
        target = _target(observations, samples.model, units)
        samples = _in_new_units(samples, units, observations, target)
    known = before.posteriors if before is not None and before.transform == samples.units.transform else ()
    posteriors = [
        _conditioned(target, s, previous) for s, previous in zip_longest(samples.values, known[: len(samples.values)])
    ]
    samples, kept = _thinned(_reweighted(samples, posteriors), sample_count(samples.model, observations.count), rng)
    posteriors = [posteriors[k] for k in kept]
    for at, share in _schedule(samples, target, rng):
        samples = _updated(samples, at, share, target, rng)
        posteriors[at] = _conditioned(target, samples.values[at])
    return samples, Forecaster(samples.units.transform, samples.weights, tuple(p for p in posteriors if p is not None))


def _equally_weighted(
    model: str, units: LossUnits, values: tuple[Values, ...], target: Target
) -> HyperparameterSamples:
    evidences = tuple(target.log_evidence(v) for v in values)
    return HyperparameterSamples(model, units, values, (-math.log(len(values)),) * len(values), evidences)


def _target(observations: Observations, model: str, units: LossUnits) -> Target:
    spec = specify(model, units, observations.geometry, observations.horizon)
    return Target(gather(observations, units.transform), spec, observations.geometry)


def _conditioned(target: Target, values: Values, previous: Posterior | None = None) -> Posterior | None:
    """The posterior at one sample; None if the covariance is numerically singular there."""
    try:
        return target.posterior(values, previous)
    except SingularCovarianceError:
        return None


def _reweighted(samples: HyperparameterSamples, posteriors: Sequence[Posterior | None]) -> HyperparameterSamples:
    """Multiply each weight by the predictive density of the losses since the last reweighting."""
    evidences = [-math.inf if p is None else p.log_evidence for p in posteriors]
    logs = np.array(samples.log_weights) + np.array(evidences) - np.array(samples.log_evidences)
    if not np.isfinite(logs).any():
        raise ModelError("no hyperparameter sample has a finite log evidence; initialise the samples again")
    return replace(samples, log_weights=tuple(tempered(logs)), log_evidences=tuple(evidences))


def tempered(logs: Array) -> Array:
    """Normalised log weights, raised to the largest power up to one that keeps the effective sample size above half.

    Resampling instead would create copies of samples: they would agree with each other, not with the posterior.
    """
    alive = np.isfinite(logs)
    relative = np.where(alive, logs - logs[alive].max(), -np.inf)

    def effective_size(power: float) -> float:
        w = np.exp(power * relative[alive])
        return float(w.sum() ** 2 / (w @ w))

    enough = 0.5 * alive.sum()
    low, high = 0.0, 1.0
    if effective_size(1.0) >= enough:
        low = 1.0
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective_size(middle) >= enough else (low, middle)
    scaled = np.where(alive, low * np.where(alive, relative, 0.0), -np.inf)
    return np.asarray(scaled - logsumexp(scaled))


def _thinned(
    samples: HyperparameterSamples, wanted: int, rng: np.random.Generator
) -> tuple[HyperparameterSamples, list[int]]:
    """At most `wanted` samples, all with positive weight, and the index of each among the old ones.

    Samples to drop are drawn at random, so that the others represent the same distribution. Samples of zero weight are
    replaced by copies of others.
    """
    count = len(samples.values)
    alive = np.flatnonzero(np.isfinite(samples.log_weights))
    stay = np.sort(rng.permutation(count)[:wanted]) if wanted < count else np.arange(count)
    kept = [int(i) if i in alive else int(rng.choice(alive)) for i in stay]
    if kept == list(range(count)):
        return samples, kept
    logs = np.array([samples.log_weights[k] for k in kept])
    return replace(
        samples,
        values=tuple(samples.values[k] for k in kept),
        log_evidences=tuple(samples.log_evidences[k] for k in kept),
        log_weights=tuple(logs - logsumexp(logs)),
    ), kept


def _schedule(samples: HyperparameterSamples, target: Target, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Which samples to update, and by how many moves: about SWEEPS sweeps of each per doubling of the losses."""
    count, all_moves = len(samples.values), len(moves(target.parameters))
    sweeps = SWEEPS * count / max(int(target.curves.counts.sum()), 1)
    if sweeps >= 1:
        return [((samples.next_update + i) % count, all_moves) for i in range(min(round(sweeps), count))]
    due = int(sweeps * all_moves + rng.random())  # stochastic rounding: the expected number may be below one
    return [(samples.next_update % count, due)] if due else []


def _updated(
    samples: HyperparameterSamples, at: int, count: int, target: Target, rng: np.random.Generator
) -> HyperparameterSamples:
    """Apply `count` slice-sampling moves to one sample."""
    chosen = moves(target.parameters)
    share = count / len(chosen)
    if share < 1:
        chosen = [chosen[i] for i in rng.choice(len(chosen), size=count, replace=False)]
    values, evidences, logs = list(samples.values), list(samples.log_evidences), np.array(samples.log_weights)
    values[at], evidences[at] = advance(target, (values[at], evidences[at]), chosen, rng)
    # after a whole sweep the sample counts as a fresh draw and gets the average weight
    logs[at] = (1 - share) * logs[at] - share * math.log(len(values))
    logs -= logsumexp(logs)
    return replace(
        samples, values=tuple(values), log_evidences=tuple(evidences), log_weights=tuple(logs), next_update=at + 1
    )


def _in_new_units(
    samples: HyperparameterSamples, units: LossUnits, observations: Observations, target: Target
) -> HyperparameterSamples:
    """Map the samples to new units by the least-squares line between the two; variances scale by its squared slope."""
    losses = observations.all_losses()
    old, new = samples.units.transform.to_model(losses), units.transform.to_model(losses)
    centred = old - old.mean()
    slope = float(centred @ (new - new.mean()) / (centred @ centred)) if np.ptp(old) > 0 else 1.0
    shift = float(new.mean() - slope * old.mean())
    mapped = []
    for s in samples.values:
        values = {}
        for p in target.parameters:
            value = s[p.name]
            if p.name == "mean":
                value = slope * value + shift
            elif p.name == "noise" or p.name.endswith(".variance"):
                value = slope**2 * value
            values[p.name] = p.prior.nearest(value)
        mapped.append(values)
    # the weights stay; later weights are relative to the evidence in the new units
    evidences = tuple(target.log_evidence(s) for s in mapped)
    return replace(samples, units=units, values=tuple(mapped), log_evidences=evidences)
