"""Runs that were frozen lately, kept in memory: a cache that spares the load, never the only copy.

What is kept belongs to one checkpoint, known by run, epoch and content hash. It is given out only where that is still
the newest checkpoint of the run, so a run that another worker has advanced since is never taken from here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from freezethaw.store import NewCheckpoint, StoredCheckpoint
from freezethaw.trainers.random_states import remembered


@dataclass(frozen=True)
class _Kept:
    """An object as it was when this checkpoint was saved, and the random generators that it shares with others."""

    epoch: int
    sha256: str
    held: object
    restore: Callable[[], None]


class Memory:
    """The objects of the last few frozen runs; at most so many, the longest unused goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[int, _Kept] = OrderedDict()  # by run

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, run: int, checkpoint: NewCheckpoint | StoredCheckpoint, held: object) -> None:
        """Keep an object whose state was just saved as this checkpoint."""
        if not self._most:
            return
        self._kept[run] = _Kept(checkpoint.epoch, checkpoint.sha256, held, remembered())
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def take(self, run: int, newest: StoredCheckpoint | None) -> object | None:
        """The object of a run that goes on from its newest checkpoint; None where it is not here, or of another one.

        It leaves the cache: from now on it is trained, and is what was saved no more.
        """
        kept = self._kept.pop(run, None)
        if kept is None or newest is None or (kept.epoch, kept.sha256) != (newest.epoch, newest.sha256):
            return None
        kept.restore()
        return kept.held

    def give_up(self) -> None:
        """Free everything, and keep nothing from now on."""
        self._most = 0
        self._kept.clear()
