"""What a training function receives: the configuration, where to continue from, and a place to report losses to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from freezethaw.errors import StudyError
from freezethaw.records import Config

Save = Callable[[Path], object]
# called with epoch, loss, the user's save function, other metrics; says whether to go on
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
        self.to_epoch = to_epoch  # where the decision of now ends; it may be followed by another for the same run
        self.checkpoint = checkpoint
        self.leaving: Callable[[], bool] = _stay  # whether the worker wants to leave: then save soon, and return
        self.kept: object | None = None  # what `keep` was given when this run was frozen, if it is still in memory
        self.more = False  # whether the next loss is at hand already, and only after it there is something to save
        self._advance = advance
        self._epoch = from_epoch
        self._reported = True
        self._go_on = True

    def epochs(self) -> Iterator[int]:
        """from_epoch + 1, from_epoch + 2, ... until the run is frozen."""
        while self._go_on:
            if not self._reported:
                raise StudyError(f"epoch {self._epoch} of run {self.number} ended without run.report(loss)")
            self._epoch += 1
            self._reported = False
            yield self._epoch

    def keep(self, model: object) -> None:
        """Leave an object with the worker, to be found as `kept` when the run is thawed soon, with nothing to load.

        Its state must be what `save` saves, and `kept` must be asked for first: then `checkpoint` is None.
        """
        self.kept = model

    def report(self, loss: float, save: Save | None = None, **metrics: float) -> None:
        """Tell the loss of this epoch. `save(folder)` is called only when a checkpoint is needed."""
        if self._reported:
            raise StudyError(
                f"epoch {self._epoch} of run {self.number} was reported already; report once in each epoch"
            )
        self._reported = True
        self._go_on = self._advance(self._epoch, loss, save, metrics)


Train = Callable[[TrainingRun], object]


def _stay() -> bool:
    return False
