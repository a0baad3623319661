"""Lightning: a callback that reports, saves and loads.

def train(run):
    lightning.seed_everything(run.seed)
    trainer = lightning.Trainer(max_epochs=MAX_EPOCHS, callbacks=[FreezeThaw(run)])
    trainer.fit(model, train_loader, valid_loader)

The loss is the logged `val_loss` or the name given as `loss=`; other logs are reported as metrics. A checkpoint has
the module, optimisers and schedulers, the precision plugin (AMP scaler), the other callbacks, the counters of the loops
and the random generators. An epoch is reported after its schedulers have stepped, when the next one would begin. A
checkpoint is loaded with `weights_only=True`, not by Lightning, so it cannot execute code.
"""

from __future__ import annotations

from typing import Any

from freezethaw.errors import TrainingError, extra
from freezethaw.trainers.protocol import TrainingRun
from freezethaw.trainers.pytorch import TorchState, thawed

with extra("lightning"):
    from lightning.pytorch import Callback


class FreezeThaw(Callback):
    """Reports each epoch and stops the fit when the run is frozen."""

    def __init__(self, run: TrainingRun, loss: str = "val_loss") -> None:
        self._run, self._loss, self._epochs = run, loss, run.epochs()
        self._due: int | None = None  # the epoch being trained
        self._state: TorchState | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Load the checkpoint, if there is one."""
        self._due = next(self._epochs)
        self._state = thawed(self._run, **_parts(trainer, pl_module, self))

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Report the previous epoch, which is complete now; stop if the run is frozen."""
        if trainer.current_epoch == self._due:
            self._report(trainer)
            if self._due is None:
                raise StopIteration  # this is how Lightning ends its loop
        if trainer.current_epoch + 1 != self._due:
            raise TrainingError(f"expected epoch {self._due}, not {trainer.current_epoch + 1}: fit without ckpt_path")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Report the last epoch."""
        if trainer.current_epoch == self._due:
            self._report(trainer)

    def _report(self, trainer: Any) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if self._loss not in metrics:
            raise TrainingError(f"{self._loss!r} was not logged, only {', '.join(metrics) or 'nothing'}; set loss=")
        loss = metrics.pop(self._loss)
        training = {"training_loss": metrics.pop("loss")} if "loss" in metrics else {}
        assert self._state is not None  # noqa: S101 - set at the start
        self._run.report(loss, save=self._state.save, **metrics, **training)
        self._due = next(self._epochs, None)


class _Loops:
    """The counters of the loops, between two epochs."""

    def __init__(self, trainer: Any) -> None:
        self._loop = trainer.fit_loop

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._loop.state_dict()
        for counts in state["epoch_progress"].values():  # independent of whether the next epoch has been announced
            counts["ready"] = counts["completed"]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loop.load_state_dict(state)
        self._loop.restarting = False  # no epoch was interrupted
        self._loop.on_iteration_done()


def _parts(trainer: Any, module: Any, own: Callback) -> dict[str, Any]:
    """All objects that training changes, by name."""
    others = [callback for callback in trainer.callbacks if callback is not own]
    return {
        "module": module,
        "precision": trainer.precision_plugin,
        "loops": _Loops(trainer),
        **{f"optimizer{i}": one for i, one in enumerate(trainer.optimizers)},
        **{f"scheduler{i}": one.scheduler for i, one in enumerate(trainer.lr_scheduler_configs)},
        **{f"callback{i}": one for i, one in enumerate(others)},
    }
