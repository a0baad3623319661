"""Samplers and pruners of Optuna with their defaults. Proposals are mapped to the nearest unused row.

Optuna has no candidates, so both modes are the same. Pruned trials cannot be resumed. TPE suggests only active
parameters. With a pruner, a diverged trial is reported and pruned, which TPE ranks below all others. The Gaussian
process supports neither conditions nor pruned or failed trials: it proposes all parameters, of which the inactive ones
are ignored; it is told the last loss of a pruned trial, the largest loss for a diverged one, and capped losses of
TaskSet (Session.finite_loss).
"""

from __future__ import annotations

import warnings

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import TrialState

import freezethaw as ft
from benchmarks.rivals.session import Session, is_active

MAX_VALUES = 1000
optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def tpe_hyperband(session: Session) -> None:
    """TPE with the Hyperband pruner, whose largest resource is the table's number of epochs."""
    _prune(session, optuna.pruners.HyperbandPruner(min_resource=1, max_resource=session.epochs))


def tpe_median(session: Session) -> None:
    """TPE with the median pruner."""
    _prune(session, optuna.pruners.MedianPruner())


def gp_full(session: Session) -> None:
    """Gaussian process with expected improvement over full runs."""
    study = optuna.create_study(sampler=optuna.samplers.GPSampler(seed=session.seed))
    space = _distributions(session.space)
    while True:
        trial = study.ask(space)
        study.tell(trial, session.finite_loss(session.train_to_the_end(session.row(trial.params)), capped=True))


def gp_median(session: Session) -> None:
    """Gaussian process with the median pruner."""
    sampler = optuna.samplers.GPSampler(seed=session.seed)
    study = optuna.create_study(sampler=sampler, pruner=optuna.pruners.MedianPruner())
    space = _distributions(session.space)
    while True:
        trial = study.ask(space)
        loss, _ = _train_until_pruned(session, trial, session.row(trial.params))
        study.tell(trial, session.finite_loss(loss, capped=True))


def _distributions(space: ft.Space) -> dict[str, BaseDistribution]:
    """The space; integers with a long range as floats, since GPSampler enumerates their values."""
    found = space.to_optuna()
    for name, parameter in space.parameters.items():
        if isinstance(parameter, ft.Int) and parameter.count > MAX_VALUES:
            found[name] = FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    return found


def _prune(session: Session, pruner: optuna.pruners.BasePruner) -> None:
    # Hyperband hashes the name of the study to assign brackets, so the name depends on the seed. Published results used
    # this name: do not change it.
    sampler, name = optuna.samplers.TPESampler(seed=session.seed), f"game {session.seed}"
    study = optuna.create_study(sampler=sampler, pruner=pruner, study_name=name)
    while True:
        trial = study.ask()
        loss, finished = _train_until_pruned(session, trial, session.row(_suggest(trial, session.space)))
        if finished:
            study.tell(trial, loss)
        else:
            study.tell(trial, state=TrialState.PRUNED)


def _suggest(trial: optuna.Trial, space: ft.Space) -> dict[str, object]:
    """Suggest the active parameters, parents first."""
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


def _train_until_pruned(session: Session, trial: optuna.Trial, row: int) -> tuple[float, bool]:
    """Train until pruned; return the last loss and whether the row was trained to the end."""
    loss = np.nan
    for epoch in range(1, session.epochs + 1):
        loss = session.train(row)
        trial.report(loss, epoch)
        if not np.isfinite(loss) or (epoch < session.epochs and trial.should_prune()):
            return loss, False
    return loss, True
