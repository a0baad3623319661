"""Weighted samples of the model's hyperparameters, as plain numbers that can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from freezethaw.losses import Transform
from freezethaw.model.curves import Array
from freezethaw.model.loss_units import LossUnits
from freezethaw.model.specification import Values

# hyperparameters that were added to the default model, at values that change it little: for studies stored before
ADDED = {"tilt": 0.0, "late.variance": 1e-6}


@dataclass(frozen=True)
class HyperparameterSamples:
    """S weighted samples from the posterior of the hyperparameters, in given loss units; plain numbers only."""

    model: str
    units: LossUnits
    values: tuple[Mapping[str, float], ...]
    log_weights: tuple[float, ...]  # normalised
    log_evidences: tuple[float, ...]  # of the losses at each sample, at the last reweighting
    next_update: int = 0  # which sample the slice sampler updates next
    count: int = 0  # losses that were known at the last update; zero if that was not stored

    @property
    def weights(self) -> Array:
        """(S,) importance weights, normalised."""
        return np.asarray(np.exp(np.array(self.log_weights)))

    def stacked(self) -> dict[str, Array]:
        """The values by name, each an array (S,)."""
        return {name: np.array([values[name] for values in self.values]) for name in self.values[0]}

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, strings and numbers. The keys are stored in databases and do not change."""
        units = asdict(self.units)
        return {
            "model": self.model,
            "anchor": units | {"transform": {k: _plain(v) for k, v in units["transform"].items()}},
            "samples": [dict(values) for values in self.values],
            "log_weights": list(self.log_weights),
            "log_evidences": list(self.log_evidences),
            "turn": self.next_update,
            "losses": self.count,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> HyperparameterSamples:
        """The samples that `to_dict` wrote."""
        units = dict(stored["anchor"])
        transform: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in units.pop("transform").items()
        }
        added = {} if stored["model"] == "paper" else ADDED  # of studies that were stored before it existed
        return cls(
            stored["model"],
            LossUnits(Transform(**transform), **units),
            tuple(added | values for values in stored["samples"]),
            tuple(stored["log_weights"]),
            tuple(stored["log_evidences"]),
            stored["turn"],
            stored.get("losses", 0),
        )


def unstacked(values: Values) -> tuple[dict[str, float], ...]:
    """The values (S,) of S samples as one dictionary for each."""
    columns = {name: np.asarray(v).tolist() for name, v in values.items()}
    count = len(next(iter(columns.values())))
    return tuple({name: column[i] for name, column in columns.items()} for i in range(count))


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
