"""Play a table: a tuner asks for epochs of its rows, the table answers, and the regret is recorded.

Only NumPy and the tables are needed here, so that rivals in an environment of their own play the very same game.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.tables import Table

AT = (25, 50, 100, 200, 300, 500, 1000)
CONFIGS = 1000  # rows that may be chosen, as in the recorded games of ifBO


class Over(Exception):  # noqa: N818 - an end, not a mistake
    """The budget is spent."""


@dataclass
class Game:
    """One table, one seed, a number of epochs to spend. Where a table has several seeds, each row draws one."""

    table: Table
    seed: int
    budget: int
    spent: int = 0
    curve: list[float] = field(default_factory=list)  # regret after each epoch
    best: float = np.inf  # lowest loss shown
    recommended: float = np.inf  # true loss of what the tuner recommends

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, *self.table.name.encode()])
        losses = self.table.losses[:CONFIGS]
        self.shown = losses[np.arange(len(losses)), rng.integers(losses.shape[1], size=len(losses))]
        self.true = losses.mean(axis=1)  # what a recommendation is worth
        finite = np.where(np.isfinite(self.true), self.true, np.inf)
        ends = finite[np.isfinite(finite[:, -1]), -1]
        self.lowest, self.median = float(finite.min()), float(np.median(ends))
        self.features = self.table.features[:CONFIGS]
        self.done = np.zeros(len(losses), dtype=int)
        self.diverged = np.zeros(len(losses), dtype=bool)

    def train(self, row: int) -> float:
        """One more epoch of a row; its loss. The lowest loss shown is taken as recommended until `recommend`."""
        if self.spent >= self.budget:
            raise Over
        loss = float(self.shown[row, self.done[row]])
        self.done[row] += 1
        self.spent += 1
        self.diverged[row] |= not np.isfinite(loss)
        if np.isfinite(loss) and loss < self.best:
            self.best = loss
            self.recommended = float(self.true[row, self.done[row] - 1])
        self.curve.append(self._regret())
        return loss

    def recommend(self, row: int, epoch: int) -> None:
        """What the tuner holds to be best now, where it has an opinion of its own."""
        self.recommended = float(self.true[row, epoch - 1])
        self.curve[-1] = self._regret()

    def _regret(self) -> float:
        if not np.isfinite(self.recommended):
            return 1.0
        return float(min(max((self.recommended - self.lowest) / (self.median - self.lowest), 0.0), 1.0))

    def nearest_unused(self, features: np.ndarray, used: set[int]) -> int:
        """The row nearest to a free proposal that was not used before (free mode)."""
        distance = ((self.features - features[None]) ** 2).sum(axis=1)
        distance[list(used)] = np.inf
        return int(distance.argmin())

    def regrets(self) -> dict[str, float]:
        """Regret at the milestones reached."""
        return {str(at): self.curve[at - 1] for at in AT if at <= len(self.curve)}
