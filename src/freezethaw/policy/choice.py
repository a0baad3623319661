"""One decision: of all runs that may be advanced and all configurations that may be started, which comes next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.belief import Forecaster
from freezethaw.model.outlook import Outlook, look
from freezethaw.model.posterior import Posterior
from freezethaw.policy.rate import gains, rates

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

OLD_BASKET, NEW_BASKET = 15, 15  # how many of each are compared under all samples
CONTENDERS = 8  # runs among which the best loss is looked for


@dataclass(frozen=True)
class Options:
    """What may be decided: old runs by their index among the curves, and new configurations by their features."""

    runs: IntArray  # that may be advanced
    candidates: Array  # (C, D)
    max_epochs: int
    worth_old: Array  # (len(runs),) chance not to diverge, over the relative price of an epoch
    worth_new: Array  # (C,)
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


@dataclass(frozen=True)
class Choice:
    """The basket, best first."""

    basket: tuple[Entry, ...]
    bests: tuple[float, ...]  # in model units, one for each sample

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
    done = posteriors[0].curves.last_epochs
    epochs = decision_epochs(options.max_epochs, done[options.runs].astype(np.int64))
    leaders = contenders(posteriors[0])
    screen = posteriors[int(rng.choice(len(posteriors), p=forecaster.weights))]
    old, new = _screened(screen, leaders, epochs, options)
    runs, configs = options.runs[old], options.candidates[new]
    everyone = np.concatenate([leaders, runs])
    outlooks = [look(p, everyone, configs, epochs) for p in posteriors]
    bests = [best_expected(o, epochs, done[leaders]) for o in outlooks]
    found = gains([o.without(len(leaders)) for o in outlooks], bests, forecaster.weights)
    rate, at = rates(found, epochs, np.concatenate([done[runs], np.zeros(len(new))]), options.left)
    score = rate * np.concatenate([options.worth_old[old], options.worth_new[new]])
    members = [(int(run), None) for run in runs] + [(None, int(place)) for place in new]
    entries = [
        Entry(
            run, candidate, float(score[p]), int(epochs[i]), float(found.chance[p, i]), float(found.improvement[p, i])
        )
        for p, ((run, candidate), i) in enumerate(zip(members, at, strict=True))
    ]
    return Choice(tuple(sorted(entries, key=lambda e: -e.score)), tuple(bests))


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


def best_expected(outlook: Outlook, epochs: Array, done: Array) -> float:
    """The lowest posterior mean of the noise-free loss over recorded epochs: the lowest raw loss is biased by noise.

    The first runs of the outlook are the contenders, trained up to the epochs `done`.
    """
    recorded = epochs[None, :] <= done[:, None]
    return float(np.where(recorded, outlook.mean[: len(done)], np.inf).min())


def _screened(posterior: Posterior, leaders: IntArray, epochs: Array, options: Options) -> tuple[IntArray, IntArray]:
    """The most promising of each kind under one sample: places in `runs` and in `candidates`."""
    old, new = np.arange(len(options.runs)), np.arange(len(options.candidates))
    if len(old) <= OLD_BASKET and len(new) <= NEW_BASKET:
        return old, new
    outlook = look(posterior, np.concatenate([leaders, options.runs]), options.candidates, epochs)
    done = posterior.curves.last_epochs
    best = best_expected(outlook, epochs, done[leaders])
    spent = np.concatenate([done[options.runs], np.zeros(len(new))])
    rate, _ = rates(gains([outlook.without(len(leaders))], [best], np.ones(1)), epochs, spent, options.left)
    scores = rate * np.concatenate([options.worth_old, options.worth_new])
    return np.argsort(-scores[: len(old)])[:OLD_BASKET], np.argsort(-scores[len(old) :])[:NEW_BASKET]
