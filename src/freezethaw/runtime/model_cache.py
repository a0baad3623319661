"""Models of runs that were frozen recently, kept in memory: a cache that saves loading, never the only copy.

A model belongs to one checkpoint, known by run, epoch and content hash. It is used only if that is still the newest
checkpoint of the run, so a run that another worker has advanced since is never taken from here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from freezethaw.records import Checkpoint
from freezethaw.trainers.random_states import remembered


@dataclass(frozen=True)
class _Kept:
    """A model as it was when this checkpoint was saved, and the random generators that it shares with others."""

    epoch: int
    sha256: str
    model: object
    restore: Callable[[], None]


class ModelCache:
    """The models of the last few frozen runs; the least recently used goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[int, _Kept] = OrderedDict()  # by run

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, checkpoint: Checkpoint, model: object) -> None:
        """Keep a model whose state was just saved as this checkpoint."""
        if not self._most:
            return
        self._kept[checkpoint.run] = _Kept(checkpoint.epoch, checkpoint.sha256, model, remembered())
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def take(self, run: int, newest: Checkpoint | None) -> object | None:
        """The model of a run that continues from its newest checkpoint; None if it is not here, or of another one.

        It leaves the cache: from now on it is trained, and no longer equals what was saved.
        """
        kept = self._kept.pop(run, None)
        if kept is None or newest is None or (kept.epoch, kept.sha256) != (newest.epoch, newest.sha256):
            return None
        kept.restore()
        return kept.model

    def disable(self) -> None:
        """Free everything, and keep nothing from now on."""
        self._most = 0
        self._kept.clear()
