"""Forecasts from all losses of a study. The cache saves work between decisions; it never changes an answer.

The hyperparameter samples are an argument and a result: storage keeps them with each decision, so that any process can
repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from freezethaw.decide.configurations import Configurations
from freezethaw.decide.definition import StudyDefinition
from freezethaw.decide.plan import most_runs
from freezethaw.errors import ModelError
from freezethaw.model.fantasies import PendingLosses
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.model.loss_units import Observations
from freezethaw.model.sequential import initialise, update
from freezethaw.records import Decision, Run, StudyState, best_of
from freezethaw.space import Space

Array = NDArray[np.float64]

FIRST_RUNS = 100  # samples for many runs at once are initialised with this many, then updated with all


@dataclass(frozen=True)
class Inference:
    """The posterior of a study: a forecaster, the index of each run among its curves, and the samples used."""

    forecaster: Forecaster
    samples: HyperparameterSamples
    places: dict[int, int]  # run number -> index among the curves
    dropped: int = 0  # runs with losses that the model leaves out


class InferenceCache:
    """Infers from a state and the samples of the last decision. The same question is computed once."""

    def __init__(self, definition: StudyDefinition, union: Space | None = None) -> None:
        """`union` holds all versions of the space (see `Configurations`)."""
        self.definition = definition
        self.configurations = Configurations(definition.space, definition.candidates, union, definition.learn_from)
        self._key: tuple[object, ...] = ()
        self._inference: Inference | None = None
        self._pending: dict[int, PendingLosses] = {}  # of pending decisions, by number

    def infer(self, state: StudyState, samples: HyperparameterSamples | None) -> Inference | None:
        """The posterior given all losses; None before the first finite loss."""
        observed = [run for run in state.runs if run.losses]
        if not observed:
            return None
        key = (state.max_epochs, samples, tuple((run.number, run.epoch) for run in observed))
        if self._inference is None or key != self._key:
            rng = np.random.default_rng([self.definition.seed, state.decisions + 1, 1])
            with one_thread():
                self._inference = self._infer(
                    observed, state.max_epochs, samples, most_runs(self.definition.prices, state), rng
                )
            self._key, self._pending = key, {}
        return self._inference

    def _infer(
        self,
        observed: list[Run],
        max_epochs: int,
        samples: HyperparameterSamples | None,
        most: int,
        rng: np.random.Generator,
    ) -> Inference:
        kept = observed if len(observed) <= most else self.select(observed, most)
        if samples is None and len(kept) > FIRST_RUNS:
            samples, _ = self._update(self.observations(self.select(kept, FIRST_RUNS), max_epochs), None, rng)
        samples, forecaster = self._update(self.observations(kept, max_epochs), samples, rng)
        places = {run.number: place for place, run in enumerate(kept)}
        return Inference(forecaster, samples, places, len(observed) - len(kept))

    def _update(
        self, observations: Observations, samples: HyperparameterSamples | None, rng: np.random.Generator
    ) -> tuple[HyperparameterSamples, Forecaster]:
        if samples is not None:
            try:
                return update(
                    samples, observations, rng, None if self._inference is None else self._inference.forecaster
                )
            except ModelError:  # every sample has evidence zero
                pass
        samples = initialise(observations, self.definition.model, rng)
        return samples, Forecaster.condition(samples, observations)

    def with_pending(self, inference: Inference, pending: Sequence[Decision]) -> Inference:
        """The posterior conditioned on the expected losses of the pending decisions as well."""
        ahead = {d.number: self._epochs_ahead(inference, d) for d in pending}
        ahead = {number: (run, epochs) for number, (run, epochs) in ahead.items() if epochs > 0}
        new = [number for number in ahead if number not in self._pending]
        found = inference.forecaster.pending_losses([ahead[n][0] for n in new], [ahead[n][1] for n in new])
        self._pending |= zip(new, found, strict=True)
        fantasies = [(run, self._pending[number]) for number, (run, _) in ahead.items()]
        started = [d.run for d in pending if d.run not in inference.places]
        count = len(inference.forecaster.posterior.curves)
        places = inference.places | {run: count + i for i, run in enumerate(started)}
        return replace(inference, forecaster=inference.forecaster.with_fantasies(fantasies), places=places)

    def _epochs_ahead(self, inference: Inference, d: Decision) -> tuple[int | Array, int]:
        """The run's index (or its features, if none of its losses is known) and the number of pending epochs."""
        if d.run not in inference.places:
            return self.configurations.features_of([d.config])[0], d.epochs
        place = inference.places[d.run]
        return place, d.to_epoch - int(inference.forecaster.posterior.curves.last_epochs[place])

    def select(self, runs: Sequence[Run], count: int) -> list[Run]:
        """The runs that the model uses if there are too many."""
        return select(runs, self.configurations.features(runs), self.definition.sign, count)

    def observations(self, runs: Sequence[Run], max_epochs: int) -> Observations:
        """The runs as the model takes them."""
        return Observations(
            self.configurations.features(runs),
            tuple(run.losses for run in runs),
            self.configurations.geometry,
            float(max_epochs),
            self.definition.maximize,
            bounds=self.definition.bounds,
        )


def select(runs: Sequence[Run], features: Array, sign: float, count: int) -> list[Run]:
    """The most relevant runs: pending ones and the best half, then runs that fill the space."""
    lowest = np.array([best_of(run, sign)[0] for run in runs])
    pending = np.array([run.state == "pending" for run in runs])
    order = np.lexsort((lowest, ~pending))
    kept = list(order[: count // 2])
    rest = order[count // 2 :]
    kept += list(rest[spread_out(features[rest], features[kept], count - len(kept))])
    return [runs[int(i)] for i in sorted(kept)]


def spread_out(points: Array, given: Array, count: int) -> NDArray[np.int64]:
    """Indices of `count` points, each the farthest from those given and chosen before (farthest-point sampling)."""
    distance = np.full(len(points), np.inf)
    for start in range(0, len(given), 256):  # in blocks: the full table of distances could be large
        block = given[start : start + 256]
        distance = np.minimum(distance, ((points[:, None, :] - block[None]) ** 2).sum(axis=2).min(axis=1))
    chosen = np.empty(count, dtype=np.int64)
    for i in range(count):
        chosen[i] = int(distance.argmax())
        distance = np.minimum(distance, ((points - points[chosen[i]]) ** 2).sum(axis=1))
        distance[chosen[i]] = -1.0
    return chosen


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # searches the loaded libraries once


def one_thread() -> AbstractContextManager[object]:
    """Limit linear algebra to one thread: decisions run beside training, and must be reproducible."""
    context: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return context
