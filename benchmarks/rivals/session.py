"""The interface between a rival and a simulation: rows for proposals, losses, and the time of decisions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import freezethaw as ft
from benchmarks.simulate import Simulation, SimulationEnded

CAPS = {"taskset": 2.0}  # three times the loss at chance level, 0.693: see `Session.finite_loss`


@dataclass
class Session:
    """One simulation of one rival. Diverged runs end where they diverge, for all rivals."""

    simulation: Simulation
    mode: str  # "candidates" or "free"
    used: set[int] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)  # of the rival alone, before each epoch
    worst: float | None = None  # largest finite loss observed
    since: float = field(default_factory=time.perf_counter)

    @property
    def seed(self) -> int:
        """The seed of the rival. It differs between tables: those of one suite share configurations."""
        return int(
            np.random.default_rng([self.simulation.seed, *f"rival {self.simulation.table.name}".encode()]).integers(
                2**31
            )
        )

    @property
    def epochs(self) -> int:
        return self.simulation.table.epochs

    @property
    def space(self) -> ft.Space:
        return self.simulation.space

    def row(self, values: Mapping[str, Any]) -> int:
        """The nearest unused row to a proposal."""
        return self.take(self.simulation.nearest_unused(self.config(values), self.used))

    def config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A proposal as a configuration: without inactive parameters, clipped to the bounds."""
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
        """A row for rivals without conditional parameters: inactive ones have the middle of their range."""
        middle = {name: parameter.value(0.5) for name, parameter in self.space.parameters.items()}
        return middle | self.simulation.configs[row]

    def take(self, row: int) -> int:
        """Mark a row as used; end the simulation if it is used already."""
        if row in self.used:
            raise SimulationEnded
        self.used.add(row)
        return row

    def train(self, row: int) -> float:
        """Train one more epoch; raises after the last one. The clock runs only while the rival decides."""
        self.seconds.append(time.perf_counter() - self.since)
        loss = self.simulation.train(row)
        if np.isfinite(loss):
            self.worst = loss if self.worst is None else max(loss, self.worst)
        if self.simulation.spent >= self.simulation.budget:
            raise SimulationEnded
        self.since = time.perf_counter()
        return loss

    def train_to_the_end(self, row: int) -> float:
        """Train a row to the end or until it diverges, and return its last loss."""
        loss = np.nan
        for _ in range(self.epochs):
            loss = self.train(row)
            if not np.isfinite(loss):
                break
        return loss

    def train_up_to(self, row: int, epochs: int) -> float:
        """Train a row up to an epoch; return its last loss."""
        while self.simulation.done[row] < min(epochs, self.simulation.length[row]):
            self.train(row)
        return float(self.simulation.shown[row, self.simulation.done[row] - 1])

    def finite_loss(self, loss: float, capped: bool) -> float:
        """The loss for a rival that accepts only finite values: a diverged loss is replaced by the largest one.

        The losses of TaskSet reach 1e19. A Gaussian process on standardised losses could not distinguish runs, so for
        such rivals losses are capped at CAPS, which is to their advantage.
        """
        cap = CAPS.get(self.simulation.table.suite) if capped else None
        if not np.isfinite(loss):
            loss = next((v for v in (cap, self.worst) if v is not None), 1.0)
        return loss if cap is None else min(loss, cap)


def is_active(parameter: ft.Float | ft.Int | ft.Choice, config: Mapping[str, Any]) -> bool:
    """Whether a parameter is active, given the values of its parents."""
    return all(parent in config and config[parent] in values for parent, values in (parameter.when or {}).items())
