"""Hugging Face transformers: a Trainer callback that reports, saves and loads.

def train(run):
    arguments = TrainingArguments(num_train_epochs=MAX_EPOCHS, seed=run.seed, save_strategy="no", ...)
    trainer = Trainer(model, arguments, train_dataset=..., eval_dataset=..., callbacks=[FreezeThaw(run)])
    trainer.train(resume_from_checkpoint=run.checkpoint)

After each epoch the model is evaluated. The loss is `eval_loss` or the name given as `loss=`; other numbers are
reported as metrics. The model is saved as safetensors, where the Trainer finds it; optimiser, scheduler and scaler are
loaded with `weights_only=True`, and the rest is JSON, so a checkpoint cannot execute code.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from freezethaw.errors import TrainingError, extra
from freezethaw.trainers.protocol import TrainingRun
from freezethaw.trainers.pytorch import TorchState, thawed

with extra("transformers"):
    from transformers import TrainerCallback

FILE = "trainer_state.json"  # the name that the Trainer expects
TIMING_SUFFIXES = ("_runtime", "_per_second")  # of logs that differ each time


class FreezeThaw(TrainerCallback):
    """Evaluates and reports each epoch and stops the training when the run is frozen."""

    def __init__(self, run: TrainingRun, loss: str = "eval_loss") -> None:
        self._run, self._loss, self._epochs = run, loss, run.epochs()
        self._due: int | None = None  # the epoch being trained
        self._epoch_ended = False  # an epoch has ended and is not yet reported
        self._state: TorchState | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:  # noqa: ARG002
        """Load the checkpoint, if there is one; the Trainer has loaded the model."""
        self._due = next(self._epochs)
        if round(state.epoch or 0) + 1 != self._due:
            raise TrainingError(f"expected epoch {self._due}: use trainer.train(resume_from_checkpoint=run.checkpoint)")
        optimizer, scheduler = parts["optimizer"], parts["lr_scheduler"]
        if type(scheduler).__name__ == "ReduceLROnPlateau":
            raise TrainingError("reduce_lr_on_plateau is not supported: the Trainer steps it after the report")
        scaler = getattr(optimizer, "scaler", None)
        self._state = thawed(self._run, optimizer=optimizer, scheduler=scheduler, scaler=scaler)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **parts: Any) -> Any:  # noqa: ARG002
        """Request an evaluation."""
        self._epoch_ended = control.should_evaluate = True
        return control

    def on_evaluate(self, args: Any, state: Any, control: Any, **parts: Any) -> Any:  # noqa: ARG002
        """Report, and stop if the run is frozen."""
        if not self._epoch_ended or self._due is None:
            return control
        self._epoch_ended = False
        found = {name: float(value) for name, value in parts["metrics"].items() if not name.endswith(TIMING_SUFFIXES)}
        if self._loss not in found:
            raise TrainingError(f"there is no {self._loss!r} in the metrics, only {', '.join(found)}; set loss=")
        loss = found.pop(self._loss)
        self._run.report(loss, save=lambda folder: self._save(folder, parts["model"], state), **found)
        self._due = next(self._epochs, None)
        control.should_training_stop = control.should_training_stop or self._due is None
        return control

    def _save(self, folder: Path, model: Any, state: Any) -> None:
        """Save to a checkpoint, in the layout of the Trainer."""
        if not hasattr(model, "save_pretrained"):
            raise TrainingError(f"{type(model).__name__} has no save_pretrained; use a model of transformers or peft")
        model.save_pretrained(folder)
        logs = [{name: log[name] for name in log if not name.endswith(TIMING_SUFFIXES)} for log in state.log_history]
        dataclasses.replace(state, log_history=logs, total_flos=0).save_to_json(str(folder / FILE))
        assert self._state is not None  # noqa: S101 - set at the start
        self._state.save(folder)
