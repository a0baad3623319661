"""Samplers and pruners of Optuna with their defaults, by ask and tell. Proposals are mapped to the nearest unused row.

Optuna knows no candidates, so both modes are the same game. Pruned trials cannot be resumed. With a pruner, a diverged
trial is reported and pruned, which the sampler takes as worse than all others; the Gaussian process has no use for
pruned or failed trials, so it is told the largest loss seen, and TaskSet's losses capped (Seat.told).
"""

from __future__ import annotations

import warnings

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

from benchmarks.rivals.seat import Seat

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
    space = _cube(seat)
    while True:
        trial = study.ask(space)
        study.tell(trial, seat.told(seat.train_to_the_end(seat.row(trial.params)), capped=True))


def _cube(seat: Seat) -> dict[str, FloatDistribution]:
    return {column: FloatDistribution(0.0, 1.0) for column in seat.columns}


def _prune(seat: Seat, pruner: optuna.pruners.BasePruner) -> None:
    # The number of the study enters Hyperband's brackets by its name, so a name makes the game repeatable.
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seat.seed), pruner=pruner, study_name="game")
    space = _cube(seat)
    while True:
        trial = study.ask(space)
        loss = _train_until_pruned(seat, trial, seat.row(trial.params))
        if loss is None:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            study.tell(trial, loss)


def _train_until_pruned(seat: Seat, trial: optuna.Trial, row: int) -> float | None:
    loss = np.nan
    for epoch in range(1, seat.epochs + 1):
        loss = seat.train(row)
        trial.report(loss, epoch)
        if not np.isfinite(loss) or (epoch < seat.epochs and trial.should_prune()):
            return None
    return loss
