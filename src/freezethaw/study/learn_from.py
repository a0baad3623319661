"""Summaries of earlier studies, from which a new one learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from freezethaw.decide.earlier import EarlierInputs, EarlierStudy, translated
from freezethaw.decide.inference_cache import one_thread, select
from freezethaw.errors import StudyError
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.inference import Schedule
from freezethaw.model.loss_units import Observations
from freezethaw.model.predictions import asymptote_weights
from freezethaw.model.sequential import from_scratch
from freezethaw.model.specification import Geometry
from freezethaw.records import Run
from freezethaw.space import Space
from freezethaw.study.session import StudySession

MOST_RUNS = 60  # of an earlier study
FEWEST_RUNS = 3
SAMPLES = Schedule(chains=4, warm_up=12)


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
    return tuple(found)


def _summary_of(session: StudySession, space: Space, seed: int) -> EarlierStudy:
    state, definition = session.refresh(), session.definition
    return summarise_study(session.name, state.runs, space, state.max_epochs, definition.maximize, seed)


def summarise_study(
    name: str, runs: Sequence[Run], space: Space, max_epochs: int, maximize: bool, seed: int = 0
) -> EarlierStudy:
    """Summarise the runs of an earlier study for a study of this space.

    Parameters that this space does not have are left out: what they explain becomes noise. Runs whose values of the
    shared parameters lie outside this space are left out too.
    """
    found = [(run, translated(run.config, space)) for run in runs if run.losses]
    known = [(run, config) for run, config in found if config is not None]
    if len(known) < FEWEST_RUNS:
        raise StudyError(
            f"nothing can be learnt from study {name!r}: {len(known)} of its {len(runs)} runs have a finite loss and "
            f"lie within the bounds of the parameters that both studies have; {FEWEST_RUNS} are needed"
        )
    features = space.features_of([config for _, config in known])
    if len(known) > MOST_RUNS:
        some = [run for run, _ in known]
        kept = {run.number for run in select(some, features, -1.0 if maximize else 1.0, MOST_RUNS)}
        places = [i for i, run in enumerate(some) if run.number in kept]
        known, features = [known[i] for i in places], features[places]
    geometry = Geometry(space.lengths, space.warped)
    losses = tuple(run.losses for run, _ in known)
    observations = Observations(features, losses, geometry, float(max_epochs), maximize)
    with one_thread():
        rng = np.random.default_rng([seed, len(known)])
        samples = from_scratch(observations, "drift", rng, SAMPLES.chains, SAMPLES)
        forecaster = Forecaster.condition(samples, observations)
        best = int(np.argmax(forecaster.posterior.log_evidence))
        posterior = forecaster.posterior.sample(best)
        weights, constant = asymptote_weights(posterior)
    values = {k: float(v) for k, v in posterior.values.items() if k.startswith(("length.", "warp."))}
    configs = tuple(config for _, config in known)
    study = EarlierStudy(name, configs, values, tuple(weights.tolist()), constant, 0.0, forecaster.transform)
    return replace(study, spread=float(EarlierInputs([study], space).of(features).std()))
