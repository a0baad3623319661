"""Schedulers of Syne Tune, driven through their own interface as `syne_tune.Tuner` drives them, with one worker.

A promoted trial continues from its checkpoint. A diverged loss is reported as the largest finite loss so far, and
unless the scheduler pauses the trial there, the trial completes. Rivals with a Gaussian process get capped losses of
TaskSet (Session.finite_loss).

With the table as candidates, MOBSTER and DyHPO choose among its rows by `restrict_configurations`, and ASHA, which
draws at random, has the number of the row as its one hyperparameter. In free mode they propose in the whole space.
Syne Tune has no conditions: inactive parameters are proposed and ignored.
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any

import numpy as np
from syne_tune import config_space
from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer import legacy_baselines
from syne_tune.optimizer.legacy_scheduler import LegacyTrialScheduler
from syne_tune.optimizer.scheduler import SchedulerDecision

import freezethaw as ft
from benchmarks.rivals.session import Session

logging.getLogger("syne_tune").setLevel(logging.ERROR)
METRIC, RESOURCE, ROW = "loss", "epoch", "row"


def asha(session: Session) -> None:
    """ASHA by promotion (pause and resume), random search."""
    if session.mode == "candidates":
        space = {ROW: config_space.choice(list(range(len(session.simulation.features))))}
        drive(session, legacy_baselines.ASHA(space, points_to_evaluate=[], **_halving(session)), capped=False)
    else:
        drive(session, legacy_baselines.ASHA(_space(session), **_halving(session)), capped=False)


def mobster(session: Session) -> None:
    """MOBSTER: ASHA by promotion, new configurations from a joint Gaussian process over configurations and epochs."""
    drive(session, legacy_baselines.MOBSTER(_space(session), **_halving(session) | _rows(session)), capped=True)


def dyhpo(session: Session) -> None:
    """DyHPO with MOBSTER's model, one epoch at a time as in its paper (rung_increment 1), else by default."""
    options = _common(session) | {"grace_period": 1, "rung_increment": 1} | _rows(session)
    drive(session, legacy_baselines.DyHPO(_space(session), **options), capped=True)


def _common(session: Session) -> dict[str, Any]:
    return {
        "metric": METRIC,
        "mode": "min",
        "resource_attr": RESOURCE,
        "max_t": session.epochs,
        "random_seed": session.seed,
        "search_options": {"debug_log": False},
    }


def _halving(session: Session) -> dict[str, Any]:
    return _common(session) | {"type": "promotion", "grace_period": 1, "reduction_factor": 3}


def _space(session: Session) -> dict[str, Any]:
    return {name: _domain(parameter) for name, parameter in session.space.parameters.items()}


def _domain(parameter: ft.Float | ft.Int | ft.Choice) -> Any:
    match parameter:
        case ft.Float(low=low, high=high, log=log):
            return (config_space.loguniform if log else config_space.uniform)(low, high)
        case ft.Int(low=low, high=high, log=log):
            return (config_space.lograndint if log else config_space.randint)(low, high)
        case ft.Choice(values=values, ordered=True):
            return config_space.ordinal(list(values), kind="equal")
        case ft.Choice(values=values):
            return config_space.choice(list(values))
    raise TypeError(parameter)


def _rows(session: Session) -> dict[str, Any]:
    """Options that restrict a model-based searcher to the rows; without them it starts at the centre of the space."""
    if session.mode != "candidates":
        return {}
    rows = [session.whole(row) for row in range(len(session.simulation.configs))]
    return {
        "points_to_evaluate": [],
        "search_options": {"debug_log": False, "restrict_configurations": rows},
    }


def drive(session: Session, scheduler: LegacyTrialScheduler, capped: bool) -> None:
    """The loop of Tuner.run: what is suggested is started or resumed, and runs until it is paused or stopped."""
    trials: dict[int, tuple[Trial, int]] = {}
    while (suggestion := scheduler.suggest(len(trials))) is not None:
        if suggestion.spawn_new_trial_id:
            trial = Trial(len(trials), suggestion.config, dt.datetime.now())
            trials[trial.trial_id] = trial, _row_of(session, suggestion.config)
            scheduler.on_trial_add(trial)
            _run(session, scheduler, *trials[trial.trial_id], capped)
        else:
            _run(session, scheduler, *trials[int(suggestion.checkpoint_trial_id)], capped)


def _row_of(session: Session, config: dict[str, Any]) -> int:
    return session.take(config[ROW]) if ROW in config else session.row(config)


def _run(session: Session, scheduler: LegacyTrialScheduler, trial: Trial, row: int, capped: bool) -> None:
    """Train a trial until it is paused, stopped or complete."""
    while True:
        loss = session.train(row)
        result = {METRIC: session.finite_loss(loss, capped), RESOURCE: int(session.simulation.done[row])}
        if scheduler.on_trial_result(trial, result) != SchedulerDecision.CONTINUE:
            scheduler.on_trial_remove(trial)
            return
        if not np.isfinite(loss):
            scheduler.on_trial_complete(trial, result)
            return
