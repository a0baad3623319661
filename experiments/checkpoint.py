"""The state of a training as one file of arrays, the random generator's included. Nothing is pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

FILE = "state.npz"


def write(folder: Path, arrays: Mapping[str, np.ndarray], rng: np.random.Generator) -> None:
    """Save arrays and the generator's state."""
    state: dict[str, Any] = {**arrays, "random_state": np.array(json.dumps(rng.bit_generator.state))}
    np.savez(Path(folder) / FILE, **state)


def read(folder: Path, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The arrays that `write` saved; the state of the generator is restored."""
    with np.load(Path(folder) / FILE, allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    rng.bit_generator.state = json.loads(str(arrays.pop("random_state")))
    return arrays
