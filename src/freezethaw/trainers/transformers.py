"""Hugging Face transformers: a callback of its Trainer that reports, saves and loads.

def train(run):
    arguments = TrainingArguments(num_train_epochs=MAX_EPOCHS, seed=run.seed, save_strategy="no", ...)
    trainer = Trainer(model, arguments, train_dataset=..., eval_dataset=..., callbacks=[FreezeThaw(run)])
    trainer.train(resume_from_checkpoint=run.checkpoint)

After each epoch the model is evaluated, and the loss is `eval_loss`, or what `loss=` names; the other numbers are kept
as metrics. The model is saved as safetensors, where the Trainer finds it; its optimiser, schedule and scaler are loaded
with `weights_only=True`, and the rest is JSON: nothing in a checkpoint is executed.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from freezethaw.errors import TrainingError
from freezethaw.trainers.needing import extra
from freezethaw.trainers.protocol import TrainingRun
from freezethaw.trainers.pytorch import TorchState, thawed

with extra("transformers"):
    from transformers import TrainerCallback

FILE = "trainer_state.json"  # where the Trainer looks for it
STOPWATCH = ("_runtime", "_per_second")  # endings of logs that differ each time


class FreezeThaw(TrainerCallback):
    """Evaluates and reports each epoch, and ends the training where the run is frozen."""

    def __init__(self, run: TrainingRun, loss: str = "eval_loss") -> None:
        self._run, self._loss, self._epochs = run, loss, run.epochs()
        self._due: int | None = None  # the epoch to train now
        self._over = False  # whether an epoch has just ended
        self._state: TorchState | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:  # noqa: ARG002 - of the Trainer
        """Load, where there is a checkpoint; the model has been loaded by the Trainer."""
        self._due = next(self._epochs)
        if round(state.epoch or 0) + 1 != self._due:
            raise TrainingError(f"epoch {self._due} is due: trainer.train(resume_from_checkpoint=run.checkpoint)")
        optimizer, scheduler = parts["optimizer"], parts["lr_scheduler"]
        if type(scheduler).__name__ == "ReduceLROnPlateau":
            raise TrainingError("the Trainer steps reduce_lr_on_plateau only after an epoch was reported; use another")
        scaler = getattr(optimizer, "scaler", None)
        self._state = thawed(self._run, optimizer=optimizer, scheduler=scheduler, scaler=scaler)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **parts: Any) -> Any:  # noqa: ARG002 - of the Trainer
        """Ask for an evaluation."""
        self._over = control.should_evaluate = True
        return control

    def on_evaluate(self, args: Any, state: Any, control: Any, **parts: Any) -> Any:  # noqa: ARG002 - of the Trainer
        """Report, and end where the run is frozen."""
        if not self._over or self._due is None:
            return control
        self._over = False
        found = {name: float(value) for name, value in parts["metrics"].items() if not name.endswith(STOPWATCH)}
        if self._loss not in found:
            raise TrainingError(f"there is no {self._loss!r} in the metrics, only {', '.join(found)}; give loss=")
        loss = found.pop(self._loss)
        self._run.report(loss, save=lambda folder: self._save(folder, parts["model"], state), **found)
        self._due = next(self._epochs, None)
        control.should_training_stop = control.should_training_stop or self._due is None
        return control

    def _save(self, folder: Path, model: Any, state: Any) -> None:
        """Into a checkpoint, as the Trainer would lay it out."""
        if not hasattr(model, "save_pretrained"):
            raise TrainingError(f"{type(model).__name__} has no save_pretrained; train a model of transformers or peft")
        model.save_pretrained(folder)
        logs = [{name: log[name] for name in log if not name.endswith(STOPWATCH)} for log in state.log_history]
        dataclasses.replace(state, log_history=logs, total_flos=0).save_to_json(str(folder / FILE))
        assert self._state is not None  # noqa: S101 - made when the training began
        self._state.save(folder)
