"""Play a table: a tuner asks for epochs, the table answers; what counts is the best loss so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.tables import Table

AT = (25, 50, 100, 200, 300, 500, 1000)


@dataclass(frozen=True)
class Trace:
    """Best loss after each epoch spent, its regret, and seconds of each decision."""

    regret: np.ndarray
    seconds: np.ndarray


def normalised(table: Table, best: np.ndarray) -> np.ndarray:
    """(best so far - best in the table) / (median final - best in the table), at most 1."""
    means = table.losses.mean(axis=1)
    finite = np.where(np.isfinite(means), means, np.inf)
    lowest, median = finite.min(), np.median(finite[np.isfinite(finite[:, -1]), -1])
    return np.minimum((best - lowest) / (median - lowest), 1.0)
