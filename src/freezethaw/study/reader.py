"""A study as of one state: everything that can be asked about it, and nothing that changes it.

`Study`, figures, the page and reports read through it, so that all of them show the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from freezethaw.decide import Inference, InferenceCache, StudyDefinition, stopping
from freezethaw.decide.inference_cache import one_thread
from freezethaw.errors import StudyError
from freezethaw.losses import Forecast
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.policy import entropy_search
from freezethaw.records import (
    Best,
    Config,
    Decision,
    DecisionRecord,
    Explanation,
    History,
    PastForecast,
    Run,
    StudyState,
)
from freezethaw.space import Space
from freezethaw.study.backtest import forecast_before, past_forecasts
from freezethaw.study.importance import Importance, draw_importance
from freezethaw.study.session import StudySession


class StudyReader:
    """A study as of one state. What never changes (baskets, past samples) is read from storage when asked for."""

    def __init__(self, session: StudySession) -> None:
        """The study in its current state."""
        self._session = session
        self.name: str = session.name
        self.state: StudyState
        self.definition: StudyDefinition
        self._cache: InferenceCache
        self.state, self.definition, self._cache = session.read()

    @property
    def space(self) -> Space:
        """The search space."""
        return self.definition.space

    @property
    def max_epochs(self) -> int:
        """The last epoch of a run."""
        return self.state.max_epochs

    @property
    def metric(self) -> str:
        """What the user calls the losses."""
        return self.definition.metric

    @property
    def direction(self) -> str:
        """Whether small or large losses are good."""
        return self.definition.direction

    @property
    def sign(self) -> float:
        """Losses times this are minimised."""
        return self.definition.sign

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All runs."""
        storage = self._session.storage
        return tuple(replace(run, source=storage) for run in self.state.runs)

    @property
    def pending(self) -> tuple[Decision, ...]:
        """Decisions that are neither told nor cancelled."""
        return self.state.pending

    @cached_property
    def samples(self) -> HyperparameterSamples | None:
        """The hyperparameter samples of the last decision."""
        return self._session.samples_after(self.state.decisions)

    @cached_property
    def inference(self) -> Inference | None:
        """The posterior given all losses; None before the first finite loss."""
        return self._cache.infer(self.state, self.samples)

    @cached_property
    def history(self) -> History:
        """All decisions and epochs up to this state."""
        found = self._session.history()
        known = {run.number: run.epoch for run in self.runs}
        epochs = tuple(epoch for epoch in found.epochs if epoch[2] <= known.get(epoch[1], 0))
        return History(self.state.change, found.decisions[: self.state.decisions], epochs)

    def features(self, configs: Sequence[Config]) -> Any:
        """(N, columns) of configurations, as the model takes them."""
        return self._cache.configurations.features_of(configs)

    @property
    def best(self) -> Best | None:
        """The epoch with the lowest measured loss; None until a finite loss is in."""
        return None if self.state.lowest is None else self._epoch(*self.state.lowest[1:])

    @cached_property
    def recommended(self) -> Best | None:
        """The epoch with the lowest expected loss, its noise removed; None until a finite loss is in."""
        if self.inference is None:
            return None
        with one_thread():
            found = stopping.recommended(self.definition, self.state, self.inference)
        return self._epoch(*found)

    def _epoch(self, number: int, epoch: int) -> Best:
        run = self.state.run(number)
        return Best(number, epoch, run.config, run.losses[epoch - 1], self._checkpoint(number, epoch), source=self)

    def _checkpoint(self, number: int, epoch: int) -> Path | None:
        """The folder with the checkpoint of exactly this epoch; None if there is none."""
        folder = self._session.checkpoint_folder
        found = next((c for c in self.state.checkpoints if (c.run, c.epoch) == (number, epoch)), None)
        return Path(folder) / found.place if folder and found is not None else None

    def expected_loss(self, number: int, epoch: int) -> float:
        """The expected loss of a recorded epoch, its noise removed."""
        run = self.state.run(number)
        if self.inference is None or number not in self.inference.places:  # the model leaves runs out if there are many
            return float(self._forecast(run, [float(epoch)]).mean[0])
        with one_thread():
            expected = stopping.expected_losses(self.inference, run, another=self.definition.repeats > 1)
        return float(self.inference.forecaster.transform.from_model(expected[epoch - 1]))

    def forecast(self, run_or_config: int | Config, epochs: Sequence[float] | None = None) -> Forecast:
        """The predictive distribution of losses in the user's units; by default of the last epoch.

        A loss that was measured already is given as measured.
        """
        if self.inference is None:
            raise StudyError("there is nothing to forecast from yet: tell a finite loss first")
        forecaster = self.inference.forecaster
        at = [float(self.max_epochs)] if epochs is None else list(epochs)
        if not isinstance(run_or_config, int):
            found = forecaster.config(self.features([self.space.validate(run_or_config)])[0], at)
            return replace(found, epochs=np.array(at), metric=self.metric)
        run = self.state.run(run_or_config)
        known = {float(epoch): loss for epoch, loss in enumerate(run.losses, 1)}
        measured = np.array([known.get(float(epoch), np.nan) for epoch in at])
        return replace(self._forecast(run, at), epochs=np.array(at), measured=measured, metric=self.metric)

    def _forecast(self, run: Run, at: Sequence[float]) -> Forecast:
        """The predictive distribution of another measurement at these epochs."""
        if self.inference is None:
            raise StudyError("there is nothing to forecast from yet: tell a finite loss first")
        forecaster, places = self.inference.forecaster, self.inference.places
        if run.number in places:
            return forecaster.run(places[run.number], at)
        return forecaster.out_of_sample(self._cache.configurations.features([run])[0], run.losses, at)

    def p_min(self) -> dict[int, float]:
        """For each run with a loss, the probability that it has the lowest asymptote."""
        if self.inference is None:
            return {}
        places = self.inference.places
        runs = [n for n in places if self.state.run(n).state not in ("diverged", "failed")]
        if not runs:
            return {}
        rng = np.random.default_rng([self.definition.seed, self.state.decisions + 1])
        with one_thread():
            found = entropy_search.p_min_of_runs(self.inference.forecaster, [places[n] for n in runs], rng)
        return {n: float(p) for n, p in zip(runs, found, strict=True)}

    @cached_property
    def importance_draws(self) -> Importance | None:
        """The share of the variance of the asymptote that each parameter explains alone, in draws from the posterior.

        None without a loss or without parameters.
        """
        if self.inference is None or not len(self.space):
            return None
        with one_thread():
            return draw_importance(self.inference, self.space, self.features)

    def importance(self) -> dict[str, float]:
        """The expected share of the variance of the forecast asymptote that each parameter explains alone."""
        found = self.importance_draws
        return {} if found is None else dict(zip(self.space.names, found.mean.tolist(), strict=True))

    def past_forecasts(self, most: int = 40) -> tuple[PastForecast, ...]:
        """Forecasts made before losses were measured, at decisions spread over the study, oldest first."""
        with one_thread():
            return past_forecasts(self._cache, self.state, self.history, self._session.samples_after, most)

    def forecast_before(self, record: DecisionRecord, epochs: Sequence[float]) -> Forecast | None:
        """The forecast of the chosen run from what an earlier decision knew; None if it knew no loss."""
        samples = self._session.samples_after(record.decision.number)
        if samples is None:
            return None
        with one_thread():
            return forecast_before(self._cache, self.state, self.history, record, samples, epochs)

    def explain(self, number: int) -> Explanation:
        """One decision with its whole basket."""
        record = self._session.storage.decision(number)
        if not record.basket:
            raise StudyError(f"decision {number!r} has no basket: the policy was not asked, or it was too long ago")
        return Explanation(record.decision, record.basket)
