"""A belief is begun, and carried from one observation to the next.

An *anchor* freezes what turns losses into model units: the transform and the range of the mean's prior. Between two
anchors a sample's weight is multiplied by its predictive density of the new losses, which is exact because nothing else
changed; while losses are few every sample is moved by the slice sampler at each decision, later one at a time, so that
no decision is slow. A new anchor is cast when a loss falls outside the anchored range or when the number of losses has
grown by a third: losses are transformed anew and samples are mapped to the new units. Anchors that follow one another
closely differ little, so the regular moves are enough to settle the samples in them. The first samples are draws from
the prior, so there is no burn-in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
from scipy.special import logsumexp

from freezethaw.errors import ModelError, SingularCovarianceError
from freezethaw.model.belief import Belief
from freezethaw.model.curves import Array
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.inference import Chains, Target, advance, draw_start, moves, sample, sweep
from freezethaw.model.observations import Anchor, Observations, gather, specify, standardised
from freezethaw.model.posterior import Posterior
from freezethaw.model.specification import Values

SAMPLES = 10  # the paper's
SWEEPS = 20  # how often every sample has moved by the time the number of losses has doubled, about


def samples_wanted(model: str, losses: int) -> int:
    """How many samples carry the belief: ten in the paper's model; in ours the fewer the more losses there are.

    With few losses doubt about the model itself is largest, and samples are cheap: 20 up to 100 losses. From 200 to 500
    there are ten. Many losses leave little doubt and make a sample dear: five from 1000 on.
    """
    if standardised(model):
        return SAMPLES
    n = max(losses, 1)
    return max(min(2 * SAMPLES, 2000 // n), min(SAMPLES, 5000 // n), SAMPLES // 2)


def begin(observations: Observations, model: str, rng: np.random.Generator, count: int | None = None) -> Belief:
    """The first belief: draws from the prior, weighed and moved."""
    count = count or samples_wanted(model, observations.count)
    anchor = Anchor.cast(observations, model)
    target = _target(observations, model, anchor)
    samples = tuple(sweep(target, draw_start(target, rng), rng) for _ in range(count))
    return _equal(model, anchor, samples, target)


def from_scratch(
    observations: Observations, model: str, rng: np.random.Generator, count: int = SAMPLES, chains: Chains | None = None
) -> Belief:
    """A belief that remembers nothing: chains with a burn-in."""
    anchor = Anchor.cast(observations, model)
    target = _target(observations, model, anchor)
    return _equal(model, anchor, sample(target, count, rng, chains), target)


def carry(
    belief: Belief, observations: Observations, rng: np.random.Generator, before: Forecaster | None = None
) -> tuple[Belief, Forecaster]:
    """The belief after more has been observed, and the forecaster that comes with it; the one `before` spares work."""
    if belief.anchor.holds(observations.all_losses()):
        target = _target(observations, belief.model, belief.anchor)
    else:
        anchor = Anchor.cast(observations, belief.model)
        target = _target(observations, belief.model, anchor)
        belief = _mapped(belief, anchor, observations, target)
    known = before.posteriors if before is not None and before.transform == belief.anchor.transform else ()
    posteriors = [
        _conditioned(target, s, previous) for s, previous in zip_longest(belief.samples, known[: len(belief.samples)])
    ]
    belief, kept = _kept(_weighed(belief, posteriors), samples_wanted(belief.model, observations.count), rng)
    posteriors = [posteriors[k] for k in kept]
    for at, share in _turns(belief, target, rng):
        belief = _moved(belief, at, share, target, rng)
        posteriors[at] = _conditioned(target, belief.samples[at])
    return belief, Forecaster(belief.anchor.transform, belief.weights, tuple(p for p in posteriors if p is not None))


def _equal(model: str, anchor: Anchor, samples: tuple[Values, ...], target: Target) -> Belief:
    """Samples of equal weight."""
    evidences = tuple(target.log_evidence(s) for s in samples)
    return Belief(model, anchor, samples, (-math.log(len(samples)),) * len(samples), evidences)


def _target(observations: Observations, model: str, anchor: Anchor) -> Target:
    spec = specify(model, anchor, observations.geometry, observations.horizon)
    return Target(gather(observations, anchor.transform), spec, observations.geometry)


def _conditioned(target: Target, values: Values, previous: Posterior | None = None) -> Posterior | None:
    """The posterior at one sample; none where the covariance is numerically singular there."""
    try:
        return target.posterior(values, previous)
    except SingularCovarianceError:
        return None


def _weighed(belief: Belief, posteriors: Sequence[Posterior | None]) -> Belief:
    """Multiply each weight by the predictive density of what is new since it was last weighed."""
    evidences = [-math.inf if p is None else p.log_evidence for p in posteriors]
    logs = np.array(belief.log_weights) + np.array(evidences) - np.array(belief.log_evidences)
    if not np.isfinite(logs).any():
        raise ModelError("no sample of the hyperparameters explains the losses; begin anew")
    return replace(belief, log_weights=tuple(tempered(logs)), log_evidences=tuple(evidences))


def tempered(logs: Array) -> Array:
    """Normalised log weights, raised to the largest power up to one at which half of the samples still count.

    Resampling instead would let samples descend from one another: they would agree with each other, not with the truth.
    """
    alive = np.isfinite(logs)
    relative = np.where(alive, logs - logs[alive].max(), -np.inf)

    def counting(power: float) -> float:
        w = np.exp(power * relative[alive])
        return float(w.sum() ** 2 / (w @ w))

    enough = 0.5 * alive.sum()
    low, high = 0.0, 1.0
    if counting(1.0) >= enough:
        low = 1.0
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if counting(middle) >= enough else (low, middle)
    scaled = np.where(alive, low * np.where(alive, relative, 0.0), -np.inf)
    return np.asarray(scaled - logsumexp(scaled))


def _kept(belief: Belief, wanted: int, rng: np.random.Generator) -> tuple[Belief, list[int]]:
    """No more samples than wanted, and all of them alive; whose place each takes.

    Those to go are drawn at random, so that the others still stand for the same distribution; samples that explain
    nothing at all are replaced by living ones.
    """
    count = len(belief.samples)
    alive = np.flatnonzero(np.isfinite(belief.log_weights))
    stay = np.sort(rng.permutation(count)[:wanted]) if wanted < count else np.arange(count)
    kept = [int(i) if i in alive else int(rng.choice(alive)) for i in stay]
    if kept == list(range(count)):
        return belief, kept
    logs = np.array([belief.log_weights[k] for k in kept])
    return replace(
        belief,
        samples=tuple(belief.samples[k] for k in kept),
        log_evidences=tuple(belief.log_evidences[k] for k in kept),
        log_weights=tuple(logs - logsumexp(logs)),
    ), kept


def _turns(belief: Belief, target: Target, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Whose turn it is to move, and in how many of its hyperparameters: all samples keep pace with the data."""
    count, all_moves = len(belief.samples), len(moves(target.parameters))
    sweeps = SWEEPS * count / max(int(target.curves.counts.sum()), 1)
    if sweeps >= 1:
        return [((belief.turn + i) % count, all_moves) for i in range(min(round(sweeps), count))]
    due = int(sweeps * all_moves + rng.random())  # on average as many as wanted, which may be less than one
    return [(belief.turn % count, due)] if due else []


