"""Plain PyTorch: everything that the next epoch needs, in one object.

def train(run):
    torch.manual_seed(run.seed)
    model, optimizer, loader = ...
    state = thawed(run, model=model, optimizer=optimizer, loader=loader)    # loads, where there is a checkpoint
    for epoch in run.epochs():
        ...
        run.report(loss, save=state.save)

A part is anything with `state_dict` and `load_state_dict` (module, optimiser, schedule, AMP scaler, a loader of
torchdata), a torch or NumPy generator, a sampler or a loader; None is left out. The random generators of Python, NumPy,
torch and every GPU are always part of it, seeded with `run.seed` where the run starts. A checkpoint is loaded with
`weights_only=True`: nothing in it is executed.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

from freezethaw.errors import TrainingError
from freezethaw.trainers.needing import extra
from freezethaw.trainers.protocol import TrainingRun
from freezethaw.trainers.random_states import load_random_states, save_random_states, seed_random_states

with extra("torch"):
    import torch

FILE = "state.pt"
WITHIN = ("generator", "sampler", "batch_sampler")  # what a loader or sampler draws with


class TorchState:
    """The parts of a training, saved and loaded together."""

    def __init__(self, **parts: Any) -> None:
        self.parts = {name: part for name, part in parts.items() if part is not None}
        for name, part in self.parts.items():
            if not (_has_state(part) or _is_generator(part) or _draws(part)):
                raise TrainingError(
                    f"{name} is a {type(part).__name__}, which has no state to save: give modules, optimisers, "
                    "schedules, scalers, generators, samplers and loaders"
                )

    def save(self, folder: Path) -> None:
        """Into a checkpoint; whatever could not be loaded again without executing it is refused now, not later."""
        torch.save(_plain({name: _state(part) for name, part in self.parts.items()}), folder / FILE)
        unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(folder / FILE)
        if unsafe:
            raise TrainingError(f"a state_dict holds {', '.join(sorted(unsafe))}; it may hold tensors and plain values")
        save_random_states(folder)

    def load(self, folder: Path) -> None:
        """From a checkpoint. Random generators come last: whatever loading draws is forgotten."""
        states = torch.load(folder / FILE, map_location="cpu", weights_only=True)
        if set(states) != set(self.parts):
            raise TrainingError(f"the checkpoint has {', '.join(states)}; this training has {', '.join(self.parts)}")
        for name, part in self.parts.items():
            _restore(part, states[name])
        load_random_states(folder)


def thawed(run: TrainingRun, **parts: Any) -> TorchState:
    """The parts of a training as they were when the run was frozen; as they are, where it starts."""
    state = TorchState(**parts)
    if run.checkpoint is None:
        seed_random_states(run.seed)
    else:
        state.load(run.checkpoint)
    return state


def _has_state(part: Any) -> bool:
    return callable(getattr(part, "state_dict", None)) and callable(getattr(part, "load_state_dict", None))


def _is_generator(part: Any) -> bool:
    return isinstance(part, torch.Generator) or hasattr(part, "bit_generator")


def _draws(part: Any) -> bool:
    """Whether it draws the order of the data: a sampler, or a loader that has one."""
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
        for name, held in state.items():
            if name == "epoch":
                part.epoch = held
            else:
                _restore(getattr(part, name), held)


def _plain(value: Any) -> Any:
    """The same value in containers of its own, with one copy of each text.

    Pickle writes what is the same object only once: else a state that was loaded would be saved as other bytes.
    """
    match value:
        case str():
            return sys.intern(str(value))
        case dict() if type(value) in (dict, OrderedDict):
            made: Any = type(value)((_plain(key), _plain(held)) for key, held in value.items())
            if hasattr(value, "_metadata"):  # versions of the modules, in a module's state
                made._metadata = _plain(value._metadata)
            return made
        case list() | tuple() if type(value) in (list, tuple):
            return type(value)(_plain(held) for held in value)
    return value
