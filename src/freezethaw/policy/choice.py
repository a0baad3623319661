"""One decision: of all runs that may be advanced and all configurations that may be started, which comes next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.forecaster import Forecaster
from freezethaw.model.outlook import Outlook, glance, look
from freezethaw.model.posterior import Posterior
from freezethaw.policy.rate import Gains, epochs_to_grant, gains, rates
from freezethaw.policy.surprise import surprises

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Look = Callable[[Posterior, IntArray, Array, Array], Outlook]

OLD_BASKET, NEW_BASKET = 15, 15  # how many of each are compared under all samples
SCREENED_OLD, SCREENED_NEW = 100, 50  # of more runs than this, how many of each are compared under one sample
CONTENDERS = 8  # runs among which the best loss is looked for


@dataclass(frozen=True)
class Options:
    """What may be decided: old runs by their index among the curves, and new configurations by their features."""

    runs: IntArray  # that may be advanced
    candidates: Array  # (C, D)
    max_epochs: int
    worth_old: Array  # (len(runs),) chance not to diverge, over the relative price of an epoch
    worth_new: Array  # (C,)
    price_old: Array  # (len(runs),) of taking a run up, in epochs
    price_new: Array  # (C,)
    left: float = np.inf  # epochs that the whole study may still spend


@dataclass(frozen=True)
class Entry:
    """One member of the basket."""

    run: int | None  # index among the curves
    candidate: int | None  # index among the candidates
    score: float
    to_epoch: int  # where the improvement for each epoch is largest
    chance: float  # of beating the best there
    improvement: float  # expected there, in model units
    granted: int = 1  # epochs to train before asking again


@dataclass(frozen=True)
class Choice:
    """The basket, best first."""

    basket: tuple[Entry, ...]
    bests: tuple[float, ...]  # in model units, one for each sample
    measure: Literal["improvement", "entropy"] = "improvement"  # what an epoch gains, or what it tells

    @property
    def winner(self) -> Entry:
        """What to do."""
        return self.basket[0]


def decision_epochs(max_epochs: int, done: IntArray) -> Array:
    """Epochs at which forecasts are compared: all at first, geometric later, and each run's next one."""
    grid = [1.0]
    while grid[-1] < max_epochs:
        grid.append(min(max(grid[-1] + 1, np.ceil(grid[-1] * 1.1)), max_epochs))
    following = np.minimum(done + 1, max_epochs)
    return np.unique(np.concatenate([grid, following]).astype(np.float64))


def choose(forecaster: Forecaster, options: Options, rng: np.random.Generator) -> Choice:
    """The run or configuration with the largest improvement rate."""
    posteriors = forecaster.posteriors
    screen = int(rng.choice(len(posteriors), p=forecaster.weights))
    runs, candidates = np.arange(len(options.runs)), np.arange(len(options.candidates))
    if len(runs) > SCREENED_OLD:  # a look at everyone is dear then, a glance is not
        hopes = _compare(posteriors[screen : screen + 1], np.ones(1), options, runs, candidates, glance).scores
        candidates = np.sort(np.argsort(-hopes[len(runs) :])[:SCREENED_NEW])
        runs = np.sort(np.argsort(-hopes[: len(runs)])[:SCREENED_OLD])
    if len(runs) > OLD_BASKET or len(candidates) > NEW_BASKET:  # the most promising of each kind under one sample
        scores = _compare(posteriors[screen : screen + 1], np.ones(1), options, runs, candidates).scores
        candidates = candidates[np.argsort(-scores[len(runs) :])[:NEW_BASKET]]
        runs = runs[np.argsort(-scores[: len(runs)])[:OLD_BASKET]]
    found = _compare(posteriors, forecaster.weights, options, runs, candidates)
    members = [(int(run), None) for run in options.runs[runs]] + [(None, int(place)) for place in candidates]
    entries = [found.entry(p, run, candidate) for p, (run, candidate) in enumerate(members)]
    return Choice(tuple(sorted(entries, key=lambda e: -e.score)), found.bests)


