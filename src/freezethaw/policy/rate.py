"""The improvement rate: the largest, over how far one might train, of expected improvement for each epoch paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freezethaw.model.outlook import Outlook
from freezethaw.policy.improvement import expected_improvement, probability_of_improvement
from freezethaw.policy.surprise import SPREAD

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Gains:
    """For P runs and E epochs: expected improvement and its chance, averaged over the samples."""

    forecast: Array  # (P, E) improvement that the forecasts promise
    surprising: Array  # (P, E) improvement beyond all forecasts
    chance: Array  # (P, E) of either

    @property
    def improvement(self) -> Array:
        """(P, E) both parts."""
        return self.forecast + self.surprising


def gains(outlooks: Sequence[Outlook], bests: Sequence[float], weights: Array, surprise: Array | float = 0.0) -> Gains:
    """Average over samples and mixture components; with chance `surprise` (P, E) a run is anywhere about its mean."""
    forecast, surprising, chance = (np.zeros_like(outlooks[0].mean) for _ in range(3))
    for outlook, best, weight in zip(outlooks, bests, weights, strict=True):
        for w, deviation in zip(outlook.weights, outlook.deviations, strict=True):
            share = weight * (1.0 - surprise) * w
            forecast += share * expected_improvement(best, outlook.mean, deviation)
            chance += share * probability_of_improvement(best, outlook.mean, deviation)
        spread = np.full_like(forecast, SPREAD)
        surprising += weight * surprise * expected_improvement(best, outlook.mean, spread)
        chance += weight * surprise * probability_of_improvement(best, outlook.mean, spread)
    return Gains(forecast, surprising, chance)


def rates(
    found: Gains, epochs: Array, done: Array, price: Array, left: float = np.inf
) -> tuple[Array, NDArray[np.int64]]:
    """(P,) the best improvement for each epoch spent, and at which of the E epochs.

    `done` (P,) is spent already; taking a run up has a `price` (P,) in epochs; and at most `left` more can be spent:
    what cannot be reached any more is worth nothing. A surprise gives no sign before it comes: whoever waits for one
    pays all epochs.
    """
    ahead = epochs[None, :] - done[:, None]
    whole = np.maximum(ahead, 1.0)
    rate = found.forecast / (expected_cost(whole, found.chance) + price[:, None])
    rate += found.surprising / (whole + price[:, None])
    rate = np.where((ahead > 0) & (ahead <= left), rate, -np.inf)
    at = rate.argmax(axis=1)
    return rate[np.arange(len(rate)), at], at


def expected_cost(ahead: Array, chance: Array) -> Array:
    """Epochs that training `ahead` epochs is expected to cost when a run that disappoints is frozen on the way.

    With the chance of success all of them are paid; otherwise the run is given up somewhere before, on a scale of time
    that is not known: the geometric mean of 1 and `ahead`.
    """
    return np.asarray(chance * ahead + (1 - chance) * np.sqrt(ahead))


def epochs_to_grant(price: float, ahead: int) -> int:
    """How many epochs to grant at once where taking a run up costs as much as `price` epochs.

    Asking again after k epochs costs at most price / k for each epoch trained; not asking wastes k / 2 epochs when the
    run disappoints on the way. Their sum is smallest at sqrt(2 price). Never further than the run should go.
    """
    return int(np.clip(round(np.sqrt(2 * price)), 1, max(ahead, 1)))
