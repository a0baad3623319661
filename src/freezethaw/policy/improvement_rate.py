"""The improvement rate: expected improvement per epoch, maximised over horizons. The default policy; not in the paper.

Old runs and new configurations are compared under all hyperparameter samples. If there are many, two cheaper stages
select them under a single sample: an upper bound for more than SCREENED_OLD runs, then the score itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.forecaster import Forecaster
from freezethaw.model.posterior import Posterior
from freezethaw.model.predictions import Predict, Predictions, predict, predict_upper_bound
from freezethaw.policy.acquisition import (
    SCREENED_NEW,
    SCREENED_OLD,
    Choice,
    Options,
    ScoredEntry,
    decision_epochs,
    draw_sample,
    expected_improvement,
    incumbent_of,
    leading_runs,
    probability_of_improvement,
)
from freezethaw.policy.costs import epochs_to_grant
from freezethaw.policy.surprise import SPREAD, surprises

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

OLD_BASKET, NEW_BASKET = 15, 15  # how many of each are compared under all samples


def choose(forecaster: Forecaster, options: Options, rng: np.random.Generator) -> Choice:
    """Score the basket; the run or configuration with the largest improvement rate comes first."""
    posteriors, one = forecaster.posteriors, draw_sample(forecaster, rng)
    runs, candidates = np.arange(len(options.runs)), np.arange(len(options.candidates))
    if len(runs) > SCREENED_OLD:
        bounds = _compare(posteriors[one : one + 1], np.ones(1), options, runs, candidates, predict_upper_bound).scores
        candidates = np.sort(np.argsort(-bounds[len(runs) :])[:SCREENED_NEW])
        runs = np.sort(np.argsort(-bounds[: len(runs)])[:SCREENED_OLD])
    if len(runs) > OLD_BASKET or len(candidates) > NEW_BASKET:
        scores = _compare(posteriors[one : one + 1], np.ones(1), options, runs, candidates).scores
        candidates = candidates[np.argsort(-scores[len(runs) :])[:NEW_BASKET]]
        runs = runs[np.argsort(-scores[: len(runs)])[:OLD_BASKET]]
    found = _compare(posteriors, forecaster.weights, options, runs, candidates)
    members = [(int(run), None) for run in options.runs[runs]] + [(None, int(index)) for index in candidates]
    entries = [found.entry(p, run, candidate) for p, (run, candidate) in enumerate(members)]
    return Choice(tuple(sorted(entries, key=lambda e: -e.score)), found.incumbents)


@dataclass(frozen=True)
class _Comparison:
    """Scores of P old runs and new configurations."""

    incumbents: tuple[float, ...]
    gains: Gains
    epochs: Array  # (E,)
    done: Array  # (P,)
    switch_cost: Array  # (P,)
    scores: Array  # (P,)
    horizon: IntArray  # (P,) index of the epoch with the largest rate

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
    posteriors: Sequence[Posterior],
    weights: Array,
    options: Options,
    old: IntArray,
    new: IntArray,
    predict: Predict = predict,
) -> _Comparison:
    """Compare the options `old` among the runs and `new` among the candidates under these samples."""
    lengths = posteriors[0].curves.last_epochs
    epochs = decision_epochs(options.max_epochs, lengths[options.runs].astype(np.int64))
    leaders, runs = leading_runs(posteriors[0]), options.runs[old]
    predictions = [predict(p, np.concatenate([leaders, runs]), options.candidates[new], epochs) for p in posteriors]
    incumbents = [incumbent_of(p, epochs, lengths[leaders]) for p in predictions]
    predictions = [p.without(len(leaders)) for p in predictions]
    done = np.concatenate([lengths[runs], np.zeros(len(new))])
    switch_cost = np.concatenate([options.switch_cost_old[old], options.switch_cost_new[new]])
    correlation = correlation_with_others(predictions, weights, runs)
    surprise = surprises(lengths, correlation, done, epochs, options.max_epochs)
    found = gains(predictions, incumbents, weights, surprise)
    rate, horizon = rates(found, epochs, done, switch_cost, options.epochs_left)
    scores = rate * np.concatenate([options.score_factor_old[old], options.score_factor_new[new]])
    return _Comparison(tuple(incumbents), found, epochs, done, switch_cost, scores, horizon)


def correlation_with_others(predictions: Sequence[Predictions], weights: Array, runs: IntArray) -> Array:
    """(P, N) correlation of these runs, then of the candidates, with all other runs, averaged over the samples."""
    average = np.average([p.correlation for p in predictions], axis=0, weights=weights)
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


def gains(
    predictions: Sequence[Predictions], incumbents: Sequence[float], weights: Array, surprise: Array | float = 0.0
) -> Gains:
    """Average over samples and mixture components.

    With probability `surprise` (P, E) a loss has the standard deviation SPREAD about its predicted mean.
    """
    forecast, surprising, chance = (np.zeros_like(predictions[0].mean) for _ in range(3))
    for prediction, best, weight in zip(predictions, incumbents, weights, strict=True):
        for w, deviation in zip(prediction.weights, prediction.deviations, strict=True):
            share = weight * (1.0 - surprise) * w
            forecast += share * expected_improvement(best, prediction.mean, deviation)
            chance += share * probability_of_improvement(best, prediction.mean, deviation)
        spread = np.full_like(forecast, SPREAD)
        surprising += weight * surprise * expected_improvement(best, prediction.mean, spread)
        chance += weight * surprise * probability_of_improvement(best, prediction.mean, spread)
    return Gains(forecast, surprising, chance)


def rates(
    found: Gains, epochs: Array, done: Array, switch_cost: Array, epochs_left: float = np.inf
) -> tuple[Array, IntArray]:
    """(P,) the largest improvement per epoch over all horizons, and the index of its epoch among the E epochs.

    `done` (P,) epochs are trained already, `switch_cost` (P,) epochs are paid once, and horizons further than
    `epochs_left` are excluded. A surprise cannot be foreseen, so its whole horizon is paid for.
    """
    ahead = epochs[None, :] - done[:, None]
    whole = np.maximum(ahead, 1.0)
    rate = found.forecast / (expected_cost(whole, found.chance) + switch_cost[:, None])
    rate += found.surprising / (whole + switch_cost[:, None])
    rate = np.where((ahead > 0) & (ahead <= epochs_left), rate, -np.inf)
    at = rate.argmax(axis=1)
    return rate[np.arange(len(rate)), at], at


def expected_cost(ahead: Array, chance: Array) -> Array:
    """Expected number of epochs spent on a horizon of `ahead` epochs, as a run that disappoints is frozen early.

    A success costs all epochs. Otherwise the run is frozen on the way, at an unknown time scale: the geometric mean of
    1 and `ahead`.
    """
    return np.asarray(chance * ahead + (1 - chance) * np.sqrt(ahead))
