"""The global random generators of Python, NumPy and torch, saved and restored with a run."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

FILE = "random.json"


def seed_random_states(seed: int) -> None:
    """Seed all generators at the start of a run, so that unseeded code is reproducible too."""
    random.seed(seed)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def random_states() -> dict[str, Any]:
    """The states of Python, and of NumPy and torch (with all GPUs) if imported, as JSON values."""
    states: dict[str, Any] = {"python": random.getstate()}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        states["numpy"] = [kind, keys.tolist(), *rest]
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = _text(torch.get_rng_state())
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["cuda"] = [_text(state) for state in torch.cuda.get_rng_state_all()]
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Restore the states; those of libraries that are not imported are ignored."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and "numpy" in states:
        kind, keys, *rest = states["numpy"]
        numpy.random.set_state((kind, numpy.array(keys, dtype=numpy.uint32), *rest))
    torch: Any = sys.modules.get("torch")
    if torch is not None and "torch" in states:
        torch.set_rng_state(_tensor(torch, states["torch"]))
        for device in range(min(torch.cuda.device_count(), len(states.get("cuda", ())))):
            torch.cuda.set_rng_state(_tensor(torch, states["cuda"][device]), device)


def snapshot_random_states() -> Callable[[], None]:
    """Record the states now; call the result to restore them."""
    return partial(restore_random_states, random_states())


def save_random_states(folder: Path) -> None:
    """Save the states in a checkpoint."""
    (folder / FILE).write_text(json.dumps(random_states()), encoding="utf-8")


def load_random_states(folder: Path) -> None:
    """Load the states from a checkpoint."""
    restore_random_states(json.loads((folder / FILE).read_text(encoding="utf-8")))


def _text(state: Any) -> str:
    return bytes(state.cpu().numpy().tobytes()).hex()


def _tensor(torch: Any, text: str) -> Any:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
