"""DEHB by its authors: Hyperband whose new configurations come from differential evolution, by ask and tell.

DEHB knows no candidates, so both modes are the same game: a new configuration is mapped to the nearest unused row. One
that it evaluates again with more epochs goes on from its checkpoint, which is more than DEHB itself would do. Epochs
are its fidelities rounded. Diverged losses are told as the largest seen; being rank-based, it needs no cap.
"""

from __future__ import annotations

import tempfile
from typing import Any

import ConfigSpace
from dehb import DEHB

import freezethaw as ft
from benchmarks.rivals.seat import Seat


def dehb(seat: Seat) -> None:
    """DEHB with its defaults, one worker."""
    with tempfile.TemporaryDirectory() as folder:
        tuner = DEHB(
            cs=_space(seat),
            min_fidelity=1,
            max_fidelity=seat.epochs,
            n_workers=1,
            seed=seat.seed,
            save_freq=None,
            output_path=folder,
            log_level="ERROR",
        )
        rows: dict[int, int] = {}
        while True:
            wanted = tuner.ask()
            if wanted["config_id"] not in rows:
                rows[wanted["config_id"]] = seat.row(_plain(wanted["config"]))
            loss = seat.train_up_to(rows[wanted["config_id"]], max(round(wanted["fidelity"]), 1))
            tuner.tell(wanted, {"fitness": seat.told(loss, capped=False), "cost": 0.0})


def _plain(config: Any) -> dict[str, Any]:
    """The values that are active."""
    return {name: value for name, value in dict(config).items() if value is not None}


def _space(seat: Seat) -> ConfigSpace.ConfigurationSpace:
    space = ConfigSpace.ConfigurationSpace(seed=seat.seed)
    made = {name: _hyperparameter(name, parameter) for name, parameter in seat.space.parameters.items()}
    space.add_hyperparameters(list(made.values()))
    for name, parameter in seat.space.parameters.items():
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
