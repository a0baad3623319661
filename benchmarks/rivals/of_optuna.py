"""Samplers and pruners of Optuna with their defaults, by ask and tell. Proposals are mapped to the nearest unused row.

Optuna knows no candidates, so both modes are the same game. Pruned trials cannot be resumed. TPE suggests parameters
one by one, and so only those that are active. With a pruner, a diverged trial is reported and pruned, which TPE takes
as worse than all others. The Gaussian process has no use for conditions, nor for pruned or failed trials: it proposes
all parameters, of which the inactive are ignored, it is told the last loss of a pruned trial, the largest loss seen
for a diverged one, and TaskSet's losses capped (Seat.told).
"""

from __future__ import annotations

import warnings

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import TrialState

import freezethaw as ft
from benchmarks.rivals.seat import Seat, is_active

MOST_VALUES = 1000
optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def tpe_hyperband(seat: Seat) -> None:
    """TPE with the Hyperband pruner, whose largest resource is the table's number of epochs."""
    _prune(seat, optuna.pruners.HyperbandPruner(min_resource=1, max_resource=seat.epochs))


def tpe_median(seat: Seat) -> None:
    """TPE with the median pruner."""
    _prune(seat, optuna.pruners.MedianPruner())


def gp_full(seat: Seat) -> None:
    """Gaussian process with expected improvement over full runs."""
    study = optuna.create_study(sampler=optuna.samplers.GPSampler(seed=seat.seed))
    space = _distributions(seat.space)
    while True:
        trial = study.ask(space)
        study.tell(trial, seat.told(seat.train_to_the_end(seat.row(trial.params)), capped=True))


def gp_median(seat: Seat) -> None:
    """Gaussian process with the median pruner."""
    sampler = optuna.samplers.GPSampler(seed=seat.seed)
    study = optuna.create_study(sampler=sampler, pruner=optuna.pruners.MedianPruner())
    space = _distributions(seat.space)
    while True:
        trial = study.ask(space)
        loss, _ = _train_until_pruned(seat, trial, seat.row(trial.params))
        study.tell(trial, seat.told(loss, capped=True))


def _distributions(space: ft.Space) -> dict[str, BaseDistribution]:
    """The whole space; whole numbers of a long range as floats, since GPSampler tries their values one by one."""
    found = space.to_optuna()
    for name, parameter in space.parameters.items():
        if isinstance(parameter, ft.Int) and parameter.count > MOST_VALUES:
            found[name] = FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    return found


def _prune(seat: Seat, pruner: optuna.pruners.BasePruner) -> None:
    # Hyperband draws its brackets by the study's name: one from the seed makes the game repeatable, and no two alike.
    sampler, name = optuna.samplers.TPESampler(seed=seat.seed), f"game {seat.seed}"
    study = optuna.create_study(sampler=sampler, pruner=pruner, study_name=name)
    while True:
        trial = study.ask()
        loss, finished = _train_until_pruned(seat, trial, seat.row(_suggest(trial, seat.space)))
        if finished:
            study.tell(trial, loss)
        else:
            study.tell(trial, state=TrialState.PRUNED)


def _suggest(trial: optuna.Trial, space: ft.Space) -> dict[str, object]:
    """The parameters that are active, parents before what hangs on them."""
    config: dict[str, object] = {}
    for name, parameter in space.parameters.items():
        if not is_active(parameter, config):
            continue
        match parameter:
            case ft.Float(low=low, high=high, log=log):
                config[name] = trial.suggest_float(name, low, high, log=log)
            case ft.Int(low=low, high=high, log=log):
                config[name] = trial.suggest_int(name, low, high, log=log)
            case ft.Choice(values=values):
                config[name] = trial.suggest_categorical(name, list(values))
    return config


def _train_until_pruned(seat: Seat, trial: optuna.Trial, row: int) -> tuple[float, bool]:
    """The last loss, and whether the row was trained to the end."""
    loss = np.nan
    for epoch in range(1, seat.epochs + 1):
        loss = seat.train(row)
        trial.report(loss, epoch)
        if not np.isfinite(loss) or (epoch < seat.epochs and trial.should_prune()):
            return loss, False
    return loss, True
