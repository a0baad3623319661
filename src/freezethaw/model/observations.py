"""Runs as the user knows them, and the frozen units in which a model sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freezethaw.errors import ModelError
from freezethaw.losses import Transform
from freezethaw.model import specification
from freezethaw.model.curves import Array, Curves
from freezethaw.model.specification import Geometry, Specification

GROWTH = 1.3  # a new anchor is cast when there are this many times as many losses
MARGIN = 0.5  # how far outside the anchored range a loss may fall, in model units
THIN_BEYOND = 100  # curves longer than this are thinned
DENSE_EPOCHS = 20
STANDARDISED = frozenset({"paper"})  # models whose units are affine in the loss
BLEND = 0.5  # of normal scores in the units, once there are many runs
BLEND_RUNS = 8  # with so many runs the blend is half of that: the shape of a distribution is not known from a few


def standardised(model: str) -> bool:
    """Whether the units of this model are affine in the loss, as the paper's are."""
    return model in STANDARDISED


@dataclass(frozen=True)
class Observations:
    """Runs as the user knows them: configurations in the cube, finite losses in the user's units."""

    configs: Array  # (N, D)
    losses: tuple[tuple[float, ...], ...]
    geometry: Geometry
    horizon: float  # the last epoch that will ever be trained
    maximize: bool = False
    epochs: tuple[tuple[float, ...], ...] | None = None  # 1, 2, ... unless said

    @property
    def count(self) -> int:
        """How many losses there are."""
        return sum(len(curve) for curve in self.losses)

    def weights(self) -> Array:
        """How much each loss counts when units are chosen: all runs alike, however long."""
        return np.concatenate([np.full(len(curve), 1.0 / len(curve)) for curve in self.losses if curve])

    def all_losses(self) -> Array:
        """Every loss, one after the other."""
        return np.array([loss for curve in self.losses for loss in curve])


@dataclass(frozen=True)
class Anchor:
    """Frozen units: the transform, the range of losses (model units) it was fitted to, and how many they were."""

    transform: Transform
    lowest: float
    highest: float
    count: int

    @classmethod
    def cast(cls, observations: Observations, model: str) -> Anchor:
        """Fit the units to what has been observed."""
        losses = observations.all_losses()
        runs = sum(len(curve) > 0 for curve in observations.losses)
        if standardised(model):
            transform = Transform.fit(losses, observations.maximize, blend=0.0)
        else:
            blend = BLEND * runs / (runs + BLEND_RUNS)
            transform = Transform.fit(losses, observations.maximize, blend, observations.weights())
        z = transform.to_model(losses)
        return cls(transform, float(z.min()), float(z.max()), len(losses))

    def holds(self, losses: Array) -> bool:
        """Whether these losses may be read in these units."""
        z = self.transform.to_model(losses)
        inside = self.lowest - MARGIN <= z.min() and z.max() <= self.highest + MARGIN
        return bool(inside and len(losses) < GROWTH * self.count)


def specify(model: str, anchor: Anchor, geometry: Geometry, horizon: float) -> Specification:
    """The model by name, its priors in the units of the anchor."""
    if model == "paper":
        return specification.paper((anchor.lowest, anchor.highest))
    if model == "drift":
        return specification.drift(geometry.count, horizon)
    if model == "luck":
        return specification.luck(geometry.count, horizon)
    raise ModelError(f"unknown model {model!r}; known: paper, drift, luck")


def gather(observations: Observations, transform: Transform) -> Curves:
    """The curves in model units."""
    lengths = [len(curve) for curve in observations.losses]
    longest = max(lengths, default=0)
    return Curves.of(
        observations.configs,
        np.split(transform.to_model(observations.all_losses()), np.cumsum(lengths)[:-1]),
        observations.epochs,
        DENSE_EPOCHS if longest > THIN_BEYOND else None,
    )
