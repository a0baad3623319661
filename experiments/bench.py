"""A bench for methods that train runs themselves: random search, successive halving, the paper's baseline.

It offers what a rival of the regret benchmark sits at (benchmarks/rivals/seat.py), so that the very same random search
and the very same successive halving play here; but losses come from real training.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from benchmarks.simulate import Over

import freezethaw as ft
from experiments.diary import Diary
from experiments.problems import Problem, Training

MOST_RUNS = 10_000


@dataclass(frozen=True)
class Endless:
    """Stands for a table's rows where new configurations never run out."""

    features: range = range(MOST_RUNS)


@dataclass
class Bench:
    """Trains any run up to any epoch; a run that is left is saved, and loaded when its turn comes again."""

    problem: Problem
    seed: int
    budget: int
    diary: Diary
    mode: str = "free"
    game: Endless = field(default_factory=Endless)
    configs: list[Mapping[str, Any]] = field(default_factory=list)
    losses: list[list[float]] = field(default_factory=list)
    _in_hand: tuple[int, Training] | None = None

    def __enter__(self) -> Bench:
        self._home = tempfile.TemporaryDirectory(prefix="freezethaw-experiment-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._home.cleanup()

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
            losses.append(self.diary.train_epoch(row, self.configs[row], self._training(row)))
            if self.diary.epochs >= self.budget:
                raise Over
        return losses[-1]

    def _training(self, row: int) -> Training:
        if self._in_hand is not None and self._in_hand[0] == row:
            return self._in_hand[1]
        if self._in_hand is not None:
            left, training = self._in_hand
            if len(self.losses[left]) < self.epochs:
                self._folder(left).mkdir(exist_ok=True)
                training.save(self._folder(left))
        training = self.problem.build(self.configs[row], self._run_seed(row))
        if self.losses[row]:
            training.load(self._folder(row))
        self._in_hand = row, training
        return training

    def _folder(self, row: int) -> Path:
        return Path(self._home.name) / str(row)

    def _run_seed(self, row: int) -> int:
        """As a study gives its runs theirs."""
        return int(np.random.SeedSequence([self.seed, row + 1]).generate_state(1)[0])
