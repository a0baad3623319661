"""Random search, and asynchronous successive halving with the rule of its paper."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.rivals.session import Session

REDUCTION = 3


def random(session: Session) -> None:
    """Random search: random rows, each trained to the end."""
    for row in _random_rows(session):
        session.train_to_the_end(row)


def asha(session: Session) -> None:
    """Asynchronous successive halving, one worker, rule of its paper: of n at a rung, floor(n / 3) are promoted.

    Syne Tune promotes all that are not above the interpolated quantile, and so already the better of two.
    """
    levels = [*(REDUCTION**k for k in range(20) if REDUCTION**k < session.epochs), session.epochs]
    rungs: list[dict[int, float]] = [{} for _ in levels]
    new = _random_rows(session)
    while (job := _promotable(rungs) or next(((row, 0) for row in new), None)) is not None:
        row, rung = job
        loss = session.train_up_to(row, levels[rung])
        rungs[rung][row] = loss if np.isfinite(loss) else np.inf


def _random_rows(session: Session) -> Iterator[int]:
    """Random rows; in free mode a random configuration is mapped to the nearest unused row."""
    rng = np.random.default_rng(session.seed)
    order = rng.permutation(len(session.simulation.features))
    for row in order:
        if session.mode == "candidates":
            yield session.take(int(row))
        else:
            yield session.row(session.space.sample(rng))


def _promotable(rungs: list[dict[int, float]]) -> tuple[int, int] | None:
    """The best row that can be promoted, from the highest rung that has one, and its next rung."""
    for rung in reversed(range(len(rungs) - 1)):
        top = sorted(rungs[rung], key=rungs[rung].__getitem__)[: len(rungs[rung]) // REDUCTION]
        for row in top:
            if row not in rungs[rung + 1] and np.isfinite(rungs[rung][row]):
                return row, rung + 1
    return None
