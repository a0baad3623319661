"""Rivals of a few lines: random search, and successive halving by the rule of its paper."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.rivals.seat import Seat

REDUCTION = 3


def random(seat: Seat) -> None:
    """Random search: a random row, trained to the end, then the next."""
    for row in _random_rows(seat):
        seat.train_to_the_end(row)


def asha(seat: Seat) -> None:
    """Asynchronous successive halving with one worker, by the rule of its paper: of n at a rung, floor(n / 3) go on.

    Syne Tune promotes what is not above the interpolated quantile instead, and so already the better of two.
    """
    levels = [*(REDUCTION**k for k in range(20) if REDUCTION**k < seat.epochs), seat.epochs]
    rungs: list[dict[int, float]] = [{} for _ in levels]
    new = _random_rows(seat)
    while (job := _promotable(rungs) or next(((row, 0) for row in new), None)) is not None:
        row, rung = job
        loss = seat.train_up_to(row, levels[rung])
        rungs[rung][row] = loss if np.isfinite(loss) else np.inf


def _random_rows(seat: Seat) -> Iterator[int]:
    """Rows at random; in free mode a configuration is drawn, and mapped to the nearest unused row."""
    rng = np.random.default_rng(seat.seed)
    order = rng.permutation(len(seat.game.features))
    for row in order:
        if seat.mode == "candidates":
            yield seat.take(int(row))
        else:
            yield seat.row(seat.space.sample(rng))


def _promotable(rungs: list[dict[int, float]]) -> tuple[int, int] | None:
    """The best row that may go on, from the highest rung that has one, and the rung it goes to."""
    for rung in reversed(range(len(rungs) - 1)):
        top = sorted(rungs[rung], key=rungs[rung].__getitem__)[: len(rungs[rung]) // REDUCTION]
        for row in top:
            if row not in rungs[rung + 1] and np.isfinite(rungs[rung][row]):
                return row, rung + 1
    return None
