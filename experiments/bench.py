"""Training of runs for methods that choose runs themselves: random search, successive halving, the paper's baseline.

`Bench` has the interface of `benchmarks.rivals.session.Session`, so that the same implementations of random search and
successive halving are used; losses come from real training.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.simulate import SimulationEnded

import freezethaw as ft
from experiments.diary import Diary
from experiments.problems import Problem, Training

MOST_RUNS = 10_000
EVERY = 10  # epochs between two saves of a run


@dataclass(frozen=True)
class Endless:
    """Replaces the rows of a table: new configurations never run out."""

    features: range = range(MOST_RUNS)


@dataclass
class Bench:
    """Trains any run up to any epoch. A run is saved when another one is trained, and loaded again later.

    After an interruption, epochs in the diary are trained again only to restore the state of a run.
    """

    problem: Problem
    seed: int
    budget: int
    diary: Diary
    folder: Path  # of saved runs
    mode: str = "free"
    simulation: Endless = field(default_factory=Endless)
    configs: list[Mapping[str, Any]] = field(default_factory=list)
    losses: list[list[float]] = field(default_factory=list)
    spent: int = 0
    _in_hand: tuple[int, Training] | None = None
    _epoch: int = 0  # of the run in hand

    @property
    def epochs(self) -> int:
        """The last epoch of a run."""
        return self.problem.max_epochs

    @property
    def space(self) -> ft.Space:
        """Where configurations come from."""
        return self.problem.space

    def row(self, config: Mapping[str, Any]) -> int:
        """A new run with this configuration."""
        self.configs.append(self.space.validate(config))
        self.losses.append([])
        return len(self.configs) - 1

    def train_to_the_end(self, row: int) -> float:
        """All epochs of a run, or as many as it has before it diverges; its last loss."""
        return self.train_up_to(row, self.epochs)

    def train_up_to(self, row: int, epochs: int) -> float:
        """The loss of a run after so many epochs, or of the last one where it diverged. Ends where the budget ends."""
        losses = self.losses[row]
        while len(losses) < epochs and (not losses or np.isfinite(losses[-1])):
            known = self.diary.loss_of(row, len(losses) + 1)
            losses.append(self._train(row, len(losses) + 1) if known is None else known)
            self.spent += 1
            if self.spent >= self.budget:
                raise SimulationEnded
        return losses[-1]

    def _train(self, row: int, epoch: int) -> float:
        """One epoch of a run, its state restored where it was left."""
        if self._in_hand is None or self._in_hand[0] != row:
            self._leave()
            self._epoch, training = self._restored(row)
            self._in_hand = row, training
        training = self._in_hand[1]
        while self._epoch < epoch:
            self._epoch += 1
            loss = self.diary.train_epoch(row, self._epoch, self.configs[row], training)
        if epoch % EVERY == 0:
            self._leave()
        return loss

    def _leave(self) -> None:
        """Save the run in hand, where it has epochs left."""
        if self._in_hand is None or self._epoch >= self.epochs:
            return
        row, training = self._in_hand
        old = self._saved(row)
        draft = self.folder / f".run-{row}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        training.save(draft)
        target = self.folder / f"run-{row}-epoch-{self._epoch}"
        if not target.exists():
            draft.rename(target)
        for folder in old.values():
            if folder != target:
                shutil.rmtree(folder)

    def _restored(self, row: int) -> tuple[int, Training]:
        """The run as it was last saved, and its epoch."""
        training = self.problem.build(self.configs[row], self._run_seed(row))
        saved = self._saved(row)
        if not saved:
            return 0, training
        epoch = max(saved)
        training.load(saved[epoch])
        return epoch, training

    def _saved(self, row: int) -> dict[int, Path]:
        """Where the run was saved, by epoch; only what the diary knows counts."""
        found = {int(path.name.split("-")[-1]): path for path in self.folder.glob(f"run-{row}-epoch-*")}
        return {epoch: path for epoch, path in found.items() if epoch <= len(self.losses[row]) + 1}

    def _run_seed(self, row: int) -> int:
        """As a study gives its runs theirs."""
        return int(np.random.SeedSequence([self.seed, row + 1]).generate_state(1)[0])
