"""Keras 3, with any backend: a callback that reports, saves and loads.

def train(run):
    keras.utils.set_random_seed(run.seed)
    model = ...
    model.fit(x, y, validation_data=..., epochs=MAX_EPOCHS, initial_epoch=run.from_epoch, callbacks=[FreezeThaw(run)])

The loss is `val_loss` or the name given as `loss=`; other logs are reported as metrics. A checkpoint contains all
variables of the model and the optimiser, including the states of random layers, and the generators of Python, NumPy and
torch, as arrays and JSON, which cannot execute code. The states of other callbacks are not saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from freezethaw.errors import TrainingError, extra
from freezethaw.trainers.protocol import TrainingRun
from freezethaw.trainers.random_states import load_random_states, save_random_states, seed_random_states

with extra("keras"):
    import keras

FILE = "variables.npz"


class FreezeThaw(keras.callbacks.Callback):
    """Reports each epoch and stops the fit when the run is frozen."""

    def __init__(self, run: TrainingRun, loss: str = "val_loss") -> None:
        super().__init__()
        self._run, self._loss, self._epochs = run, loss, run.epochs()
        self._due: int | None = None  # the epoch being trained

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Load the checkpoint, if there is one."""
        self._due = next(self._epochs)
        if self._run.checkpoint is None:
            seed_random_states(self._run.seed)
        else:
            self.load(self._run.checkpoint)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Keras counts epochs from 0."""
        if epoch + 1 != self._due:
            raise TrainingError(f"expected epoch {self._due}, not {epoch + 1}: fit(..., initial_epoch=run.from_epoch)")

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Report, and stop if the run is frozen."""
        metrics = {name: float(value) for name, value in (logs or {}).items()}
        if self._loss not in metrics:
            raise TrainingError(f"there is no {self._loss!r} in the logs, only {', '.join(metrics)}; set loss=")
        loss = metrics.pop(self._loss)
        training = {"training_loss": metrics.pop("loss")} if "loss" in metrics else {}
        self._run.report(loss, save=self.save, **metrics, **training)
        self._due = next(self._epochs, None)
        if self._due is None:
            self.model.stop_training = True

    def save(self, folder: Path) -> None:
        """Save to a checkpoint."""
        np.savez(folder / FILE, **{f"{i:05}": _array(variable) for i, variable in enumerate(self._variables())})
        save_random_states(folder)

    def load(self, folder: Path) -> None:
        """Load from a checkpoint. Random generators are restored last."""
        variables, saved = self._variables(), _saved(folder)
        if [array.shape for array in saved] != [tuple(variable.shape) for variable in variables]:
            raise TrainingError("the checkpoint is of another model or optimiser")
        for variable, array in zip(variables, saved, strict=True):
            variable.assign(array)
        load_random_states(folder)

    def _variables(self) -> list[Any]:
        """All variables that training changes."""
        model = self.model
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        return [*_weights(model), *model.optimizer.variables]


def load(folder: Path | str, model: Any) -> None:
    """Load the weights of a model from a checkpoint, such as the best one: `load(result.best.checkpoint, model)`."""
    variables, saved = _weights(model), _saved(Path(folder))
    saved = saved[: len(variables)]  # those of the optimiser follow
    if [array.shape for array in saved] != [tuple(variable.shape) for variable in variables]:
        raise TrainingError("the checkpoint is of another model")
    for variable, array in zip(variables, saved, strict=True):
        variable.assign(array)


def _weights(model: Any) -> list[Any]:
    """The variables of a model without those of its metrics, which are reset in each epoch."""
    metrics = {id(variable) for variable in model.metrics_variables}
    return [one for one in model.variables if id(one) not in metrics]


def _saved(folder: Path) -> list[Any]:
    with np.load(folder / FILE, allow_pickle=False) as arrays:
        return [arrays[name] for name in sorted(arrays.files)]


def _array(variable: Any) -> Any:
    """A variable as a NumPy array; bfloat16 is converted to float32, without loss."""
    array = np.asarray(keras.ops.convert_to_numpy(variable))
    return array.astype(np.float32) if array.dtype.kind == "V" or array.dtype.name == "bfloat16" else array
