"""Random search: a random row, trained to the end, then the next."""

from __future__ import annotations

import numpy as np

from benchmarks.rivals.seat import Seat


def random(seat: Seat) -> None:
    """In free mode a point of the cube is drawn, and mapped to the nearest unused row."""
    rng = np.random.default_rng(seat.seed)
    order = iter(rng.permutation(len(seat.game.features)))
    while len(seat.used) < len(seat.game.features):
        if seat.mode == "candidates":
            row = seat.take(int(next(order)))
        else:
            row = seat.row(dict(zip(seat.columns, rng.uniform(size=len(seat.columns)), strict=True)))
        seat.train_to_the_end(row)
