"""Observations in the user's units, and the units in which the model sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freezethaw.errors import ModelError
from freezethaw.losses import Transform, inferred_bounds
from freezethaw.model import specification
from freezethaw.model.curves import Array, Curves
from freezethaw.model.specification import Geometry, Specification

GROWTH = 1.3  # new units are fitted when there are this many times as many losses
MARGIN = 0.5  # how far outside the fitted range a loss may fall, in model units
THIN_BEYOND = 100  # curves longer than this are thinned
DENSE_EPOCHS = 20
STANDARDISED = frozenset({"paper"})  # models whose units are affine in the loss
BLEND = 0.5  # weight of the normal scores in the units of the default model, with many runs
BLEND_RUNS = 8  # number of runs at which the weight is half of BLEND: few runs do not show the shape of a distribution


def standardised(model: str) -> bool:
    """Whether the units of this model are affine in the loss, as in the paper."""
    return model in STANDARDISED


@dataclass(frozen=True)
class Observations:
    """All runs: configurations in the unit cube, finite losses in the user's units."""

    configs: Array  # (N, D)
    losses: tuple[tuple[float, ...], ...]
    geometry: Geometry
    horizon: float  # the last epoch that will ever be trained
    maximize: bool = False
    epochs: tuple[tuple[float, ...], ...] | None = None  # by default 1, 2, ...
    bounds: tuple[float | None, float | None] | None = None  # that losses cannot leave

    @property
    def count(self) -> int:
        """Number of losses."""
        return sum(len(curve) for curve in self.losses)

    def weights(self) -> Array:
        """Weight of each loss in fitting the units: every run has the same total, however long it is."""
        return np.concatenate([np.full(len(curve), 1.0 / len(curve)) for curve in self.losses if curve])

    def all_losses(self) -> Array:
        """Every loss, run by run."""
        return np.array([loss for curve in self.losses for loss in curve])


@dataclass(frozen=True)
class LossUnits:
    """The transform to model units, and the range (in model units) and number of the losses that it was fitted to."""

    transform: Transform
    lowest: float
    highest: float
    count: int

    @classmethod
    def fit(cls, observations: Observations, model: str) -> LossUnits:
        """Fit the units to all losses: standardised for the paper's model, robust for the default one."""
        losses = observations.all_losses()
        runs = sum(len(curve) > 0 for curve in observations.losses)
        if standardised(model):
            transform = Transform.fit_scaled(losses, observations.maximize, 0.0, None, observations.bounds)
        else:
            blend = BLEND * runs / (runs + BLEND_RUNS)
            weights = observations.weights()
            bounds = observations.bounds or inferred_bounds(losses, weights, observations.maximize)
            transform = Transform.fit_scaled(losses, observations.maximize, blend, weights, bounds)
        z = transform.to_model(losses)
        return cls(transform, float(z.min()), float(z.max()), len(losses))

    def cover(self, losses: Array) -> bool:
        """Whether the units are still valid for these losses: close to the fitted range, and not many more."""
        z = self.transform.to_model(losses)
        inside = self.lowest - MARGIN <= z.min() and z.max() <= self.highest + MARGIN
        return bool(inside and len(losses) < GROWTH * self.count)


def specify(model: str, units: LossUnits, geometry: Geometry, horizon: float) -> Specification:
    """The specification of a model by its name. The range of the losses bounds the mean of the paper's model."""
    if model == "paper":
        return specification.paper((units.lowest, units.highest))
    if model == "drift":
        return specification.drift(geometry.count - geometry.expected, horizon)
    if model == "luck":
        return specification.luck(geometry.count - geometry.expected, horizon)
    raise ModelError(f"unknown model {model!r}; known: paper, drift, luck")


def gather(observations: Observations, transform: Transform) -> Curves:
    """The curves in model units; long ones are thinned."""
    lengths = [len(curve) for curve in observations.losses]
    longest = max(lengths, default=0)
    return Curves.of(
        observations.configs,
        np.split(transform.to_model(observations.all_losses()), np.cumsum(lengths)[:-1]),
        observations.epochs,
        DENSE_EPOCHS if longest > THIN_BEYOND else None,
    )