def _moved(belief: Belief, at: int, count: int, target: Target, rng: np.random.Generator) -> Belief:
    """Move one sample in so many of its hyperparameters."""
    chosen = moves(target.parameters)
    share = count / len(chosen)
    if share < 1:
        chosen = [chosen[i] for i in rng.choice(len(chosen), size=count, replace=False)]
    samples, evidences, logs = list(belief.samples), list(belief.log_evidences), np.array(belief.log_weights)
    samples[at], evidences[at] = advance(target, (samples[at], evidences[at]), chosen, rng)
    # a sample that has moved all the way is a fresh draw: it starts again at the average weight
    logs[at] = (1 - share) * logs[at] - share * math.log(len(samples))
    logs -= logsumexp(logs)
    return replace(belief, samples=tuple(samples), log_evidences=tuple(evidences), log_weights=tuple(logs), turn=at + 1)


def _mapped(belief: Belief, anchor: Anchor, observations: Observations, target: Target) -> Belief:
    """Carry the samples from the old units to the new: variances by the square of the slope between the two."""
    losses = observations.all_losses()
    old, new = belief.anchor.transform.to_model(losses), anchor.transform.to_model(losses)
    centred = old - old.mean()
    slope = float(centred @ (new - new.mean()) / (centred @ centred)) if np.ptp(old) > 0 else 1.0
    shift = float(new.mean() - slope * old.mean())
    samples = []
    for s in belief.samples:
        moved = {}
        for p in target.parameters:
            value = s[p.name]
            if p.name == "mean":
                value = slope * value + shift
            elif p.name == "noise" or p.name.endswith(".variance"):
                value = slope**2 * value
            moved[p.name] = p.prior.nearest(value)
        samples.append(moved)
    evidences = tuple(target.log_evidence(s) for s in samples)  # the weights stay: in new units they start anew
    return replace(belief, anchor=anchor, samples=tuple(samples), log_evidences=evidences)
