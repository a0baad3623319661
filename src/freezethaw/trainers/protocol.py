"""`TrainingRun`, the argument of a training function: configuration, checkpoint and `report`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from freezethaw.errors import StudyError
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
