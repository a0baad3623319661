"""A worker in miniature: grants epochs, calls save where it freezes, remembers what was reported."""

from __future__ import annotations

import os
from pathlib import Path

from freezethaw.trainers import TrainingRun


class Bench:
    """Trains one run through a list of decisions; `ends` says where each one ends."""

    def __init__(self, folder, config=None, seed=7):
        self.folder, self.config, self.seed = Path(folder), config or {"rate": 0.1}, seed
        self.reported, self.metrics, self.saved = [], [], None

    def train(self, function, ends, leaving=lambda: False):
        """One start or thaw: decisions up to each of `ends`, one after the other, and then the run is frozen."""
        before = len(self.reported)
        ends = list(ends)

        def advance(epoch, loss, save, metrics):
            assert epoch == len(self.reported) + 1
            self.reported.append(float(loss))
            self.metrics.append(metrics)
            if epoch < run.to_epoch and (run.more or not leaving()):
                return True
            ends.pop(0)
            if ends and not leaving():
                run.to_epoch = ends[0]
                return True
            if save is not None:
                place = self.folder / f"checkpoint-{epoch}"
                place.mkdir()
                save(place)
                self.saved = place
            return False

        run = TrainingRun(1, self.config, self.seed, before, self.saved, advance, ends[0])
        run.leaving = leaving
        function(run)
        return self.reported[before:]


def script(folder, text, name="train.sh"):
    """An executable file."""
    file = Path(folder) / name
    file.write_text(text)
    os.chmod(file, 0o755)  # noqa: PTH101
    return file
