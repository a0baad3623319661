"""What is believed of the hyperparameters, carried from one observation to the next.

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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
from scipy.special import logsumexp

from freezethaw.errors import ModelError, SingularCovarianceError
from freezethaw.losses import Forecast, Transform
from freezethaw.model import specification
from freezethaw.model.curves import Array, Curves
from freezethaw.model.fantasies import Awaited, awaited, suppose
from freezethaw.model.inference import Chains, Target, draw_start, moves, sample, sweep
from freezethaw.model.posterior import Points, Posterior, Prediction, condition
from freezethaw.model.specification import Geometry, Specification, Values

SAMPLES = 10  # the paper's
SWEEPS = 40  # how often every sample has moved by the time the number of losses has doubled, about
GROWTH = 1.3  # a new anchor is cast when there are this many times as many losses
MARGIN = 0.5  # how far outside the anchored range a loss may fall, in model units
THIN_BEYOND = 100  # curves longer than this are thinned
DENSE_EPOCHS = 20
STANDARDISED = frozenset({"paper"})  # models whose units are affine in the loss
BLEND = 0.5  # of normal scores in the units, once there are many runs
BLEND_RUNS = 8  # with so many runs the blend is half of that: the shape of a distribution is not known from a few


@dataclass(frozen=True)
class Observations:
    """Runs as the user knows them: configurations in the cube, finite losses in the user's units."""

    configs: Array  # (N, D)
    losses: tuple[tuple[float, ...], ...]
    geometry: Geometry
    horizon: float  # the last epoch that will ever be trained
    maximize: bool = False
    epochs: tuple[tuple[float, ...], ...] | None = None  # 1, 2, ... unless said

    @property
    def count(self) -> int:
        """How many losses there are."""
        return sum(len(curve) for curve in self.losses)

    def weights(self) -> Array:
        """How much each loss counts when units are chosen: all runs alike, however long."""
        return np.concatenate([np.full(len(curve), 1.0 / len(curve)) for curve in self.losses if curve])

    def all_losses(self) -> Array:
        """Every loss, one after the other."""
        return np.array([loss for curve in self.losses for loss in curve])


@dataclass(frozen=True)
class Anchor:
    """Frozen units: the transform, the range of losses (model units) it was fitted to, and how many they were."""

    transform: Transform
    lowest: float
    highest: float
    count: int

    @classmethod
    def cast(cls, observations: Observations, model: str) -> Anchor:
        """Fit the units to what has been observed."""
        losses = observations.all_losses()
        runs = sum(len(curve) > 0 for curve in observations.losses)
        if model in STANDARDISED:
            transform = Transform.fit(losses, observations.maximize, blend=0.0)
        else:
            blend = BLEND * runs / (runs + BLEND_RUNS)
            transform = Transform.fit(losses, observations.maximize, blend, observations.weights())
        z = transform.to_model(losses)
        return cls(transform, float(z.min()), float(z.max()), len(losses))

    def holds(self, losses: Array) -> bool:
        """Whether these losses may be read in these units."""
        z = self.transform.to_model(losses)
        inside = self.lowest - MARGIN <= z.min() and z.max() <= self.highest + MARGIN
        return bool(inside and len(losses) < GROWTH * self.count)


@dataclass(frozen=True)
class Belief:
    """Weighted samples of the hyperparameters in the units of an anchor; plain numbers only."""

    model: str
    anchor: Anchor
    samples: tuple[Values, ...]
    log_weights: tuple[float, ...]  # normalised
    log_evidences: tuple[float, ...]  # of the observations at each sample, when last weighed
    turn: int = 0  # whose turn it is to move

    @property
    def weights(self) -> Array:
        """(S,) that sum to one."""
        return np.asarray(np.exp(np.array(self.log_weights)))


def as_numbers(belief: Belief) -> dict[str, Any]:
    """A belief as plain lists, texts and numbers, to be kept outside this process."""
    anchor = asdict(belief.anchor)
    samples = [dict(sample) for sample in belief.samples]
    return {
        "model": belief.model,
        "anchor": anchor | {"transform": {k: _plain(v) for k, v in anchor["transform"].items()}},
        "samples": samples,
        "log_weights": list(belief.log_weights),
        "log_evidences": list(belief.log_evidences),
        "turn": belief.turn,
    }


def of_numbers(numbers: Mapping[str, Any]) -> Belief:
    """The belief that `as_numbers` wrote."""
    anchor = dict(numbers["anchor"])
    transform: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in anchor.pop("transform").items()}
    return Belief(
        numbers["model"],
        Anchor(Transform(**transform), **anchor),
        tuple(dict(sample) for sample in numbers["samples"]),
        tuple(numbers["log_weights"]),
        tuple(numbers["log_evidences"]),
        numbers["turn"],
    )


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def specify(model: str, anchor: Anchor, geometry: Geometry, horizon: float) -> Specification:
    """The model by name, its priors in the units of the anchor."""
    if model == "paper":
        return specification.paper((anchor.lowest, anchor.highest))
    if model == "drift":
        return specification.drift(geometry.count, horizon)
    if model == "luck":
        return specification.luck(geometry.count, horizon)
    raise ModelError(f"unknown model {model!r}; known: paper, drift, luck")


def gather(observations: Observations, transform: Transform) -> Curves:
    """The curves in model units."""
    lengths = [len(curve) for curve in observations.losses]
    longest = max(lengths, default=0)
    return Curves.of(
        observations.configs,
        np.split(transform.to_model(observations.all_losses()), np.cumsum(lengths)[:-1]),
        observations.epochs,
        DENSE_EPOCHS if longest > THIN_BEYOND else None,
    )


