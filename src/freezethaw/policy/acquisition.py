"""What the policies share: the options of a decision, its scored result, expected improvement and the incumbent.

Paper: section 2.2 (expected improvement, equation 3). The grid of epochs, the choice at random and the costs in
`Options` belong to this package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from freezethaw.model.posterior import Posterior
from freezethaw.model.predictions import predict
from freezethaw.policy.depth import Depth

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

SQRT_2PI = np.sqrt(2 * np.pi)
LEADING_RUNS = 8  # the incumbent is searched among this many runs with the lowest measured losses


class Near(Protocol):
    """Further configurations that may be started, near some of the candidates."""

    @property
    def numbers(self) -> IntArray:
        """(n,) numbers after those of the candidates."""

    @property
    def centres(self) -> IntArray:
        """(n,) the candidate that each is near to."""

    @property
    def features(self) -> Array:
        """(n, D)."""


@dataclass(frozen=True)
class Options:
    """What may be decided: old runs by their index among the curves, new configurations by their features.

    Scores are multiplied by the score factors: the probability of not diverging, divided by the relative cost of an
    epoch. The switch costs are those of leaving the current run for this one, in epochs.
    """

    runs: IntArray  # (R,) runs that may be advanced
    candidates: Array  # (C, D)
    max_epochs: int
    score_factor_old: Array  # (R,)
    score_factor_new: Array  # (C,)
    switch_cost_old: Array  # (R,)
    switch_cost_new: Array  # (C,)
    epochs_left: float = np.inf  # epochs that the whole study may still spend
    depth: Depth = field(default_factory=Depth)
    neighbours: Callable[[IntArray], Near] | None = None  # configurations near these candidates, if there are any


@dataclass(frozen=True)
class ScoredEntry:
    """One entry of the basket with its score."""

    run: int | None  # index among the curves
    candidate: int | None  # index among the candidates, or number of a neighbour
    score: float
    to_epoch: int  # the horizon with the largest score
    chance: float  # probability of beating the incumbent there (improvement rate), or P_min (entropy search)
    improvement: float  # expected improvement there, in model units
    granted: int = 1  # epochs to train before the next decision


@dataclass(frozen=True)
class Choice:
    """The scored basket, best first."""

    basket: tuple[ScoredEntry, ...]
    incumbents: tuple[float, ...]  # in model units, one for each hyperparameter sample
    measure: Literal["improvement", "entropy"] = "improvement"  # what the scores measure
    deepens: int | None = None  # the winner is chosen because too few runs were trained to this epoch

    @property
    def winner(self) -> ScoredEntry:
        """The entry with the highest score."""
        return self.basket[0]


def improvement_and_chance(best: float | Array, mean: Array, deviation: Array) -> tuple[Array, Array]:
    """E max(best - y, 0) (equation 3) and P(y < best) of a normal y, elementwise."""
    z = (best - mean) / deviation
    chance = ndtr(z)
    return np.asarray(deviation * (z * chance + np.exp(-0.5 * z * z) / SQRT_2PI)), np.asarray(chance)


def expected_improvement(best: float | Array, mean: Array, deviation: Array) -> Array:
    """E max(best - y, 0) of a normal y (equation 3), elementwise."""
    return improvement_and_chance(best, mean, deviation)[0]


def decision_epochs(max_epochs: int, further: Array, growth: float = 1.1) -> Array:
    """Epochs at which predictions are compared: all at first, geometric later, the last one, and `further` ones."""
    grid = [1.0]
    while grid[-1] < max_epochs:
        grid.append(min(max(grid[-1] + 1, np.ceil(grid[-1] * growth)), max_epochs))
    return np.unique(np.concatenate([grid, np.minimum(further, max_epochs)]))


def leading_runs(posterior: Posterior) -> IntArray:
    """The runs with the lowest measured losses, at most LEADING_RUNS of them."""
    lowest = np.full(len(posterior.curves), np.inf)
    for pattern in posterior.curves.patterns:
        seen = np.arange(len(pattern.epochs))[None, :] < pattern.lengths[:, None]
        lowest[pattern.runs] = np.where(seen, pattern.losses, np.inf).min(axis=1)
        own = pattern.last_epochs > 0
        lowest[pattern.runs[own]] = np.minimum(lowest[pattern.runs[own]], pattern.last_losses[own])
    order = np.argsort(lowest)[:LEADING_RUNS]
    return np.asarray(order[np.isfinite(lowest[order])], dtype=np.int64)


def incumbents_of(mean: Array, epochs: Array, done: Array) -> Array:
    """(...) the incumbent of each sample: the lowest posterior mean of the noise-free loss over recorded epochs.

    The lowest measured loss would be biased by noise. `mean` (..., L, E) are the predicted losses of the leading runs,
    which are trained up to the epochs `done`.
    """
    recorded = epochs[None, :] <= done[:, None]
    return np.asarray(np.where(recorded, mean, np.inf).min(axis=(-2, -1)))


def incumbents(posterior: Posterior, max_epochs: int) -> Array:
    """(...) the incumbents of a posterior, where no other predictions are needed."""
    leaders = leading_runs(posterior)
    done = posterior.curves.last_epochs[leaders]
    epochs = decision_epochs(max_epochs, done)
    epochs = epochs[epochs <= done.max()]
    return incumbents_of(predict(posterior, leaders, posterior.curves.configs[:0], epochs).mean, epochs, done)


def choose_at_random(frozen: Sequence[int], may_start: bool, rng: np.random.Generator) -> int | None:
    """A run to thaw, or None to start a new one: the baseline. At least one of the two must be possible."""
    if not frozen or (may_start and rng.random() < 0.5):
        return None
    return frozen[int(rng.integers(len(frozen)))]
