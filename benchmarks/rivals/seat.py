"""A rival's seat at the game: rows for its proposals, what it is told of a loss, and the seconds it thinks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import freezethaw as ft
from benchmarks.simulate import Game, Over

CAPS = {"taskset": 2.0}  # three times the loss of chance, 0.693: see `Seat.told`


@dataclass
class Seat:
    """Plays one game for one rival.

    Diverged runs end where they diverge, for all rivals: a user would not train on with NaN.
    """

    game: Game
    mode: str  # "candidates" or "free"
    used: set[int] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)  # of the rival alone, before each epoch
    worst: float | None = None  # largest finite loss shown
    since: float = field(default_factory=time.perf_counter)

    @property
    def seed(self) -> int:
        """The rival's seed: another for each table, as tables of one suite share their configurations."""
        return int(np.random.default_rng([self.game.seed, *f"rival {self.game.table.name}".encode()]).integers(2**31))

    @property
    def epochs(self) -> int:
        return self.game.table.epochs

    @property
    def space(self) -> ft.Space:
        return self.game.space

    def row(self, values: Mapping[str, Any]) -> int:
        """The nearest row not used before: the row itself where the proposal is one."""
        return self.take(self.game.nearest_unused(self.config(values), self.used))

    def config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A proposal as a configuration of the space: without what is inactive, and rounding errors at the bounds."""
        config: dict[str, Any] = {}
        for name, parameter in self.space.parameters.items():
            if not is_active(parameter, config):
                continue
            value = values[name]
            if isinstance(parameter, ft.Float):
                value = min(max(float(value), parameter.low), parameter.high)
            elif isinstance(parameter, ft.Int):
                value = round(value)
            config[name] = value
        return config

    def whole(self, row: int) -> dict[str, Any]:
        """A row for rivals that know no conditions: what is inactive has the middle of its range."""
        middle = {name: parameter.value(0.5) for name, parameter in self.space.parameters.items()}
        return middle | self.game.configs[row]

    def take(self, row: int) -> int:
        """Marks a row as used; ends the game where none is left."""
        if row in self.used:
            raise Over
        self.used.add(row)
        return row

    def train(self, row: int) -> float:
        """One more epoch; the clock runs only while the rival thinks. Ends the game with the last epoch paid for."""
        self.seconds.append(time.perf_counter() - self.since)
        loss = self.game.train(row)
        if np.isfinite(loss):
            self.worst = loss if self.worst is None else max(loss, self.worst)
        if self.game.spent >= self.game.budget:
            raise Over
        self.since = time.perf_counter()
        return loss

    def train_to_the_end(self, row: int) -> float:
        """All epochs of a row, or as many as it has before it diverges; its last loss."""
        loss = np.nan
        for _ in range(self.epochs):
            loss = self.train(row)
            if not np.isfinite(loss):
                break
        return loss

    def train_up_to(self, row: int, epochs: int) -> float:
        """The loss of a row after so many epochs, or of the last one where it diverged or has been trained further."""
        while self.game.done[row] < min(epochs, self.game.length[row]):
            self.train(row)
        return float(self.game.shown[row, self.game.done[row] - 1])

    def told(self, loss: float, capped: bool) -> float:
        """What a rival that accepts only finite values is told: the largest loss seen stands for a diverged one.

        TaskSet's finite losses reach 1e19, beside which a Gaussian process that is fitted to standardised losses sees
        no difference between any two runs. Such rivals are told at most CAPS there, as a careful user would: it is
        to their advantage.
        """
        cap = CAPS.get(self.game.table.suite) if capped else None
        if not np.isfinite(loss):
            loss = next((v for v in (cap, self.worst) if v is not None), 1.0)
        return loss if cap is None else min(loss, cap)


def is_active(parameter: ft.Float | ft.Int | ft.Choice, config: Mapping[str, Any]) -> bool:
    """Whether the values so far, those of all parents among them, make a parameter active."""
    return all(parent in config and config[parent] in values for parent, values in (parameter.when or {}).items())