def samples_wanted(model: str, losses: int) -> int:
    """How many samples carry the belief: ten in the paper's model; in ours the fewer the more losses there are.

    With few losses doubt about the model itself is largest, and samples are cheap: 20 up to 100 losses. From 200 to 500
    there are ten. Many losses leave little doubt and make a sample dear: five from 1000 on.
    """
    if model in STANDARDISED:
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
        return condition(target.curves, target.specification, values, target.geometry, previous)
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
    moved = sweep(target, belief.samples[at], rng, chosen)
    samples, evidences, logs = list(belief.samples), list(belief.log_evidences), np.array(belief.log_weights)
    samples[at], evidences[at] = moved, target.log_evidence(moved)
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


@dataclass(frozen=True)
class Forecaster:
    """A belief conditioned on the curves: one posterior for each sample, and forecasts in the user's units."""

    transform: Transform
    weights: Array
    posteriors: tuple[Posterior, ...]

    @classmethod
    def of(cls, belief: Belief, observations: Observations) -> Forecaster:
        """Condition every sample."""
        curves = gather(observations, belief.anchor.transform)
        spec = specify(belief.model, belief.anchor, observations.geometry, observations.horizon)
        posteriors = tuple(condition(curves, spec, s, observations.geometry) for s in belief.samples)
        return cls(belief.anchor.transform, belief.weights, posteriors)

    def awaited(self, who: Sequence[int | Array], counts: Sequence[int]) -> list[tuple[Awaited, ...]]:
        """The next losses of runs (by index) or of configurations that are being started; of each for every sample."""
        return list(zip(*(awaited(p, who, counts) for p in self.posteriors), strict=True))

    def with_fantasies(self, fantasies: Sequence[tuple[int | Array, tuple[Awaited, ...]]]) -> Forecaster:
        """As if runs under way had been told what is awaited of each: of a run, or of a configuration being started.

        At their expected losses doubt is gone and nothing else changes, so the next decision looks elsewhere. New runs
        are put behind the others, in order.
        """
        if not fantasies:
            return self
        losses = [np.average([a.mean for a in each], axis=0, weights=self.weights) for _, each in fantasies]
        known = self.posteriors[0].curves
        curves, runs = _continued(known, [(who, y) for (who, _), y in zip(fantasies, losses, strict=True)])
        posteriors = tuple(
            suppose(p, curves, runs, [each[k] for _, each in fantasies], losses) for k, p in enumerate(self.posteriors)
        )
        return replace(self, posteriors=posteriors)

    def run(self, run: int, epochs: Sequence[float], noise: bool = True) -> Forecast:
        """Later losses of an old run."""
        return self._mixed([p.losses(run, epochs, noise) for p in self.posteriors])

    def config(self, config: Array, epochs: Sequence[float], noise: bool = True) -> Forecast:
        """Losses of a new run."""
        return self._mixed([p.new_losses(config, epochs, noise) for p in self.posteriors])

    def visitor(self, config: Array, losses: Sequence[float], epochs: Sequence[float]) -> Forecast:
        """Later losses of a run that is not among the curves."""
        z = self.transform.to_model(np.array(losses))
        seen = np.arange(1.0, len(z) + 1.0)
        return self._mixed([p.visitor(config, seen, z, epochs) for p in self.posteriors])

    def points(self, points: Sequence[tuple[int | Array, float]], noise: bool = True) -> Forecast:
        """One loss each of several old runs (by index) and new configurations."""
        predictions = []
        for p in self.posteriors:
            parts = [
                p.points_of_run(int(who), [epoch], noise)
                if isinstance(who, int | np.integer)
                else p.points_of_config(who, [epoch], noise)
                for who, epoch in points
            ]
            predictions.append(p.joint(Points.together(parts)))
        return self._mixed(predictions)

    def _mixed(self, predictions: Sequence[Prediction]) -> Forecast:
        weights = [w * p.scales.weights for w, p in zip(self.weights, predictions, strict=True)]
        components = predictions[0].scales.weights.shape[0]
        return Forecast(
            self.transform,
            np.concatenate(weights),
            np.concatenate([np.repeat(p.mean[None], components, axis=0) for p in predictions]),
            np.sqrt(np.concatenate([p.component_variances for p in predictions])),
            np.concatenate([p.scales.freedoms for p in predictions]),
        )


def _continued(curves: Curves, losses: Sequence[tuple[int | Array, Array]]) -> tuple[Curves, list[int]]:
    """Curves that go on with these losses, of runs or of configurations put behind them, and whose they are there."""
    configs, runs = list(curves.configs), []
    observed = [curves.observed(run) for run in range(len(curves))]
    for who, more in losses:
        ahead = np.arange(1.0, len(more) + 1.0)
        if isinstance(who, np.ndarray):
            runs.append(len(configs))
            configs.append(who)
            observed.append((ahead, more))
        else:
            runs.append(who)
            seen, y = observed[who]
            observed[who] = np.append(seen, curves.last_epochs[who] + ahead), np.append(y, more)
    thinned = any(p.last_epochs.any() for p in curves.patterns)
    epochs, values = [t for t, _ in observed], [y for _, y in observed]
    return Curves.of(np.array(configs), values, epochs, DENSE_EPOCHS if thinned else None), runs
