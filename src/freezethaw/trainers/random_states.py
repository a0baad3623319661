"""The random generators that all code of a process shares, as plain values: what a thawed run draws next."""

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
    """All of them, for a run that starts: what nobody seeded would differ between two trainings of the same run."""
    random.seed(seed)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def random_states() -> dict[str, Any]:
    """Of Python, and of NumPy and torch (with every GPU) where they are in use; as JSON can hold them."""
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
    """Put them back; those of libraries that are not in use here are left out."""
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


def remembered() -> Callable[[], None]:
    """Remember them now; call what this gives to put them back."""
    return partial(restore_random_states, random_states())


def save_random_states(folder: Path) -> None:
    """Write them beside the rest of a checkpoint."""
    (folder / FILE).write_text(json.dumps(random_states()), encoding="utf-8")


def load_random_states(folder: Path) -> None:
    """Put back what `save_random_states` wrote."""
    restore_random_states(json.loads((folder / FILE).read_text(encoding="utf-8")))


def _text(state: Any) -> str:
    return bytes(state.cpu().numpy().tobytes()).hex()


def _tensor(torch: Any, text: str) -> Any:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
