"""What is believed of the hyperparameters: weighted samples, as plain numbers that can be kept outside a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from freezethaw.losses import Transform
from freezethaw.model.curves import Array
from freezethaw.model.observations import Anchor
from freezethaw.model.specification import Values


@dataclass(frozen=True)
class Belief:
    """Weighted samples of the hyperparameters in the units of an anchor; plain numbers only."""

    model: str
    anchor: Anchor
    samples: tuple[Values, ...]
    log_weights: tuple[float, ...]  # normalised
    log_evidences: tuple[float, ...]  # of the observations at each sample, when last weighed
    turn: int = 0  # whose turn it is to move

    @property
    def weights(self) -> Array:
        """(S,) that sum to one."""
        return np.asarray(np.exp(np.array(self.log_weights)))


def as_numbers(belief: Belief) -> dict[str, Any]:
    """A belief as plain lists, texts and numbers, to be kept outside this process."""
    anchor = asdict(belief.anchor)
    samples = [dict(sample) for sample in belief.samples]
    return {
        "model": belief.model,
        "anchor": anchor | {"transform": {k: _plain(v) for k, v in anchor["transform"].items()}},
        "samples": samples,
        "log_weights": list(belief.log_weights),
        "log_evidences": list(belief.log_evidences),
        "turn": belief.turn,
    }


def of_numbers(numbers: Mapping[str, Any]) -> Belief:
    """The belief that `as_numbers` wrote."""
    anchor = dict(numbers["anchor"])
    transform: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in anchor.pop("transform").items()}
    return Belief(
        numbers["model"],
        Anchor(Transform(**transform), **anchor),
        tuple(dict(sample) for sample in numbers["samples"]),
        tuple(numbers["log_weights"]),
        tuple(numbers["log_evidences"]),
        numbers["turn"],
    )


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
