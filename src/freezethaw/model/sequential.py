"""Sequential inference: hyperparameter samples are initialised once and updated after every new loss.

Not in the paper, which samples from scratch (`from_scratch`). Each new loss multiplies a sample's importance weight by
the sample's predictive density of that loss. This is exact as long as the loss units stay fixed. The slice sampler then
updates samples: all of them at each decision while losses are few, later a few at a time, so that no decision is slow.
New units are fitted when a loss falls outside the range of the old ones or when the number of losses has grown by 30 %;
the samples are then mapped to the new units. Successive units differ little, so the regular updates suffice as warm-up.
The first samples are draws from the prior and need no warm-up.
"""

from __future__ import annotations

import math

import numpy as np

from freezethaw.errors import ModelError
from freezethaw.model.curves import Array, IntArray
from freezethaw.model.factor_updates import recondition, with_samples
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.hyperparameter_samples import HyperparameterSamples, unstacked
from freezethaw.model.inference import (
    Chains,
    Move,
    Sampler,
    Schedule,
    Target,
    draw_start,
    moves,
    sample,
    sweep,
)
from freezethaw.model.loss_units import LossUnits, Observations, gather, specify, standardised

SAMPLES = 10  # the paper's number
SWEEPS = 20  # slice-sampling sweeps of every sample by the time the number of losses has doubled, approximately,
MOST_SWEEPS = 1  # but at most this many at once


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
    units = LossUnits.fit(observations, model)
    target = _target(observations, model, units)
    start = draw_start(target, rng, count or sample_count(model, observations.count))
    return _equally_weighted(model, units, sweep(target, start, rng), target)


def from_scratch(
    observations: Observations,
    model: str,
    rng: np.random.Generator,
    count: int = SAMPLES,
    schedule: Schedule | None = None,
) -> HyperparameterSamples:
    """Samples that depend on no earlier ones: Markov chains with a warm-up."""
    units = LossUnits.fit(observations, model)
    target = _target(observations, model, units)
    return _equally_weighted(model, units, sample(target, count, rng, schedule), target)


def update(
    samples: HyperparameterSamples,
    observations: Observations,
    rng: np.random.Generator,
    before: Forecaster | None = None,
) -> tuple[HyperparameterSamples, Forecaster]:
    """The samples after new losses, and the forecaster they give. The factor of the forecaster `before` is reused."""
    units = samples.units
    if not units.cover(observations.all_losses()):
        units = LossUnits.fit(observations, samples.model)
    target = _target(observations, samples.model, units)
    values = samples.stacked()
    if units is not samples.units:
        values = _in_new_units(values, samples.units, units, observations, target)
    previous = before.posterior if before is not None and before.transform == units.transform else None
    posterior = recondition(previous, target.curves, target.specification, values, target.geometry)
    evidences = np.where(np.isfinite(posterior.log_evidence), posterior.log_evidence, -np.inf)
    logs = np.array(samples.log_weights)
    if units is samples.units:  # in new units the weights stay, and later ones are relative to the evidence there
        logs = logs + evidences - np.array(samples.log_evidences)
    logs = np.where(np.isfinite(evidences), logs, -np.inf)
    if not np.isfinite(logs).any():
        raise ModelError("no hyperparameter sample has a finite log evidence; initialise the samples again")
    logs = tempered(logs)
    kept = _kept(logs, sample_count(samples.model, observations.count), rng)
    if not np.array_equal(kept, np.arange(len(logs))):
        posterior, evidences, logs = posterior.sample(kept), evidences[kept], _normalised(logs[kept])
    moved, chosen = _schedule(samples, target, len(kept), rng)
    if len(moved):
        start = posterior if len(moved) == len(kept) else posterior.sample(moved)
        sampler = Sampler(target, start.values, start)
        sampler.advance(chosen, rng)
        values = {name: np.array(v) for name, v in posterior.values.items()}
        for name, v in sampler.values.items():
            values[name][moved] = v
        evidences[moved] = sampler.log_evidence
        posterior = with_samples(posterior, values, moved, [p for move in chosen for p in move])
        # after a whole sweep a sample counts as a fresh draw and gets the average weight
        share = len(chosen) / len(moves(target.parameters))
        logs[moved] = (1 - share) * logs[moved] - share * math.log(len(logs))
        logs = _normalised(logs)
    samples = HyperparameterSamples(
        samples.model,
        units,
        unstacked(posterior.values),
        tuple(logs.tolist()),
        tuple(evidences.tolist()),
        (samples.next_update + len(moved)) % len(kept),
        observations.count,
    )
    return samples, Forecaster(units.transform, samples.weights, posterior)


