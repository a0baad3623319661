"""What a study had said of losses before they were measured. A decision keeps the belief it was taken with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from freezethaw.errors import ModelError
from freezethaw.losses import Forecast
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.records import History, PastForecast, Run, Taken
from freezethaw.study.facts import Facts
from freezethaw.study.insight import MOST_RUNS, Insight, select

BAND = (0.05, 0.5, 0.95)


def past_forecasts(
    insight: Insight,
    facts: Facts,
    history: History,
    belief_after: Callable[[int], HyperparameterSamples | None],
    most: int,
) -> tuple[PastForecast, ...]:
    """At `most` decisions spread over the study: the next loss of the run then chosen, and its last one known now."""
    usable = [t for t in history.decisions if t.ended is not None and facts.run(t.decision.run).epoch > _from(t)]
    chosen = [usable[i] for i in np.unique(np.linspace(0, len(usable) - 1, most).round().astype(int))] if usable else []
    found: list[PastForecast] = []
    for taken in chosen:
        belief = belief_after(taken.decision.number)
        if belief is not None:
            found += _said(insight, facts, history, taken, belief)
    return tuple(found)


def _from(taken: Taken) -> int:
    return taken.decision.from_epoch


def _said(
    insight: Insight, facts: Facts, history: History, taken: Taken, belief: HyperparameterSamples
) -> list[PastForecast]:
    run, after = facts.run(taken.decision.run), _from(taken)
    seen = [run for run in then(facts, history, taken.known) if run.losses]
    if not seen:
        return []
    if len(seen) > MOST_RUNS:
        sign = -1.0 if insight.maximize else 1.0
        seen = select(seen, insight.catalogue.features(seen), sign, MOST_RUNS)
    epochs = sorted({after + 1, run.epoch})
    try:
        forecaster = Forecaster.condition(belief, insight.observations(seen, facts.max_epochs))
        forecast = _of_run(forecaster, insight, seen, replace(run, losses=run.losses[:after]), epochs)
        bands, below = forecast.quantile(BAND), forecast.probability_below([run.losses[e - 1] for e in epochs])
    except ModelError:  # a belief that these losses contradict altogether
        return []
    number = taken.decision.number
    found = []
    for i, epoch in enumerate(epochs):
        low, median, high = (float(q) for q in bands[:, i])
        chance = float(below[i])
        found.append(
            PastForecast(number, run.number, epoch, epoch - after, low, median, high, run.losses[epoch - 1], chance)
        )
    return found


def _of_run(
    forecaster: Forecaster, insight: Insight, seen: Sequence[Run], run: Run, epochs: Sequence[float]
) -> Forecast:
    places = {r.number: place for place, r in enumerate(seen)}
    features = insight.catalogue.features([run])[0]
    if run.number in places:
        return forecaster.run(places[run.number], epochs)
    return forecaster.out_of_sample(features, run.losses, epochs) if run.losses else forecaster.config(features, epochs)


def then(facts: Facts, history: History, known: int) -> list[Run]:
    """The runs with as much of their curves as was recorded in the first `known` epochs of the study."""
    lengths = Counter(run for run, _ in history.epochs[:known])
    return [replace(run, losses=run.losses[: lengths[run.number]]) for run in facts.runs]
