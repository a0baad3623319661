"""One decision: of all runs that may be advanced and all configurations that may be started, which comes next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.belief import Forecaster
from freezethaw.model.outlook import Outlook, extend_old_runs, of_new_runs, of_old_runs
from freezethaw.model.posterior import Posterior
from freezethaw.model.summaries import Extensions
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
    done = forecaster.posteriors[0].curves.last_epochs
    epochs = decision_epochs(options.max_epochs, done[options.runs].astype(np.int64))
    extensions = [extend_old_runs(p, epochs) for p in forecaster.posteriors]
    bests = [best_expected(p, e, epochs, contenders(p)) for p, e in zip(forecaster.posteriors, extensions, strict=True)]
    screen = int(rng.choice(len(bests), p=forecaster.weights))
    old, new = _screened(forecaster.posteriors[screen], extensions[screen], bests[screen], epochs, options)
    entries = _old_entries(forecaster, extensions, bests, epochs, options, old)
    entries += _new_entries(forecaster, bests, epochs, options, new)
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


def best_expected(posterior: Posterior, extensions: Extensions, epochs: Array, runs: IntArray) -> float:
    """The lowest posterior mean of the noise-free loss over recorded epochs: the lowest raw loss is biased by noise."""
    means, _ = posterior.coefficients(posterior.old_inputs(runs))
    smooth = extensions.offset[runs] + np.einsum("pej,pj->pe", extensions.slope[runs], means)
    recorded = epochs[None, :] <= posterior.curves.last_epochs[runs][:, None]
    return float(np.where(recorded, smooth, np.inf).min())


def _screened(
    posterior: Posterior, extensions: Extensions, best: float, epochs: Array, options: Options
) -> tuple[IntArray, IntArray]:
    """The most promising of each kind under one sample: places in `runs` and in `candidates`."""

    def promising(look: Callable[[], Outlook], done: Array, worth: Array, size: int) -> IntArray:
        if len(worth) <= size:
            return np.arange(len(worth))
        rate, _ = rates(gains([look()], [best], np.ones(1)), epochs, done, options.left)
        return np.argsort(-rate * worth)[:size]

    done = posterior.curves.last_epochs[options.runs]
    old = promising(
        lambda: of_old_runs(posterior, options.runs, epochs, extensions), done, options.worth_old, OLD_BASKET
    )
    none = np.zeros(len(options.candidates))
    new = promising(lambda: of_new_runs(posterior, options.candidates, epochs), none, options.worth_new, NEW_BASKET)
    return old, new


def _old_entries(
    forecaster: Forecaster,
    extensions: Sequence[Extensions],
    bests: Sequence[float],
    epochs: Array,
    options: Options,
    places: IntArray,
) -> list[Entry]:
    if not len(places):
        return []
    runs = options.runs[places]
    outlooks = [of_old_runs(p, runs, epochs, e) for p, e in zip(forecaster.posteriors, extensions, strict=True)]
    done = forecaster.posteriors[0].curves.last_epochs[runs]
    members = [(int(run), None) for run in runs]
    return _entries(members, outlooks, bests, forecaster, epochs, done, options.worth_old[places], options.left)


def _new_entries(
    forecaster: Forecaster, bests: Sequence[float], epochs: Array, options: Options, places: IntArray
) -> list[Entry]:
    if not len(places):
        return []
    outlooks = [of_new_runs(p, options.candidates[places], epochs) for p in forecaster.posteriors]
    members = [(None, int(place)) for place in places]
    none = np.zeros(len(places))
    return _entries(members, outlooks, bests, forecaster, epochs, none, options.worth_new[places], options.left)


def _entries(
    members: Sequence[tuple[int | None, int | None]],
    outlooks: Sequence[Outlook],
    bests: Sequence[float],
    forecaster: Forecaster,
    epochs: Array,
    done: Array,
    worth: Array,
    left: float,
) -> list[Entry]:
    found = gains(outlooks, bests, forecaster.weights)
    rate, at = rates(found, epochs, done, left)
    return [
        Entry(
            run,
            candidate,
            float(rate[p] * worth[p]),
            int(epochs[i]),
            float(found.chance[p, i]),
            float(found.improvement[p, i]),
        )
        for p, ((run, candidate), i) in enumerate(zip(members, at, strict=True))
    ]
