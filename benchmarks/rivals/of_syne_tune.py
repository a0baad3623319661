"""Schedulers of Syne Tune, driven through their own interface as `syne_tune.Tuner` drives them, with one worker.

A promoted trial goes on from its checkpoint. A diverged loss is reported as the largest finite loss seen so far, and
unless the scheduler pauses the trial right there, the trial completes with it. Rivals with a Gaussian process get
TaskSet's losses capped (Seat.told).

With the table as candidates, MOBSTER and DyHPO choose among its rows by `restrict_configurations`, and ASHA, which
draws at random, has the number of the row as its one hyperparameter. In free mode they propose anywhere in the space.
Syne Tune knows no conditions: what is inactive is proposed, and ignored.
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
from benchmarks.rivals.seat import Seat

logging.getLogger("syne_tune").setLevel(logging.ERROR)
METRIC, RESOURCE, ROW = "loss", "epoch", "row"


def asha(seat: Seat) -> None:
    """ASHA by promotion (pause and resume), random search."""
    if seat.mode == "candidates":
        space = {ROW: config_space.choice(list(range(len(seat.game.features))))}
        drive(seat, legacy_baselines.ASHA(space, points_to_evaluate=[], **_halving(seat)), capped=False)
    else:
        drive(seat, legacy_baselines.ASHA(_space(seat), **_halving(seat)), capped=False)


def mobster(seat: Seat) -> None:
    """MOBSTER: ASHA by promotion, new configurations from a joint Gaussian process over configurations and epochs."""
    drive(seat, legacy_baselines.MOBSTER(_space(seat), **_halving(seat) | _rows(seat)), capped=True)


def dyhpo(seat: Seat) -> None:
    """DyHPO with MOBSTER's model, one epoch at a time as in its paper (rung_increment 1), else by default."""
    options = _common(seat) | {"grace_period": 1, "rung_increment": 1} | _rows(seat)
    drive(seat, legacy_baselines.DyHPO(_space(seat), **options), capped=True)


def _common(seat: Seat) -> dict[str, Any]:
    return {
        "metric": METRIC,
        "mode": "min",
        "resource_attr": RESOURCE,
        "max_t": seat.epochs,
        "random_seed": seat.seed,
        "search_options": {"debug_log": False},
    }


def _halving(seat: Seat) -> dict[str, Any]:
    return _common(seat) | {"type": "promotion", "grace_period": 1, "reduction_factor": 3}


def _space(seat: Seat) -> dict[str, Any]:
    return {name: _domain(parameter) for name, parameter in seat.space.parameters.items()}


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


def _rows(seat: Seat) -> dict[str, Any]:
    """Options that restrict a model-based searcher to the rows; without them it starts at the centre of the space."""
    if seat.mode != "candidates":
        return {}
    rows = [seat.whole(row) for row in range(len(seat.game.configs))]
    return {
        "points_to_evaluate": [],
        "search_options": {"debug_log": False, "restrict_configurations": rows},
    }


def drive(seat: Seat, scheduler: LegacyTrialScheduler, capped: bool) -> None:
    """The loop of Tuner.run: what is suggested is started or resumed, and runs until it is paused or stopped."""
    trials: dict[int, tuple[Trial, int]] = {}
    while (suggestion := scheduler.suggest(len(trials))) is not None:
        if suggestion.spawn_new_trial_id:
            trial = Trial(len(trials), suggestion.config, dt.datetime.now())
            trials[trial.trial_id] = trial, _row_of(seat, suggestion.config)
            scheduler.on_trial_add(trial)
            _run(seat, scheduler, *trials[trial.trial_id], capped)
        else:
            _run(seat, scheduler, *trials[int(suggestion.checkpoint_trial_id)], capped)


def _row_of(seat: Seat, config: dict[str, Any]) -> int:
    return seat.take(config[ROW]) if ROW in config else seat.row(config)


def _run(seat: Seat, scheduler: LegacyTrialScheduler, trial: Trial, row: int, capped: bool) -> None:
    """One stay of a trial on the worker."""
    while True:
        loss = seat.train(row)
        result = {METRIC: seat.told(loss, capped), RESOURCE: int(seat.game.done[row])}
        if scheduler.on_trial_result(trial, result) != SchedulerDecision.CONTINUE:
            scheduler.on_trial_remove(trial)
            return
        if not np.isfinite(loss):
            scheduler.on_trial_complete(trial, result)
            return
