"""What to train before deciding again. Not in the paper.

Deciding takes time. If a decision costs as much as several epochs, it hands out more than one: more epochs for the
winner, and further entries of its basket, which are trained without deciding again. The costs are measured: they are
part of the state, so a replay plans the same. Where an epoch takes ten times as long as a decision, nothing changes.
"""

from __future__ import annotations

import math
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
FIRST_EPOCHS = 3  # a plan trains a run to three times its epochs at most, a new one to this epoch at least
MOST_RUNS = 600  # the model uses at most this many runs,
FEWEST_RUNS = 50  # however short epochs are
RUNS_AT_10MS = 100  # where an epoch takes 10 ms; the number grows with the square root of that time


def costs_in_epochs(prices: Prices | None, state: StudyState, left: float) -> Prices:
    """What deciding and switching runs cost, in epochs: measured, or as the user says. `left` epochs may be spent.

    If a budget counts epochs, then few epochs are worth much deciding: no measured cost exceeds a part of what is left,
    so that small studies are as they would be if deciding cost nothing.
    """
    timed = recent_seconds(state)
    epoch = epoch_seconds(state) or 1.0
    if prices is None:
        if not timed:
            return Prices()
        # the first epoch includes what comes before it; runs are compared with themselves, since they differ in cost
        beyond = [seconds[0] - median_low(seconds[1:]) for seconds in timed if len(seconds) > 1]
        start = max(median(beyond), 0.0) if beyond else 0.0
        prices = Prices(start, state.overheads.saving, 0.0, state.overheads.deciding)
        most = LARGEST_PART * left if LARGEST_PART * left >= 1 else 0.0
        return Prices(*(min(cost / epoch, most) for cost in astuple(prices)))
    return Prices(*(cost / epoch for cost in astuple(prices)))


def recent_seconds(state: StudyState) -> list[list[float]]:
    """What the epochs of each recent run took; runs without measured times are left out."""
    recent = [[s for s in run.seconds if s > 0] for run in state.runs[-RECENT_RUNS:] if not run.added]
    return [seconds for seconds in recent if seconds]


def epoch_seconds(state: StudyState) -> float:
    """What an epoch takes (median of recent runs, if possible without first epochs); zero if that is not known."""
    timed = recent_seconds(state)
    later = [s for seconds in timed for s in seconds[1:]]
    return median(later or [seconds[0] for seconds in timed]) if timed else 0.0


def most_runs(prices: Prices | None, state: StudyState) -> int:
    """How many runs the model uses: deciding takes longer the more it uses, and that costs much where epochs are short.

    If the user says the prices, the number does not depend on measured times: a search repeats exactly.
    """
    seconds = epoch_seconds(state) if prices is None else 0.0
    if seconds == 0.0:
        return MOST_RUNS
    return min(max(int(RUNS_AT_10MS * (seconds / 0.01) ** 0.5), FEWEST_RUNS), MOST_RUNS)


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

    The winner comes first, then the highest score that is left, until the epochs are handed out. An entry is trained
    to the epoch at which its score is highest, within limits: a new one by the square root of the epochs, so that a
    large plan is spread over runs and over their epochs alike. `done` are the trained epochs of the entries.
    `similarity` is the correlation between all entries that are new: a new configuration counts less the more similar
    it is to one that was chosen.
    """
    shares: list[tuple[int, int]] = []
    rest, left = list(range(len(basket))), epochs
    while rest and left > 0:
        scores = [basket[i].score * (1.0 - max((similarity[i, j] for j, _ in shares), default=0.0)) for i in rest]
        best = int(np.argmax(scores)) if shares else 0
        if shares and not scores[best] > 0:
            break
        i = rest.pop(best)
        wanted = min(max(FIRST_EPOCHS, round(math.sqrt(epochs)), 2 * done[i]), basket[i].to_epoch - done[i], left)
        share = max(min(max(wanted, basket[i].granted), max_epochs - done[i]), 1)
        shares.append((i, share))
        left -= share
    return shares


def similarities(basket: Sequence[ScoredEntry], candidates: Candidates, forecaster: Forecaster) -> Array:
    """(B, B) correlation between the new configurations of a basket, averaged over samples; zero for old runs."""
    found = np.zeros((len(basket), len(basket)))
    new = np.array([i for i, entry in enumerate(basket) if entry.candidate is not None], dtype=np.int64)
    if len(new):
        indices = np.array([entry.candidate for entry in basket if entry.candidate is not None], dtype=np.int64)
        inputs = forecaster.posterior.new_inputs(candidates.at(indices))
        found[np.ix_(new, new)] = np.tensordot(forecaster.weights, correlation(inputs, inputs), axes=1)
    return found
