"""What to train before deciding again. Not in the paper.

Deciding takes time. If a decision costs as much as several epochs, it hands out more than one: more epochs for the
winner, and further entries of its basket, which are trained without deciding again. The costs are measured: they are
part of the state, so a replay plans the same. Where an epoch takes ten times as long as a decision, nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from statistics import median, median_low

import numpy as np
from numpy.typing import NDArray

from freezethaw.decide.configurations import Candidates
from freezethaw.model.correlation import correlation
from freezethaw.model.forecaster import Forecaster
from freezethaw.policy.acquisition import ScoredEntry
from freezethaw.records import Prices, StudyState

Array = NDArray[np.float64]

SHARE = 0.1  # of the time that may be spent deciding
LARGEST_PART = 0.02  # of the epochs that are left in the budget may be planned by one decision, or paid for switching
RECENT_RUNS = 32  # whose seconds are taken into account
COMPARABLE = 0.5  # entries with this share of the winner's score are trained along with it
FIRST_EPOCHS = 3  # a plan trains a run to three times its epochs at most, a new one to this epoch


def costs_in_epochs(prices: Prices | None, state: StudyState, left: float) -> Prices:
    """What deciding and switching runs cost, in epochs: measured, or as the user says. `left` epochs may be spent.

    If a budget counts epochs, then few epochs are worth much deciding: no measured cost exceeds a part of what is left,
    so that small studies are as they would be if deciding cost nothing.
    """
    recent = [run for run in state.runs[-RECENT_RUNS:] if not run.added]
    timed = [[s for s in run.seconds if s > 0] for run in recent]
    first = [seconds[0] for seconds in timed if seconds]
    later = [s for seconds in timed for s in seconds[1:]]
    epoch = median(later or first) if first else 1.0
    if prices is None:
        if not first:
            return Prices()
        # the first epoch includes what comes before it; runs are compared with themselves, since they differ in cost
        beyond = [seconds[0] - median_low(seconds[1:]) for seconds in timed if len(seconds) > 1]
        start = max(median(beyond), 0.0) if beyond else 0.0
        prices = Prices(start, state.overheads.saving, 0.0, state.overheads.deciding)
        most = LARGEST_PART * left if LARGEST_PART * left >= 1 else 0.0
        return Prices(*(min(cost / epoch, most) for cost in astuple(prices)))
    return Prices(*(cost / epoch for cost in astuple(prices)))


def epochs_per_decision(deciding: float, left: float) -> int:
    """How many epochs one decision should hand out if it costs as much as `deciding` epochs."""
    return max(1, round(min(deciding * (1 / SHARE - 1), LARGEST_PART * left)))


def share_out(
    basket: Sequence[ScoredEntry],
    epochs: int,
    done: Sequence[int],
    max_epochs: int,
    similarity: Array,
) -> list[tuple[int, int]]:
    """Which entries of the basket (best first) to train, and by how many epochs each: about `epochs` in all.

    The winner comes first; then entries with comparable scores, and others only if a plan of these would be too short.
    `done` are the trained epochs of the entries. `similarity` is the correlation between all entries that are new: a
    new configuration counts less the more similar it is to one that was chosen.
    """
    limits = [min(max(FIRST_EPOCHS, 2 * n), max_epochs - n) for n in done]
    chosen = [0]
    rest = list(range(1, len(basket)))
    while rest and len(chosen) < epochs:
        scores = [basket[i].score * (1.0 - max(similarity[i, j] for j in chosen)) for i in rest]
        best = int(np.argmax(scores))
        planned = sum(limits[i] for i in chosen)
        if not scores[best] > 0 or (scores[best] < COMPARABLE * basket[0].score and planned >= epochs):
            break
        chosen.append(rest.pop(best))
    shares = dict.fromkeys(chosen, 0)
    left = epochs
    for count, i in enumerate(sorted(chosen, key=lambda i: limits[i])):  # equal shares within the limits
        share = -(-left // (len(chosen) - count))
        shares[i] = max(1, min(share, limits[i], max(left, 1)), min(basket[i].granted, max_epochs - done[i]))
        left -= shares[i]
    return [(i, shares[i]) for i in chosen]


def similarities(basket: Sequence[ScoredEntry], candidates: Candidates, forecaster: Forecaster) -> Array:
    """(B, B) correlation between the new configurations of a basket, averaged over samples; zero for old runs."""
    found = np.zeros((len(basket), len(basket)))
    new = np.array([i for i, entry in enumerate(basket) if entry.candidate is not None], dtype=np.int64)
    if len(new):
        indices = np.array([entry.candidate for entry in basket if entry.candidate is not None], dtype=np.int64)
        inputs = forecaster.posterior.new_inputs(candidates.at(indices))
        found[np.ix_(new, new)] = np.tensordot(forecaster.weights, correlation(inputs, inputs), axes=1)
    return found
