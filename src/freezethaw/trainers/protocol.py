"""The training protocol: a function of a `TrainingRun`, which has configuration, checkpoint and `report`; or a class.

A class is trained by a function that we write for it, `function_of`:

    class Network:
        def __init__(self, config, seed): ...      # or a class method build(config, seed)
        def train_epoch(self): ...                 # the loss; or (loss, metrics); or {"loss": ..., "accuracy": ...}
        def save(self, folder): ...                # everything that the next epoch needs
        def load(self, folder): ...

An object is built for a start or thaw. It stays in memory for a while after its run is frozen
(`Checkpoints(in_memory=...)`); a thaw then neither builds nor loads. So all state must be in the object, not in global
variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freezethaw.errors import StudyError, TrainingError
from freezethaw.records import Config

Save = Callable[[Path], object]
# called with epoch, loss, save function and metrics; returns whether to continue
Advance = Callable[[int, float, Save | None, dict[str, float]], bool]


class TrainingRun:
    """One start or thaw of a run. Loop over `epochs()` and `report` one loss in each."""

    def __init__(
        self,
        number: int,
        config: Config,
        seed: int,
        from_epoch: int,
        checkpoint: Path | None,
        advance: Advance,
        to_epoch: int = 0,
    ) -> None:
        self.number = number
        self.config = config
        self.seed = seed  # the same after every thaw
        self.from_epoch = from_epoch
        self.to_epoch = to_epoch  # last epoch of the current decision; the next one may continue the same run
        self.checkpoint = checkpoint
        self.leaving: Callable[[], bool] = _not_leaving  # whether the worker is stopping: then save soon and return
        self.kept: object | None = None  # the object given to `keep` before the freeze, if it is still in memory
        self.more = False  # whether the next loss is already known; nothing can be saved before it is reported
        self._advance = advance
        self._epoch = from_epoch
        self._reported = True
        self._continue = True

    def epochs(self) -> Iterator[int]:
        """from_epoch + 1, from_epoch + 2, ... until the run is frozen."""
        while self._continue:
            if not self._reported:
                raise StudyError(f"epoch {self._epoch} of run {self.number} ended without run.report(loss)")
            self._epoch += 1
            self._reported = False
            yield self._epoch

    def keep(self, model: object) -> None:
        """Give an object to the worker. If the run is thawed soon, it is `kept`, and nothing needs to be loaded.

        Its state must be the one that `save` saves. Check `kept` first: if it is set, `checkpoint` is None.
        """
        self.kept = model

    def report(self, loss: float, save: Save | None = None, **metrics: float) -> None:
        """Report the loss of this epoch. `save(folder)` is called only if a checkpoint is needed."""
        if self._reported:
            raise StudyError(f"epoch {self._epoch} of run {self.number} was already reported; report once per epoch")
        self._reported = True
        self._continue = self._advance(self._epoch, loss, save, metrics)


Train = Callable[[TrainingRun], object]


def _not_leaving() -> bool:
    return False


# Training by a class.

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
