"""Forecasts that a study made before the losses were measured. Storage keeps the samples of every decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from freezethaw.decide import InferenceCache
from freezethaw.decide.plan import most_runs
from freezethaw.errors import ModelError
from freezethaw.losses import Forecast
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.records import DecisionRecord, History, PastForecast, Run, StudyState

BAND = (0.05, 0.5, 0.95)


def past_forecasts(
    cache: InferenceCache,
    state: StudyState,
    history: History,
    samples_after: Callable[[int], HyperparameterSamples | None],
    most: int,
) -> tuple[PastForecast, ...]:
    """At `most` decisions spread over the study: the next loss of the chosen run, and its last known loss."""
    usable = [
        record
        for record in history.decisions
        if record.closed is not None and state.run(record.decision.run).epoch > record.decision.from_epoch
    ]
    chosen = [usable[i] for i in np.unique(np.linspace(0, len(usable) - 1, most).round().astype(int))] if usable else []
    found: list[PastForecast] = []
    for record in chosen:
        samples = samples_after(record.decision.number)
        if samples is not None:
            found += _forecasts(cache, state, history, record, samples)
    return tuple(found)


def _forecasts(
    cache: InferenceCache, state: StudyState, history: History, record: DecisionRecord, samples: HyperparameterSamples
) -> list[PastForecast]:
    number, run, after = record.decision.number, state.run(record.decision.run), record.decision.from_epoch
    epochs = sorted({after + 1, run.epoch})
    forecast = forecast_before(cache, state, history, record, samples, epochs)
    if forecast is None:
        return []
    bands, below = forecast.quantile(BAND), forecast.probability_below([run.losses[e - 1] for e in epochs])
    found = []
    for i, epoch in enumerate(epochs):
        low, median, high = (float(q) for q in bands[:, i])
        loss, chance = run.losses[epoch - 1], float(below[i])
        found.append(PastForecast(number, run.number, epoch, epoch - after, low, median, high, loss, chance))
    return found


def forecast_before(
    cache: InferenceCache,
    state: StudyState,
    history: History,
    record: DecisionRecord,
    samples: HyperparameterSamples,
    epochs: Sequence[float],
) -> Forecast | None:
    """The forecast of the chosen run from what a decision knew; None if it knew no loss."""
    run, after = state.run(record.decision.run), record.decision.from_epoch
    observed = [run for run in runs_at(state, history, history.epochs_at(record.basis)) if run.losses]
    if not observed:
        return None
    most = most_runs(cache.definition.prices, state)
    if len(observed) > most:
        observed = cache.select(observed, most)
    try:
        forecaster = Forecaster.condition(samples, cache.observations(observed, state.max_epochs))
        return _forecast(forecaster, cache, observed, replace(run, losses=run.losses[:after]), epochs)
    except ModelError:  # every sample has evidence zero
        return None


def _forecast(
    forecaster: Forecaster, cache: InferenceCache, observed: Sequence[Run], run: Run, epochs: Sequence[float]
) -> Forecast:
    places = {r.number: place for place, r in enumerate(observed)}
    features = cache.configurations.features([run])[0]
    if run.number in places:
        return forecaster.run(places[run.number], epochs)
    return forecaster.out_of_sample(features, run.losses, epochs) if run.losses else forecaster.config(features, epochs)


def runs_at(state: StudyState, history: History, count: int) -> list[Run]:
    """The runs with the part of their curves that was recorded in the first `count` epochs of the study."""
    lengths = Counter(run for _, run, _ in history.epochs[:count])
    return [replace(run, losses=run.losses[: lengths[run.number]]) for run in state.runs]
