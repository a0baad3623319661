"""PyTorch: the state of a training in one object.

def train(run):
    torch.manual_seed(run.seed)
    model, optimizer, loader = ...
    state = thawed(run, model=model, optimizer=optimizer, loader=loader)    # loads the checkpoint, if there is one
    for epoch in run.epochs():
        ...
        run.report(loss, save=state.save)

A part is an object with `state_dict` and `load_state_dict` (module, optimiser, scheduler, AMP scaler, torchdata
loader), a torch or NumPy generator, a sampler or a loader; None is ignored. The global random generators of Python,
NumPy, torch and all GPUs are included; they are seeded with `run.seed` at the start of a run. Checkpoints are loaded
with `weights_only=True`, so they cannot execute code.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

from freezethaw.errors import TrainingError, extra
from freezethaw.trainers.protocol import TrainingRun
from freezethaw.trainers.random_states import load_random_states, save_random_states, seed_random_states

with extra("torch"):
    import torch

FILE = "state.pt"
WITHIN = ("generator", "sampler", "batch_sampler")  # random state of a loader or sampler


class TorchState:
    """The parts of a training, saved and loaded together."""

    def __init__(self, **parts: Any) -> None:
        self.parts = {name: part for name, part in parts.items() if part is not None}
        for name, part in self.parts.items():
            if not (_has_state(part) or _is_generator(part) or _draws(part)):
                raise TrainingError(
                    f"{name} is a {type(part).__name__}, which has no state to save; expected modules, optimisers, "
                    "schedulers, scalers, generators, samplers and loaders"
                )

    def save(self, folder: Path) -> None:
        """Save to a checkpoint; raises if it could not be loaded with `weights_only=True`."""
        torch.save(_plain({name: _state(part) for name, part in self.parts.items()}), folder / FILE)
        unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(folder / FILE)
        if unsafe:
            raise TrainingError(
                f"a state_dict has {', '.join(sorted(unsafe))}; only tensors and plain values are allowed"
            )
        save_random_states(folder)

    def load(self, folder: Path) -> None:
        """Load from a checkpoint. Random generators are restored last."""
        states = torch.load(folder / FILE, map_location="cpu", weights_only=True)
        if set(states) != set(self.parts):
            raise TrainingError(f"the checkpoint has {', '.join(states)}; this training has {', '.join(self.parts)}")
        for name, part in self.parts.items():
            _restore(part, states[name])
        load_random_states(folder)


def thawed(run: TrainingRun, **parts: Any) -> TorchState:
    """Load the parts of a training from the checkpoint of the run, if there is one."""
    state = TorchState(**parts)
    if run.checkpoint is None:
        seed_random_states(run.seed)
    else:
        state.load(run.checkpoint)
    return state


def load(folder: Path | str, **parts: Any) -> None:
    """Load some parts of a checkpoint, such as the best model: `load(result.best.checkpoint, model=model)`.

    The names are those given to `thawed`. Random generators are not changed.
    """
    wanted, states = (
        TorchState(**parts).parts,
        torch.load(Path(folder) / FILE, map_location="cpu", weights_only=True),
    )
    missing = [name for name in wanted if name not in states]
    if missing:
        raise TrainingError(f"the checkpoint has {', '.join(states)}, but not {', '.join(missing)}")
    for name, part in wanted.items():
        _restore(part, states[name])


def _has_state(part: Any) -> bool:
    return callable(getattr(part, "state_dict", None)) and callable(getattr(part, "load_state_dict", None))


def _is_generator(part: Any) -> bool:
    return isinstance(part, torch.Generator) or hasattr(part, "bit_generator")


def _draws(part: Any) -> bool:
    """Whether it is a sampler or a loader, which draw the order of the data."""
    return isinstance(part, torch.utils.data.Sampler | torch.utils.data.DataLoader)


def _state(part: Any) -> Any:
    if _has_state(part):
        return part.state_dict()
    if isinstance(part, torch.Generator):
        return part.get_state()
    if _is_generator(part):
        return json.dumps(part.bit_generator.state, default=lambda array: array.tolist())
    within = {name: _state(getattr(part, name)) for name in WITHIN if getattr(part, name, None) is not None}
    return within | ({"epoch": part.epoch} if hasattr(part, "epoch") else {})


def _restore(part: Any, state: Any) -> None:
    if _has_state(part):
        part.load_state_dict(state)
    elif isinstance(part, torch.Generator):
        part.set_state(state)
    elif _is_generator(part):
        part.bit_generator.state = json.loads(state)
    else:
        for name, item in state.items():
            if name == "epoch":
                part.epoch = item
            else:
                _restore(getattr(part, name), item)


def _plain(value: Any) -> Any:
    """A copy of containers, with interned strings.

    Pickle writes shared objects once, so without this a loaded state would be saved as different bytes.
    """
    match value:
        case str():
            return sys.intern(str(value))
        case dict() if type(value) in (dict, OrderedDict):
            copied: Any = type(value)((_plain(key), _plain(item)) for key, item in value.items())
            if hasattr(value, "_metadata"):  # versions in the state of a module
                copied._metadata = _plain(value._metadata)
            return copied
        case list() | tuple() if type(value) in (list, tuple):
            return type(value)(_plain(item) for item in value)
    return value
