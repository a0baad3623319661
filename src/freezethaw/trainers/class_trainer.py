"""Training by a class.

An object is built for a start or thaw. It stays in memory for a while after its run is frozen
(`Checkpoints(in_memory=...)`); a thaw then neither builds nor loads. So all state must be in the object, not in global
variables.

class Network:
def __init__(self, config, seed): ...      # or a class method build(config, seed)
def train_epoch(self): ...                 # the loss; or (loss, metrics); or {"loss": ..., "accuracy": ...}
def save(self, folder): ...                # everything that the next epoch needs
def load(self, folder): ...

ft.tune(function_of(Network), space, ...)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from freezethaw.errors import TrainingError
from freezethaw.trainers.protocol import TrainingRun

METHODS = ("train_epoch", "save", "load")
RESERVED = ("self", "loss", "save")  # not allowed as names of metrics
RETURNS = "return the loss, (loss, metrics), or a dict with 'loss'"


@dataclass(frozen=True)
class ClassTrainer:
    """A training function for a class."""

    trained: type

    def __call__(self, run: TrainingRun) -> None:
        """Build the object, load a checkpoint if there is one, and train epoch by epoch."""
        model: Any = run.kept
        if model is None:
            model = getattr(self.trained, "build", self.trained)(run.config, run.seed)
            if run.checkpoint is not None:
                model.load(run.checkpoint)
            run.keep(model)
        for _ in run.epochs():
            loss, metrics = _loss_and_metrics(model.train_epoch(), self.trained.__name__)
            run.report(loss, save=model.save, **metrics)


def function_of(trained: type) -> ClassTrainer:
    """A training function for a class; raises TrainingError if a method is missing."""
    if not isinstance(trained, type):
        raise TrainingError(f"function_of needs a class, not {trained!r}")
    missing = [name for name in METHODS if not callable(getattr(trained, name, None))]
    if missing:
        raise TrainingError(
            f"{trained.__name__} cannot be trained: it has no method {' and no method '.join(missing)}; "
            f"a class needs __init__(config, seed) or build(config, seed), and {', '.join(METHODS)}"
        )
    return ClassTrainer(trained)


def _loss_and_metrics(found: Any, name: str) -> tuple[float, dict[str, Any]]:
    match found:
        case Mapping():
            if "loss" not in found:
                raise TrainingError(f"{name}.train_epoch returned a dict without 'loss', with {sorted(found)}")
            return _number(found["loss"], name), _metrics({k: v for k, v in found.items() if k != "loss"}, name)
        case (loss, Mapping() as metrics):
            return _number(loss, name), _metrics(metrics, name)
    return _number(found, name), {}


def _metrics(found: Mapping[Any, Any], name: str) -> dict[str, Any]:
    metrics = {str(key): value for key, value in found.items()}
    for key in RESERVED:
        if key in metrics:
            raise TrainingError(f"{name}.train_epoch returned a metric named {key!r}; use another name")
    return metrics


def _number(loss: Any, name: str) -> float:
    try:
        if not isinstance(loss, str | bytes | bool):
            return float(loss)
    except (TypeError, ValueError):
        pass
    raise TrainingError(f"{name}.train_epoch returned the loss {loss!r}; {RETURNS}")
