"""Simulate a search on a table: a tuner requests epochs of rows, and the regret is recorded.

This module needs only NumPy, the tables and their spaces, so that rivals use the same simulation in their own
environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.tables import Table

AT = (25, 50, 100, 200, 300, 500, 1000)
CONFIGS = 1000  # rows that may be chosen, as in the published results of ifBO


class SimulationEnded(Exception):  # noqa: N818
    """The budget is spent, or all rows are used."""


@dataclass
class Simulation:
    """One table, one seed and a budget of epochs. If a table has several seeds, one is drawn for each row."""

    table: Table
    seed: int
    budget: int  # epochs
    spent: int = 0
    elapsed: float = 0.0  # seconds of training, if the table has them
    curve: list[float] = field(default_factory=list)  # regret after each epoch
    clock: list[float] = field(default_factory=list)  # seconds after each epoch
    best: float = np.inf  # lowest loss observed
    recommended: float = np.inf  # true loss of the recommendation
    recommends: bool = False  # whether the tuner makes its own recommendations

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, *self.table.name.encode()])
        losses = self.table.losses[:CONFIGS]
        self.shown = losses[np.arange(len(losses)), rng.integers(losses.shape[1], size=len(losses))]
        self.true = losses.mean(axis=1)  # scores recommendations
        finite = np.where(np.isfinite(self.true), self.true, np.inf)
        ends = finite[np.isfinite(finite[:, -1]), -1]
        self.lowest, self.median = float(finite.min()), float(np.median(ends))
        self.space = self.table.space
        self.configs = self.table.configs[:CONFIGS]
        self.features = self.space.features_of(self.configs)
        self.seconds = None if self.table.seconds is None else self.table.seconds[:CONFIGS]
        self.done = np.zeros(len(losses), dtype=int)
        # epochs of each row until it diverges, that one included
        finite = np.isfinite(self.shown)
        self.diverges = ~finite.all(axis=1)
        self.length = np.where(self.diverges, finite.argmin(axis=1) + 1, self.shown.shape[1])

    @property
    def epoch_seconds(self) -> float:
        """Mean seconds of an epoch in the table."""
        return 1.0 if self.seconds is None else float(self.seconds.mean())

    def price(self, row: int, count: int = 1) -> float:
        """Seconds of the next epochs of a row; one per epoch if the table has no times."""
        start = int(self.done[row])
        return float(count) if self.seconds is None else float(self.seconds[row, start : start + count].sum())

    def train(self, row: int) -> float:
        """Train one more epoch of a row. Without `recommend`, the lowest observed loss is the recommendation."""
        if self.spent >= self.budget:
            raise SimulationEnded
        self.elapsed += self.price(row)
        loss = float(self.shown[row, self.done[row]])
        self.done[row] += 1
        self.spent += 1
        if np.isfinite(loss) and loss < self.best:
            self.best = loss
            if not self.recommends:
                self.recommended = float(self.true[row, self.done[row] - 1])
        self.curve.append(self._regret())
        self.clock.append(self.elapsed)
        return loss

    def recommend(self, row: int, epoch: int) -> None:
        """Set the recommendation of the tuner."""
        self.recommends = True
        self.recommended = float(self.true[row, epoch - 1])
        self.curve[-1] = self._regret()

    def _regret(self) -> float:
        if not np.isfinite(self.recommended):
            return 1.0
        return float(min(max((self.recommended - self.lowest) / (self.median - self.lowest), 0.0), 1.0))

    def floor(self, epochs: int) -> float:
        """The lowest possible regret if no row is trained longer than this, even with all losses known."""
        reached = self.true[:, :epochs]
        return float((reached[np.isfinite(reached)].min() - self.lowest) / (self.median - self.lowest))

    def nearest_unused(self, config: Mapping[str, Any], used: set[int]) -> int:
        """The unused row nearest to a proposal, by the features of the space."""
        if len(used) >= len(self.features):
            raise SimulationEnded
        distance = ((self.features - self.space.features(config)[None]) ** 2).sum(axis=1)
        distance[list(used)] = np.inf
        return int(distance.argmin())

    def result(self, rows_ran_out: bool = False) -> dict[str, Any]:
        """The result. If all rows are used, the last recommendation holds for the rest of the budget."""
        curve = self.curve + [self.curve[-1]] * (self.budget - self.spent if rows_ran_out else 0)
        kept: dict[str, Any] = {"regret": {str(at): _short(curve[at - 1]) for at in AT if at <= len(curve)}}
        if self.seconds is not None:
            kept["regret_by_seconds"] = self._by_seconds()
        kept |= {
            "budget": self.budget,
            "spent": self.spent,
            "runs": int((self.done > 0).sum()),
            "diverged": int(((self.done >= self.length) & self.diverges).sum()),
            "diverging": self._diverging(),
        }
        return kept

    def _diverging(self) -> dict[str, float]:
        """Share of epochs and of runs on rows that diverge, and the same for random rows trained to the end."""
        started = self.done > 0
        return {
            "share": _short(self.done[self.diverges].sum() / max(self.spent, 1)),
            "random": _short(self.length[self.diverges].sum() / self.length.sum()),
            "runs": _short(self.diverges[started].mean() if started.any() else 0.0),
            "random_runs": _short(self.diverges.mean()),
        }

    def _by_seconds(self) -> dict[str, float]:
        """Regret at multiples of the mean seconds of an epoch."""
        found = {}
        for at in AT:
            until = at * self.epoch_seconds
            if self.elapsed >= until:
                over = int(np.searchsorted(self.clock, until, side="right"))
                found[str(at)] = _short(self.curve[over - 1] if over else 1.0)
        return found


def _short(value: float) -> float:
    return float(f"{value:.5g}")
