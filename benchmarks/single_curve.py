"""Rivals that look at one curve at a time: "stays at its last value", and a power law by least squares.

Each with a Gaussian error whose spread, for the same epochs seen and asked, is estimated on the other runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

from freezethaw.losses import Forecast, Transform

if TYPE_CHECKING:
    from benchmarks.forecast import Context

SMALLEST_SPREAD = 1e-4  # of the table's range


def last_value(curve: np.ndarray, epochs: int) -> np.ndarray:
    """The last loss stays."""
    return np.full(epochs, curve[-1])


def power_law(curve: np.ndarray, epochs: int) -> np.ndarray:
    """C + b t^-a by least squares, kept within twice the range seen; fewer than three epochs determine nothing."""
    if len(curve) < 3 or np.ptp(curve) == 0:
        return last_value(curve, epochs)
    t, seen = np.arange(1.0, epochs + 1), np.arange(1.0, len(curve) + 1)

    def error(p: np.ndarray, at: np.ndarray = seen) -> np.ndarray:
        return p[0] + p[1] * at ** -np.exp(np.clip(p[2], -6, 3)) - curve

    starts = [(curve[-1], curve[0] - curve[-1], log_power) for log_power in (-1.0, 0.0)]
    best = min((least_squares(error, start, max_nfev=200) for start in starts), key=lambda fit: fit.cost).x
    margin = 2 * np.ptp(curve)
    law = best[0] + best[1] * t ** -np.exp(np.clip(best[2], -6, 3))
    return np.clip(law, curve.min() - margin, curve.max() + margin)


METHODS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {"last": last_value, "power": power_law}


def only_old(ctx: Context) -> Context:
    """These methods know nothing of configurations: queries of unseen runs are left out."""
    return replace(ctx, queries=tuple(q for q in ctx.queries if q[1] > 0))


def forecast(ctx: Context, method: str) -> Forecast:
    """Gaussian forecasts in the user's units."""
    fit = METHODS[method]
    laws: dict[tuple[int, int], np.ndarray] = {}

    def law(row: int, count: int) -> np.ndarray:
        if (row, count) not in laws:
            laws[row, count] = fit(ctx.losses[row, :count], ctx.losses.shape[1])
        return laws[row, count]

    def spread(row: int, count: int, epoch: int) -> float:
        others = [(r, n) for r, n in ctx.seen if r != row]
        errors = [ctx.losses[r, epoch - 1] - law(r, count)[epoch - 1] for r, n in others if n >= epoch]
        if len(errors) < 3:  # too few runs reached that epoch: what is nearest to it on each
            errors = [
                ctx.losses[r, min(n, epoch) - 1] - law(r, min(count, n - 1))[min(n, epoch) - 1]
                for r, n in others
                if n > 1
            ]
        rms = float(np.sqrt(np.mean(np.square(errors)))) if errors else 0.1 * ctx.unit
        return max(rms, SMALLEST_SPREAD * ctx.unit)

    means = np.array([law(row, k)[e - 1] for row, k, e in ctx.queries])
    spreads = np.array([spread(*query) for query in ctx.queries])
    identity = Transform(1.0, (0.0, 1.0), (0.0, 1.0), (1.0, 1.0), np.inf)
    one = np.ones((1, len(means)))
    return Forecast(identity, one, means[None], spreads[None], np.inf * one)
