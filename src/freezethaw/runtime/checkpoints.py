"""Checkpoints of a study that is kept in memory: one folder for each run, which goes with the process.

A study in a store has a `keeper` instead, which records and verifies them.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from freezethaw.errors import StudyError
from freezethaw.runtime.places import LocalPlace
from freezethaw.trainers.protocol import Save


class CheckpointFolder:
    """One folder for each run, holding its latest checkpoint as `epoch-N`."""

    def __init__(self, folder: Path | str | None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="freezethaw-") if folder is None else None
        self.folder = Path(self._temporary.name if self._temporary else folder or "")
        self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, run: int, epoch: int, save: Save) -> Path:
        """Let the user's function write into a fresh folder, then make it the run's checkpoint."""
        home = self.folder / f"run-{run}"
        place = home / f"epoch-{epoch}"
        shutil.rmtree(place, ignore_errors=True)
        LocalPlace(self.folder).write(f"run-{run}/epoch-{epoch}", save)
        for old in home.glob("epoch-*"):
            if old != place:
                shutil.rmtree(old)
        return place

    def find(self, run: int, epoch: int) -> Path | None:
        """The run's checkpoint, None for a run with no epoch yet."""
        if epoch == 0:
            return None
        place = self.folder / f"run-{run}" / f"epoch-{epoch}"
        if not place.is_dir():
            raise StudyError(
                f"run {run} has no checkpoint of epoch {epoch} in {self.folder}: was save= passed to report?"
            )
        return place

    def close(self) -> None:
        """Remove the folder if it was a temporary one."""
        if self._temporary:
            self._temporary.cleanup()
