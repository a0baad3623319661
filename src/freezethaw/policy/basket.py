"""The basket (section 5.2): the old runs and new configurations with the highest expected improvement at the asymptote.

Improvements are averaged over the samples. Where there are many runs or candidates, one sample tells which are worth
looking at under all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.correlation import correlation
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.outlook import glance, look
from freezethaw.model.posterior import Posterior
from freezethaw.policy.choice import SCREENED_OLD, Look, Options
from freezethaw.policy.improvement import expected_improvement

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

OLD, NEW = 10, 3  # sizes of the basket (section 5.2)
COMPARED_OLD, COMPARED_NEW = 30, 10  # of more than this, how many are compared under all samples
NEIGHBOUR = 0.95  # new configurations more correlated than this are one maximum, not two


@dataclass(frozen=True)
class Basket:
    """Members of one comparison: old runs by index among the curves, then candidates by index."""

    old: IntArray
    new: IntArray
    choosable: BoolArray  # for each member, old first
    improvements: Array  # of each member, at the asymptote, in model units


def fill(forecaster: Forecaster, options: Options, rng: np.random.Generator) -> Basket:
    """Those with the highest expected improvement. One that may be chosen is always among the old runs."""
    screen = forecaster.posteriors[int(rng.choice(len(forecaster.posteriors), p=forecaster.weights))]
    runs, candidates = worth_comparing(screen, options)
    total = np.zeros(len(runs) + len(candidates))
    for posterior, weight in zip(forecaster.posteriors, forecaster.weights, strict=True):
        total += weight * improvements(posterior, runs, options.candidates[candidates])
    of_old, of_new = np.split(total, [len(runs)])
    old = best_with_a_choosable(of_old, np.isin(runs, options.runs), OLD)
    worth = of_new * options.worth_new[candidates]
    new = distinct_maxima(worth, screen, options.candidates[candidates], NEW)
    choosable = np.concatenate([np.isin(runs[old], options.runs), np.ones(len(new), dtype=bool)])
    members = np.concatenate([of_old[old], of_new[new]])
    return Basket(runs[old], candidates[new], choosable, members)


def worth_comparing(posterior: Posterior, options: Options) -> tuple[IntArray, IntArray]:
    """The most promising old runs and candidates under one sample; all of them where they are few."""
    runs, candidates = np.arange(len(posterior.curves)), np.arange(len(options.candidates))
    if len(runs) > SCREENED_OLD:
        hopes = improvements(posterior, runs, options.candidates[:0], glance)
        runs = runs[best_with_a_choosable(hopes, np.isin(runs, options.runs), SCREENED_OLD)]
    if len(runs) > COMPARED_OLD or len(candidates) > COMPARED_NEW:
        found = improvements(posterior, runs, options.candidates)
        of_old, of_new = np.split(found, [len(runs)])
        runs = runs[best_with_a_choosable(of_old, np.isin(runs, options.runs), COMPARED_OLD)]
        candidates = distinct_maxima(of_new * options.worth_new, posterior, options.candidates, COMPARED_NEW)
    return runs, candidates


def improvements(posterior: Posterior, runs: IntArray, candidates: Array, look: Look = look) -> Array:
    """The improvement on the lowest mean asymptote of these runs, expected of them and of the candidates."""
    asymptotes = look(posterior, runs, candidates, np.array([posterior.specification.horizon]))
    incumbent = float(asymptotes.mean[: len(runs)].min())
    found = expected_improvement(incumbent, asymptotes.mean[None], asymptotes.deviations)
    return np.asarray((asymptotes.weights * found).sum(axis=0)[:, 0])


def best_with_a_choosable(score: Array, choosable: BoolArray, count: int) -> IntArray:
    """Places of the highest scores, best first; the last gives way where none of them could be chosen."""
    places = np.argsort(-score, kind="stable")[:count]
    if choosable.any() and not choosable[places].any():
        places[-1] = np.where(choosable, score, -np.inf).argmax()
    return places


def distinct_maxima(score: Array, posterior: Posterior, candidates: Array, count: int) -> IntArray:
    """The best candidates that are no neighbours of one another."""
    inputs = posterior.new_inputs(candidates)
    free = np.ones(len(score), dtype=bool)
    found: list[int] = []
    while len(found) < count and free.any():
        best = int(np.where(free, score, -np.inf).argmax())
        found.append(best)
        free &= correlation(inputs, inputs[best : best + 1])[:, 0] < NEIGHBOUR
        free[best] = False
    return np.array(found, dtype=np.int64)
