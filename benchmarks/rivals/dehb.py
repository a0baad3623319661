"""DEHB by its authors: Hyperband whose new configurations come from differential evolution, by ask and tell.

DEHB has no candidates, so both modes are the same: a new configuration is mapped to the nearest unused row. A
configuration that is evaluated again with more epochs continues from its checkpoint, which DEHB itself would not do.
Epochs are its rounded fidelities. Diverged losses are replaced by the largest one; it is rank-based and needs no cap.
"""

from __future__ import annotations

import tempfile
from typing import Any

import ConfigSpace
from dehb import DEHB

import freezethaw as ft
from benchmarks.rivals.session import Session


def dehb(session: Session) -> None:
    """DEHB with its defaults, one worker."""
    with tempfile.TemporaryDirectory() as folder:
        tuner = DEHB(
            cs=_space(session),
            min_fidelity=1,
            max_fidelity=session.epochs,
            n_workers=1,
            seed=session.seed,
            save_freq=None,
            output_path=folder,
            log_level="ERROR",
        )
        rows: dict[int, int] = {}
        while True:
            wanted = tuner.ask()
            if wanted["config_id"] not in rows:
                rows[wanted["config_id"]] = session.row(_plain(wanted["config"]))
            loss = session.train_up_to(rows[wanted["config_id"]], max(round(wanted["fidelity"]), 1))
            tuner.tell(wanted, {"fitness": session.finite_loss(loss, capped=False), "cost": 0.0})


def _plain(config: Any) -> dict[str, Any]:
    """The active values."""
    return {name: value for name, value in dict(config).items() if value is not None}


def _space(session: Session) -> ConfigSpace.ConfigurationSpace:
    space = ConfigSpace.ConfigurationSpace(seed=session.seed)
    made = {name: _hyperparameter(name, parameter) for name, parameter in session.space.parameters.items()}
    space.add_hyperparameters(list(made.values()))
    for name, parameter in session.space.parameters.items():
        for parent, values in (parameter.when or {}).items():
            space.add_condition(ConfigSpace.InCondition(made[name], made[parent], list(values)))
    return space


def _hyperparameter(name: str, parameter: ft.Float | ft.Int | ft.Choice) -> Any:
    match parameter:
        case ft.Float(low=low, high=high, log=log):
            return ConfigSpace.UniformFloatHyperparameter(name, low, high, log=log)
        case ft.Int(low=low, high=high, log=log):
            return ConfigSpace.UniformIntegerHyperparameter(name, low, high, log=log)
        case ft.Choice(values=values, ordered=True):
            return ConfigSpace.OrdinalHyperparameter(name, list(values))
        case ft.Choice(values=values):
            return ConfigSpace.CategoricalHyperparameter(name, list(values))
    raise TypeError(parameter)
