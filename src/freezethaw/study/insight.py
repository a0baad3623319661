"""What the study believes: the model's samples, carried from ask to ask, and the forecasts they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from freezethaw.errors import ModelError
from freezethaw.model.fantasies import PendingLosses
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.model.loss_units import Observations
from freezethaw.model.sequential import initialise, update
from freezethaw.model.specification import Geometry
from freezethaw.records import Decision, Run
from freezethaw.study.catalogue import Catalogue
from freezethaw.study.facts import Facts

Array = NDArray[np.float64]

MOST_RUNS = 600  # beyond this the model keeps the runs that matter
FIRST_RUNS = 100  # a belief of many runs at once begins with so many of them, and is carried on to all


@dataclass(frozen=True)
class View:
    """A forecaster, which run of the study is which of its curves, and the belief it came with."""

    forecaster: Forecaster
    belief: HyperparameterSamples
    places: dict[int, int]  # run number -> index among the curves
    dropped: int = 0  # runs with losses that the model leaves out


class Insight:
    """Answers with a view, given facts and the belief of the last decision. Asked the same twice, it thinks once."""

    def __init__(self, catalogue: Catalogue, maximize: bool, model: str) -> None:
        self.catalogue, self.maximize, self.model = catalogue, maximize, model
        self.geometry = Geometry(catalogue.modelled.lengths, catalogue.modelled.warped)
        self._asked: tuple[object, ...] = ()
        self._view: View | None = None
        self._awaited: dict[int, tuple[PendingLosses, ...]] = {}  # of decisions under way, by number, in this view

    def view(self, facts: Facts, belief: HyperparameterSamples | None, rng: np.random.Generator) -> View | None:
        """Forecasts from all losses so far; none before the first finite loss."""
        observed = [run for run in facts.runs if run.losses]
        if not observed:
            return None
        asked = (facts.max_epochs, belief, tuple((run.number, run.epoch) for run in observed))
        if self._view is None or asked != self._asked:
            kept = observed if len(observed) <= MOST_RUNS else self._select(observed, MOST_RUNS)
            if belief is None and len(kept) > FIRST_RUNS:
                belief, _ = self._think(self.observations(self._select(kept, FIRST_RUNS), facts.max_epochs), None, rng)
            after, forecaster = self._think(self.observations(kept, facts.max_epochs), belief, rng)
            places = {run.number: place for place, run in enumerate(kept)}
            self._view = View(forecaster, after, places, len(observed) - len(kept))
            self._asked, self._awaited = asked, {}
        return self._view

    def _think(
        self, observations: Observations, belief: HyperparameterSamples | None, rng: np.random.Generator
    ) -> tuple[HyperparameterSamples, Forecaster]:
        if belief is None:
            return self._begin(observations, rng)
        try:
            return update(belief, observations, rng, None if self._view is None else self._view.forecaster)
        except ModelError:  # every sample was contradicted at once
            return self._begin(observations, rng)

    def _begin(self, observations: Observations, rng: np.random.Generator) -> tuple[HyperparameterSamples, Forecaster]:
        belief = initialise(observations, self.model, rng)
        return belief, Forecaster.condition(belief, observations)

    def with_pending(self, view: View, pending: Sequence[Decision]) -> View:
        """The view as if the decisions under way had been told their expected losses."""
        under_way = {d.number: self._under_way(view, d) for d in pending}
        under_way = {number: (who, ahead) for number, (who, ahead) in under_way.items() if ahead > 0}
        asked = [number for number in under_way if number not in self._awaited]
        found = view.forecaster.pending_losses([under_way[n][0] for n in asked], [under_way[n][1] for n in asked])
        self._awaited |= zip(asked, found, strict=True)
        fantasies = [(who, self._awaited[number]) for number, (who, _) in under_way.items()]
        new = [d.run for d in pending if d.run not in view.places]
        count = len(view.forecaster.posteriors[0].curves)
        places = view.places | {run: count + i for i, run in enumerate(new)}
        return replace(view, forecaster=view.forecaster.with_fantasies(fantasies), places=places)

    def _under_way(self, view: View, d: Decision) -> tuple[int | Array, int]:
        """Which run (by index; or its configuration, if the view has no loss of it) goes on for how many epochs."""
        if d.run not in view.places:
            return self.catalogue.modelled.features(d.config), d.epochs
        who = view.places[d.run]
        return who, d.to_epoch - int(view.forecaster.posteriors[0].curves.last_epochs[who])

    def _select(self, runs: Sequence[Run], count: int) -> list[Run]:
        return select(runs, self.catalogue.features(runs), -1.0 if self.maximize else 1.0, count)

    def observations(self, runs: Sequence[Run], max_epochs: int) -> Observations:
        """Runs as the model takes them."""
        return Observations(
            self.catalogue.features(runs),
            tuple(run.losses for run in runs),
            self.geometry,
            float(max_epochs),
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
