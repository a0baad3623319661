"""The improvement rate: expected improvement per epoch, maximised over horizons. The default policy; not in the paper.

Old runs and new configurations are compared under all hyperparameter samples. If there are many, a cheap upper bound
of the score under a few samples selects those that are compared. Then the best new configurations are compared with
configurations near them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.forecaster import Forecaster
from freezethaw.model.posterior import Posterior
from freezethaw.model.predictions import Predict, Predictions, predict, predict_upper_bound
from freezethaw.policy.acquisition import (
    Choice,
    Near,
    Options,
    ScoredEntry,
    decision_epochs,
    improvement_and_chance,
    incumbents_of,
    leading_runs,
)
from freezethaw.policy.costs import epochs_to_grant
from freezethaw.policy.depth import DueDoubling, due_doubling
from freezethaw.policy.surprise import SPREAD, surprises

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

OLD_BASKET, NEW_BASKET = 20, 16  # how many of each are compared under all samples
SCREENING_SAMPLES = 2  # whose upper bounds select them
REFINED = 4  # new configurations near which others are compared too
DEEPENED = 4  # runs that may be trained for depth are compared in any case
KEPT = 30  # entries of the basket that are kept with the decision, best first
GROWTH, SCREENING_GROWTH = 1.25, 1.6  # ratio of successive horizons; the next epoch of each run is added to the former


def choose(forecaster: Forecaster, options: Options, rng: np.random.Generator) -> Choice:
    """Score the basket; the run or configuration with the largest improvement rate comes first."""
    runs, candidates = np.arange(len(options.runs)), np.arange(len(options.candidates))
    lengths = forecaster.posterior.curves.last_epochs
    due = due_doubling(lengths, options.runs, options.max_epochs, options.depth.share)
    if due is not None and options.depth.blind:
        due = due.drawn(lengths, rng)
    if len(runs) > OLD_BASKET or len(candidates) > NEW_BASKET:
        some = draw_samples(forecaster, SCREENING_SAMPLES, rng)
        equal = np.full(len(some), 1.0 / len(some))
        few = forecaster.posterior.sample(some)
        bounds = _compare(few, equal, options, runs, candidates, SCREENING_GROWTH, predict_upper_bound)
        candidates = np.argsort(-bounds.scores[len(runs) :])[:NEW_BASKET]
        by_score, for_depth = bounds.scores[: len(runs)], bounds.scores_for_depth(due, options)
        runs = np.union1d(np.argsort(-by_score)[:OLD_BASKET], np.argsort(-for_depth)[: DEEPENED if due else 0])
    found = _compare(forecaster.posterior, forecaster.weights, options, runs, candidates, GROWTH, predict)
    members = [(int(run), None) for run in options.runs[runs]] + [(None, int(index)) for index in candidates]
    scored = [(score, found, p, *members[p]) for p, score in enumerate(found.scores.tolist())]
    if options.neighbours is not None and len(candidates):
        near = options.neighbours(candidates[np.argsort(-found.scores[len(runs) :])[:REFINED]])
        if len(near.numbers):
            around = _compare_near(forecaster, options, near, found.incumbents)
            scored += [(score, around, p, None, int(near.numbers[p])) for p, score in enumerate(around.scores.tolist())]
    best = sorted(scored, key=lambda each: -each[0])[:KEPT]
    for_depth, deepens = found.scores_for_depth(due, options), None
    if due is not None and np.isfinite(for_depth).any():
        first = scored[int(for_depth.argmax())]
        best, deepens = [first, *(each for each in best if each is not first)][:KEPT], due.end
    entries = tuple(group.entry(p, run, candidate) for _, group, p, run, candidate in best)
    return Choice(entries, tuple(found.incumbents.tolist()), deepens=deepens)


def _compare_near(forecaster: Forecaster, options: Options, near: Near, incumbents: Array) -> _Comparison:
    """Compare configurations near the candidates, whose factors and costs are about those of the candidates."""
    around = replace(
        options,
        candidates=near.features,
        score_factor_new=options.score_factor_new[near.centres],
        switch_cost_new=options.switch_cost_new[near.centres],
    )
    none, every = np.empty(0, dtype=np.int64), np.arange(len(near.features))
    return _compare(forecaster.posterior, forecaster.weights, around, none, every, GROWTH, predict, incumbents)


def draw_samples(forecaster: Forecaster, count: int, rng: np.random.Generator) -> IntArray:
    """Indices of distinct hyperparameter samples, drawn by weight; fewer if fewer have a positive weight."""
    count = min(count, int(np.count_nonzero(forecaster.weights)))
    return rng.choice(len(forecaster.weights), size=count, replace=False, p=forecaster.weights)


@dataclass(frozen=True)
class _Comparison:
    """Scores of P old runs and new configurations."""

    runs: IntArray  # (R,) the old runs, as places among the options
    incumbents: Array  # (S,)
    gains: Gains
    epochs: Array  # (E,)
    done: Array  # (P,)
    switch_cost: Array  # (P,)
    scores: Array  # (P,)
    horizon: IntArray  # (P,) index of the epoch with the largest rate

    def scores_for_depth(self, due: DueDoubling | None, options: Options) -> Array:
        """(R,) scores of the old runs that are due, over horizons of at least the end of the doubling."""
        count = len(self.runs)
        if due is None:
            return np.full(count, -np.inf)
        rate, _ = rates(self.gains, self.epochs, self.done, self.switch_cost, options.epochs_left, due.end)
        scores = rate[:count] * options.score_factor_old[self.runs]
        return np.where(np.isin(options.runs[self.runs], due.runs), scores, -np.inf)

    def entry(self, p: int, run: int | None, candidate: int | None) -> ScoredEntry:
        i = self.horizon[p]
        return ScoredEntry(
            run,
            candidate,
            float(self.scores[p]),
            int(self.epochs[i]),
            float(self.gains.chance[p, i]),
            float(self.gains.improvement[p, i]),
            epochs_to_grant(float(self.switch_cost[p]), int(self.epochs[i] - self.done[p])),
        )


def _compare(
    posterior: Posterior,
    weights: Array,
    options: Options,
    old: IntArray,
    new: IntArray,
    growth: float,
    predict: Predict,
    incumbents: Array | None = None,
) -> _Comparison:
    """Compare the options `old` among the runs and `new` among the candidates, under S weighted samples.

    `incumbents` are those of the samples, if they are known.
    """
    lengths = posterior.curves.last_epochs
    leaders = leading_runs(posterior) if incumbents is None else np.empty(0, dtype=np.int64)
    runs = options.runs[old]
    nearest = lengths[leaders] if growth > GROWTH else np.concatenate([lengths[leaders], lengths[runs] + 1.0])
    epochs = decision_epochs(options.max_epochs, nearest, growth)
    others = np.setdiff1d(leaders, runs)  # leading runs are predicted too: one of them is the incumbent
    predictions = predict(posterior, np.concatenate([others, runs]), options.candidates[new], epochs)
    if incumbents is None:
        places = {run: place for place, run in enumerate([*others.tolist(), *runs.tolist()])}
        leading = predictions.mean[..., [places[run] for run in leaders.tolist()], :]
        incumbents = incumbents_of(leading, epochs, lengths[leaders])
    predictions = predictions.without(len(others))
    done = np.concatenate([lengths[runs], np.zeros(len(new))])
    switch_cost = np.concatenate([options.switch_cost_old[old], options.switch_cost_new[new]])
    correlation = correlation_with_others(predictions, weights, runs)
    surprise = surprises(lengths, correlation, done, epochs, options.max_epochs)
    found = gains(predictions, incumbents, weights, surprise)
    rate, horizon = rates(found, epochs, done, switch_cost, options.epochs_left)
    scores = rate * np.concatenate([options.score_factor_old[old], options.score_factor_new[new]])
    return _Comparison(old, incumbents, found, epochs, done, switch_cost, scores, horizon)


def correlation_with_others(predictions: Predictions, weights: Array, runs: IntArray) -> Array:
    """(P, N) correlation of these runs, then of the candidates, with all other runs, averaged over the samples."""
    average = np.tensordot(weights, predictions.correlation, axes=1)
    average[np.arange(len(runs)), runs] = 0.0
    return np.asarray(average)


@dataclass(frozen=True)
class Gains:
    """For P runs and E epochs: expected improvement and its probability, averaged over the samples."""

    forecast: Array  # (P, E) improvement under the predictive distributions
    surprising: Array  # (P, E) improvement by a surprise, which the predictions do not cover
    chance: Array  # (P, E) probability of either

    @property
    def improvement(self) -> Array:
        """(P, E) both parts."""
        return self.forecast + self.surprising


def gains(predictions: Predictions, incumbents: Array, weights: Array, surprise: Array | float = 0.0) -> Gains:
    """Average over samples (S,) and mixture components.

    With probability `surprise` (P, E) a loss has the standard deviation SPREAD about its predicted mean.
    """
    best, weight = incumbents[:, None, None], weights[:, None, None]  # (S, P, E)
    mean, spread = predictions.mean, np.full(predictions.mean.shape, SPREAD)
    share = weight * predictions.weights  # (C, S, P, E)
    improvement, chance = improvement_and_chance(best, mean, predictions.deviations)
    surprising, surprising_chance = improvement_and_chance(best, mean, spread)
    return Gains(
        (1.0 - surprise) * np.einsum("cspe,cspe->pe", share, improvement),
        surprise * np.einsum("s,spe->pe", weights, surprising),
        (1.0 - surprise) * np.einsum("cspe,cspe->pe", share, chance)
        + surprise * np.einsum("s,spe->pe", weights, surprising_chance),
    )


def rates(
    found: Gains,
    epochs: Array,
    done: Array,
    switch_cost: Array,
    epochs_left: float = np.inf,
    least: float = 0.0,
) -> tuple[Array, IntArray]:
    """(P,) the largest improvement per epoch over all horizons, and the index of its epoch among the E epochs.

    `done` (P,) epochs are trained already, `switch_cost` (P,) epochs are paid once. Horizons before the epoch `least`
    or further than `epochs_left` are excluded. A surprise cannot be foreseen, so its whole horizon is paid for.
    """
    ahead = epochs[None, :] - done[:, None]
    whole = np.maximum(ahead, 1.0)
    rate = found.forecast / (expected_cost(whole, found.chance) + switch_cost[:, None])
    rate += found.surprising / (whole + switch_cost[:, None])
    rate = np.where((ahead > 0) & (ahead <= epochs_left) & (epochs >= least), rate, -np.inf)
    at = rate.argmax(axis=1)
    return rate[np.arange(len(rate)), at], at


def expected_cost(ahead: Array, chance: Array) -> Array:
    """Expected number of epochs spent on a horizon of `ahead` epochs, as a run that disappoints is frozen early.

    A success costs all epochs. Otherwise the run is frozen on the way, at an unknown time scale: the geometric mean of
    1 and `ahead`.
    """
    return np.asarray(chance * ahead + (1 - chance) * np.sqrt(ahead))