@dataclass(frozen=True)
class _Comparison:
    """Old runs and new configurations side by side."""

    bests: tuple[float, ...]
    gains: Gains
    epochs: Array
    done: Array  # (P,)
    price: Array  # (P,)
    scores: Array  # (P,)
    at: IntArray  # (P,) which of the epochs is the goal

    def entry(self, p: int, run: int | None, candidate: int | None) -> Entry:
        i = self.at[p]
        return Entry(
            run,
            candidate,
            float(self.scores[p]),
            int(self.epochs[i]),
            float(self.gains.chance[p, i]),
            float(self.gains.improvement[p, i]),
            epochs_to_grant(float(self.price[p]), int(self.epochs[i] - self.done[p])),
        )


def _compare(
    posteriors: Sequence[Posterior], weights: Array, options: Options, old: IntArray, new: IntArray, look: Look = look
) -> _Comparison:
    """Compare places `old` of the runs and `new` of the candidates under these samples."""
    lengths = posteriors[0].curves.last_epochs
    epochs = decision_epochs(options.max_epochs, lengths[options.runs].astype(np.int64))
    leaders, runs = contenders(posteriors[0]), options.runs[old]
    outlooks = [look(p, np.concatenate([leaders, runs]), options.candidates[new], epochs) for p in posteriors]
    bests = [best_expected(o, epochs, lengths[leaders]) for o in outlooks]
    outlooks = [o.without(len(leaders)) for o in outlooks]
    done = np.concatenate([lengths[runs], np.zeros(len(new))])
    price = np.concatenate([options.price_old[old], options.price_new[new]])
    surprise = surprises(lengths, likeness_to_others(outlooks, weights, runs), done, epochs, options.max_epochs)
    found = gains(outlooks, bests, weights, surprise)
    rate, at = rates(found, epochs, done, price, options.left)
    scores = rate * np.concatenate([options.worth_old[old], options.worth_new[new]])
    return _Comparison(tuple(bests), found, epochs, done, price, scores, at)


def likeness_to_others(outlooks: Sequence[Outlook], weights: Array, runs: IntArray) -> Array:
    """(P, N) likeness of these runs, then of the candidates, to all other runs, averaged over the samples."""
    alike = np.average([o.likeness for o in outlooks], axis=0, weights=weights)
    alike[np.arange(len(runs)), runs] = 0.0
    return np.asarray(alike)


def contenders(posterior: Posterior) -> IntArray:
    """Runs with the lowest losses seen."""
    lowest = np.full(len(posterior.curves), np.inf)
    for pattern in posterior.curves.patterns:
        seen = np.arange(len(pattern.epochs))[:, None] < pattern.lengths[None, :]
        lowest[pattern.runs] = np.where(seen, pattern.losses, np.inf).min(axis=0)
        own = pattern.last_epochs > 0
        lowest[pattern.runs[own]] = np.minimum(lowest[pattern.runs[own]], pattern.last_losses[own])
    order = np.argsort(lowest)[:CONTENDERS]
    return np.asarray(order[np.isfinite(lowest[order])], dtype=np.int64)


def best_so_far(posterior: Posterior, max_epochs: int) -> float:
    """The best expected loss of a posterior of which nothing else is asked."""
    leaders = contenders(posterior)
    done = posterior.curves.last_epochs[leaders]
    epochs = decision_epochs(max_epochs, done.astype(np.int64))
    epochs = epochs[epochs <= done.max()]
    return best_expected(look(posterior, leaders, posterior.curves.configs[:0], epochs), epochs, done)


def best_expected(outlook: Outlook, epochs: Array, done: Array) -> float:
    """The lowest posterior mean of the noise-free loss over recorded epochs: the lowest raw loss is biased by noise.

    The first runs of the outlook are the contenders, trained up to the epochs `done`.
    """
    recorded = epochs[None, :] <= done[:, None]
    return float(np.where(recorded, outlook.mean[: len(done)], np.inf).min())
