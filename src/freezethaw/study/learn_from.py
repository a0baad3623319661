"""Summaries of earlier studies, from which a new one learns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freezethaw.decide.earlier import EarlierStudy
from freezethaw.decide.inference_cache import one_thread, select
from freezethaw.decide.shared_parameters import SharedFeatures, features_of, geometry_of, shared_parameters
from freezethaw.errors import SpaceError, StudyError
from freezethaw.model.correlation import correlation, scaled
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.inference import Schedule
from freezethaw.model.linear import add_to_diagonal
from freezethaw.model.loss_units import Observations
from freezethaw.model.predictions import asymptote_weights
from freezethaw.model.sequential import from_scratch
from freezethaw.model.specification import Geometry, Values
from freezethaw.records import Config, Run
from freezethaw.space import Space
from freezethaw.space.parameters import Parameter
from freezethaw.study.session import StudySession

Array = NDArray[np.float64]

MOST_RUNS = 60  # of an earlier study
FEWEST_RUNS = 3
SAMPLES = Schedule(chains=4, warm_up=12)
INTERPOLATION_NOISE = 1e-8  # keeps a correlation matrix invertible if two configurations are equal

MOST_STUDIES = 10
Source = str | Path | StudySession


def earlier_studies(sources: Sequence[Source], space: Space, seed: int) -> tuple[EarlierStudy, ...]:
    """Summaries of these studies for a study of this space."""
    if len(sources) > MOST_STUDIES:
        raise StudyError(
            f"learn_from takes at most {MOST_STUDIES} studies, not {len(sources)}; choose the closest ones"
        )
    found: list[EarlierStudy] = []
    for source in sources:
        if isinstance(source, StudySession):
            found.append(_summary_of(source, space, seed))
            continue
        if not isinstance(source, str | Path):
            raise StudyError(
                f"learn_from takes studies and stores, such as ['old.db', 'team.db#resnet-2025', study], not {source!r}"
            )
        store, _, name = str(source).partition("#")
        session = StudySession.open(store, name or None)
        try:
            found.append(_summary_of(session, space, seed))
        finally:
            session.close()
    return _distinct(found)


def _distinct(found: Sequence[EarlierStudy]) -> tuple[EarlierStudy, ...]:
    """The summaries with distinct names: studies in different stores may have the same."""
    names: Counter[str] = Counter()
    renamed = []
    for study in found:
        names[study.name] += 1
        count = names[study.name]
        renamed.append(study if count == 1 else replace(study, name=f"{study.name} ({count})"))
    return tuple(renamed)


def _summary_of(session: StudySession, space: Space, seed: int) -> EarlierStudy:
    state, before = session.refresh(), session.cache.configurations.union
    return summarise_study(session.name, state.runs, before, space, state.max_epochs, session.definition.maximize, seed)


def summarise_study(
    name: str, runs: Sequence[Run], before: Space, space: Space, max_epochs: int, maximize: bool, seed: int = 0
) -> EarlierStudy:
    """Summarise the runs of an earlier study, whose space is `before`, for a study of another space.

    The model is fitted in all parameters of the earlier study. Parameters that are fixed in the new space then have
    these values; others that the new space does not search are integrated out over the values in the runs.
    """
    known = [run for run in runs if run.losses]
    if len(known) < FEWEST_RUNS:
        raise StudyError(
            f"nothing can be learnt from study {name!r}: {len(known)} of its {len(runs)} runs have a finite loss; "
            f"{FEWEST_RUNS} are needed"
        )
    parameters = shared_parameters(space, before, [run.config for run in known])
    if not parameters:
        raise StudyError(f"nothing can be learnt from study {name!r}: it shares no parameter with this study")
    others = {n: p for n, p in before.parameters.items() if n not in parameters}
    shared = SharedFeatures(parameters, space)
    features = _joined(shared, others, [run.config for run in known])
    if len(known) > MOST_RUNS:
        kept = {run.number for run in select(known, features, -1.0 if maximize else 1.0, MOST_RUNS)}
        places = [i for i, run in enumerate(known) if run.number in kept]
        known, features = [known[i] for i in places], features[places]
    configs = [run.config for run in known]
    geometry = geometry_of({**parameters, **others})
    observations = Observations(features, tuple(run.losses for run in known), geometry, float(max_epochs), maximize)
    with one_thread():
        rng = np.random.default_rng([seed, len(known)])
        samples = from_scratch(observations, "drift", rng, SAMPLES.chains, SAMPLES)
        forecaster = Forecaster.condition(samples, observations)
        best = int(np.argmax(forecaster.posterior.log_evidence))
        posterior = forecaster.posterior.sample(best)
        weights, constant = asymptote_weights(posterior)
        asymptotes = posterior.asymptotes(configs=features)
        if others:
            elsewhere = _joined(shared, others, _fixed(configs, others, space))[:, shared.width :]
            weights = _integrated(features, elsewhere, geometry, shared.geometry, posterior.values, weights)
    names = [f"length.{g}" for g in range(shared.geometry.count)]
    names += [f"warp.{ab}.{column}" for column in range(shared.width) for ab in "ab"]
    values = {n: float(posterior.values[n]) for n in names if n in posterior.values}
    inputs = scaled(features[:, : shared.width], shared.geometry, values)
    study = EarlierStudy(
        name,
        parameters,
        tuple({n: v for n, v in config.items() if n in parameters} for config in configs),
        values,
        tuple(weights.tolist()),
        constant,
        float(asymptotes.mean.mean()),
        float(np.sqrt(asymptotes.mean.var() + asymptotes.variance.mean())),
        0.0,
        forecaster.transform,
    )
    return replace(study, spread=float(study.input(constant + correlation(inputs, inputs) @ weights).std()))


def _joined(shared: SharedFeatures, others: Mapping[str, Parameter], configs: Sequence[Config]) -> Array:
    """(N, columns) features in the shared parameters, then in the others."""
    return np.hstack([shared.of_configs(configs), features_of(configs, others)])


def _fixed(configs: Sequence[Config], others: Mapping[str, Parameter], space: Space) -> list[Config]:
    """The configurations with the values that the new space fixes, as far as the earlier study could have them."""
    fixed: dict[str, Any] = {}
    for name, parameter in others.items():
        if name in space.fixed:
            with suppress(SpaceError):
                fixed[name] = parameter.check(space.fixed[name])
    return [dict(config) | fixed for config in configs]


def _integrated(
    features: Array, elsewhere: Array, geometry: Geometry, shared: Geometry, values: Values, weights: Array
) -> Array:
    """Weights (N,) of correlations in the shared parameters alone, for a mean that depends on others too.

    That mean is averaged over values of the others (J, columns), and interpolated between the configurations.
    """
    columns = len(shared.lengths)
    inputs = scaled(features, geometry, values)
    average = np.zeros(len(features))
    for row, count in zip(*np.unique(elsewhere, axis=0, return_counts=True), strict=True):
        moved = np.hstack([features[:, :columns], np.broadcast_to(row, (len(features), len(row)))])
        average += count / len(elsewhere) * (correlation(scaled(moved, geometry, values), inputs) @ weights)
    K = correlation(inputs[:, :columns], inputs[:, :columns])
    add_to_diagonal(K, INTERPOLATION_NOISE)
    return np.asarray(np.linalg.solve(K, average))