def _equally_weighted(model: str, units: LossUnits, values: Chains, target: Target) -> HyperparameterSamples:
    evidences = target.log_evidence(values)
    count = len(evidences)
    return HyperparameterSamples(
        model,
        units,
        unstacked(values),
        (-math.log(count),) * count,
        tuple(evidences.tolist()),
        count=int(target.curves.counts.sum()),
    )


def _target(observations: Observations, model: str, units: LossUnits) -> Target:
    spec = specify(model, units, observations.geometry, observations.horizon)
    return Target(gather(observations, units.transform), spec, observations.geometry)


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
    return _normalised(scaled)


def _normalised(logs: Array) -> Array:
    """Log weights whose weights add up to one."""
    largest = logs.max()
    return np.asarray(logs - (largest + math.log(np.exp(logs - largest).sum())))


def _kept(log_weights: Array, wanted: int, rng: np.random.Generator) -> IntArray:
    """Indices of at most `wanted` samples, all with positive weight.

    Samples to drop are drawn at random, so that the others represent the same distribution. Samples of zero weight are
    replaced by copies of others.
    """
    count = len(log_weights)
    alive = np.flatnonzero(np.isfinite(log_weights))
    stay = np.sort(rng.permutation(count)[:wanted]) if wanted < count else np.arange(count)
    return np.array([i if i in alive else rng.choice(alive) for i in stay], dtype=np.int64)


def _schedule(
    samples: HyperparameterSamples, target: Target, count: int, rng: np.random.Generator
) -> tuple[IntArray, list[Move]]:
    """Which of `count` samples to update, and by which moves: about SWEEPS sweeps of each per doubling of the losses.

    While losses are few or many are new, all samples are updated by several moves. Otherwise one move updates a few of
    them, in turn from the sample `next_update` on. The number is rounded at random: its expectation may be below one.
    """
    all_moves = moves(target.parameters)
    losses = max(int(target.curves.counts.sum()), 1)
    new = max(losses - samples.count, 1) if samples.count else 1  # earlier versions did not store the count
    each = min(SWEEPS * new / losses, MOST_SWEEPS) * len(all_moves)
    if each >= 1:
        updated, due = count, int(each + rng.random())
    else:
        updated, due = int(each * count + rng.random()), 1
    chosen = rng.choice(len(all_moves), size=min(due, len(all_moves)), replace=False)
    return np.sort((samples.next_update + np.arange(updated)) % count), [all_moves[i] for i in np.sort(chosen)]


def _in_new_units(
    values: Chains, old_units: LossUnits, new_units: LossUnits, observations: Observations, target: Target
) -> Chains:
    """Map the samples to new units by the least-squares line between the two; variances scale by its squared slope."""
    losses = observations.all_losses()
    old, new = old_units.transform.to_model(losses), new_units.transform.to_model(losses)
    centred = old - old.mean()
    slope = float(centred @ (new - new.mean()) / (centred @ centred)) if np.ptp(old) > 0 else 1.0
    shift = float(new.mean() - slope * old.mean())
    mapped = {}
    for p in target.parameters:
        value = values[p.name]
        if p.name == "mean":
            value = slope * value + shift
        elif p.name == "noise" or p.name.endswith(".variance"):
            value = slope**2 * value
        mapped[p.name] = np.asarray(p.prior.nearest(value))
    return mapped
