"""How much of the variance of the asymptote each hyperparameter explains alone, with the uncertainty of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freezethaw.decide import Inference
from freezethaw.records import Config
from freezethaw.space import Space

Array = NDArray[np.float64]

VALUES = 5  # of each hyperparameter
BASES, FEWEST_BASES = 24, 8  # configurations in which one hyperparameter is varied
POINTS = 1500  # at most, in all: the asymptotes of all are drawn jointly
SAMPLES, DRAWS = 6, 20  # of hyperparameters, and of the asymptotes given each
JITTER = 1e-8  # relative to the mean variance


@dataclass(frozen=True)
class Importance:
    """Draws of the first-order share of the variance that each of d hyperparameters explains."""

    shares: Array  # (draws, d)
    weights: Array  # (draws,) normalised

    @property
    def mean(self) -> Array:
        """(d,) the expected shares."""
        return np.asarray(self.weights @ self.shares)

    def quantile(self, probability: float) -> Array:
        """(d,) a quantile of each share."""
        order = np.argsort(self.shares, axis=0)
        below = np.cumsum(self.weights[order], axis=0)
        first = np.argmax(below >= probability * below[-1], axis=0)
        return np.asarray(np.take_along_axis(self.shares, order, axis=0)[first, np.arange(self.shares.shape[1])])


def draw_importance(
    inference: Inference, space: Space, features: Callable[[Sequence[Config]], Any], seed: int = 0
) -> Importance:
    """First-order shares of functions drawn from the posterior of the asymptote, for several hyperparameter samples."""
    rng, count = np.random.default_rng(seed), len(space)
    bases = int(np.clip(POINTS // (VALUES * count), FEWEST_BASES, BASES))
    units = np.tile(rng.random((bases, count)), (count, VALUES, 1, 1))  # (d, values, bases, d)
    for column in range(count):
        units[column, :, :, column] = ((np.arange(VALUES) + 0.5) / VALUES)[:, None]
    points = features([space.config(unit) for unit in units.reshape(-1, count)])
    forecaster, shares, weights = inference.forecaster, list[Array](), list[float]()
    for sample in np.argsort(-forecaster.weights)[:SAMPLES]:
        found = forecaster.posterior.sample(int(sample)).asymptotes(configs=points)
        C = found.shared
        root = np.linalg.cholesky(C + JITTER * np.trace(C) / len(C) * np.eye(len(C)))
        drawn = found.mean + rng.standard_normal((DRAWS, len(C))) @ root.T
        shares.append(first_order_shares(drawn.reshape(DRAWS, count, VALUES, bases)))
        weights += [float(forecaster.weights[sample])] * DRAWS
    total = np.array(weights)
    return Importance(np.concatenate(shares), total / total.sum())


def first_order_shares(values: Array) -> Array:
    """(draws, d) shares from values (draws, d, V, B): each hyperparameter at V values, in each of B configurations."""
    main = values.mean(axis=-1)
    # each mean over the bases has a variance of var / bases itself, which would look like an effect
    noise = values.var(axis=-1, ddof=1).mean(axis=-1) / values.shape[-1] * (1.0 - 1.0 / values.shape[-2])
    total = values.reshape(*values.shape[:2], -1).var(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nan_to_num(np.clip((main.var(axis=-1) - noise) / total, 0.0, 1.0)))
