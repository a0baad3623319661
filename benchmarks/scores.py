"""How good a forecast was: log density, CRPS, coverage, PIT; and tables to print."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from freezethaw.losses import Forecast

LEVELS = (np.arange(40) + 0.5) / 40
FLOOR = -10.0  # of one log density, so that one wild loss does not decide a benchmark


@dataclass(frozen=True)
class Scores:
    """One entry for each query; losses in units of the table."""

    log_density: np.ndarray
    crps: np.ndarray
    squared_error: np.ndarray
    inside_90: np.ndarray
    inside_50: np.ndarray
    pit: np.ndarray

    def where(self, mask: np.ndarray) -> Scores:
        return Scores(*[getattr(self, f.name)[mask] for f in fields(self)])

    @staticmethod
    def together(parts: list[Scores]) -> Scores:
        return Scores(*[np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Scores)])

    def summary(self) -> dict[str, float | int]:
        return {
            "queries": len(self.crps),
            "log_likelihood": float(self.log_density.mean()),
            "crps": float(self.crps.mean()),
            "squared_error": float(self.squared_error.mean()),
            "covered_90": float(self.inside_90.mean()),
            "covered_50": float(self.inside_50.mean()),
        }

    def pit_histogram(self, bins: int = 10) -> list[float]:
        return [float(v) for v in np.histogram(self.pit, bins=bins, range=(0, 1))[0] / max(len(self.pit), 1)]


def score(forecast: Forecast, losses: np.ndarray, unit: float) -> Scores:
    """Score a forecast of several losses; `unit` is the range of the table."""
    quantiles = forecast.quantile(LEVELS)
    error = losses[None, :] - quantiles
    pinball = np.where(error > 0, LEVELS[:, None] * error, (LEVELS[:, None] - 1) * error)
    slack = 1e-9 * unit  # a capped loss sits on the edge of its interval
    low90, high90, low50, high50 = forecast.quantile(np.array([0.05, 0.95, 0.25, 0.75]))
    return Scores(
        np.maximum(forecast.log_density(losses) + np.log(unit), FLOOR),
        2 * pinball.mean(axis=0) / unit,
        ((forecast.mean - losses) / unit) ** 2,
        (losses >= low90 - slack) & (losses <= high90 + slack),
        (losses >= low50 - slack) & (losses <= high50 + slack),
        forecast.probability_below(losses),
    )


def print_table(head: list[str], body: list[list[str]]) -> None:
    """Columns aligned, the first to the left."""
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    for row in [head, *body]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        print("  ".join(cells))
