"""What the study believes: the model's samples, carried from ask to ask, and the forecasts they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freezethaw.errors import ModelError
from freezethaw.model.belief import Belief, Forecaster, Observations, begin, carry
from freezethaw.model.specification import Geometry
from freezethaw.records import Decision, Run
from freezethaw.study.catalogue import Catalogue

Array = NDArray[np.float64]

MOST_RUNS = 600  # beyond this the model keeps the runs that matter


@dataclass(frozen=True)
class View:
    """A forecaster, and which run of the study is which of its curves."""

    forecaster: Forecaster
    places: dict[int, int]  # run number -> index among the curves
    dropped: int = 0  # runs with losses that the model leaves out


class Insight:
    """Owner of the belief. Given the runs it answers with a view; asked twice for the same, it thinks once."""

    def __init__(self, catalogue: Catalogue, max_epochs: int, maximize: bool, model: str) -> None:
        self.catalogue, self.max_epochs, self.maximize, self.model = catalogue, max_epochs, maximize, model
        self.geometry = Geometry(catalogue.space.lengths, catalogue.space.warped)
        self.belief: Belief | None = None
        self._seen: tuple[tuple[int, int], ...] = ()
        self._draft: tuple[Belief, View] | None = None
        self._fantasised: tuple[tuple[int, ...], View] | None = None

    def view(self, runs: Sequence[Run], rng: np.random.Generator) -> View | None:
        """Forecasts from all losses so far; none before the first finite loss. Looking changes nothing: see commit."""
        observed = [run for run in runs if run.losses]
        if not observed:
            return None
        seen = tuple((run.number, run.epoch) for run in observed)
        if self._draft is None or seen != self._seen:
            kept = observed if len(observed) <= MOST_RUNS else self._select(observed)
            belief, forecaster = self._think(self.observations(kept), rng)
            places = {run.number: place for place, run in enumerate(kept)}
            self._draft = belief, View(forecaster, places, len(observed) - len(kept))
            self._seen, self._fantasised = seen, None
        return self._draft[1]

    def commit(self) -> None:
        """Keep the belief of the last view: the next one is carried on from it."""
        if self._draft is not None:
            self.belief = self._draft[0]

    def _think(self, observations: Observations, rng: np.random.Generator) -> tuple[Belief, Forecaster]:
        if self.belief is None:
            return self._begin(observations, rng)
        try:
            before = None if self._draft is None else self._draft[1].forecaster
            return carry(self.belief, observations, rng, before)
        except ModelError:  # every sample was contradicted at once
            return self._begin(observations, rng)

    def _begin(self, observations: Observations, rng: np.random.Generator) -> tuple[Belief, Forecaster]:
        belief = begin(observations, self.model, rng)
        return belief, Forecaster.of(belief, observations)

    def with_pending(self, view: View, pending: Sequence[Decision]) -> View:
        """The view as if the decisions under way had been told their expected losses."""
        known: tuple[int, ...] = ()
        if self._fantasised is not None and set(self._fantasised[0]) <= {d.number for d in pending}:
            known, view = self._fantasised
        fresh = [d for d in pending if d.number not in known]
        if not fresh:
            return view
        old = [d for d in fresh if d.run in view.places]
        new = [d for d in fresh if d.run not in view.places]
        wanted: list[tuple[int | Array, int]] = [(view.places[d.run], d.epochs) for d in old]
        wanted += [(self.catalogue.space.features(d.config), d.epochs) for d in new]
        count = len(view.forecaster.posteriors[0].curves)
        places = view.places | {d.run: count + i for i, d in enumerate(new)}
        view = View(view.forecaster.with_fantasies(wanted), places, view.dropped)
        self._fantasised = (*known, *(d.number for d in fresh)), view
        return view

    def _select(self, runs: Sequence[Run]) -> list[Run]:
        return select(runs, self.catalogue.features(runs), -1.0 if self.maximize else 1.0, MOST_RUNS)

    def observations(self, runs: Sequence[Run]) -> Observations:
        """Runs as the model takes them."""
        return Observations(
            self.catalogue.features(runs),
            tuple(run.losses for run in runs),
            self.geometry,
            float(self.max_epochs),
            self.maximize,
        )


def select(runs: Sequence[Run], features: Array, sign: float, count: int) -> list[Run]:
    """The runs that matter most: those under way, the best half, and a space-filling rest."""
    lowest = np.array([min(sign * loss for loss in run.losses) for run in runs])
    pending = np.array([run.state == "pending" for run in runs])
    order = np.lexsort((lowest, ~pending))
    kept = list(order[: count // 2])
    rest = order[count // 2 :]
    kept += list(rest[spread_out(features[rest], features[kept], count - len(kept))])
    return [runs[int(i)] for i in sorted(kept)]


def spread_out(points: Array, given: Array, count: int) -> NDArray[np.int64]:
    """Indices of `count` points, each as far as can be from those given and taken before (farthest-point order)."""
    distance = np.full(len(points), np.inf)
    for start in range(0, len(given), 256):  # in blocks: the full table of distances could be large
        block = given[start : start + 256]
        distance = np.minimum(distance, ((points[:, None, :] - block[None]) ** 2).sum(axis=2).min(axis=1))
    taken = np.empty(count, dtype=np.int64)
    for i in range(count):
        taken[i] = int(distance.argmax())
        distance = np.minimum(distance, ((points - points[taken[i]]) ** 2).sum(axis=1))
        distance[taken[i]] = -1.0
    return taken
