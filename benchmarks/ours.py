"""One game of ours: a study, one or more simulated workers, and the record of it."""

from __future__ import annotations

import heapq
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Literal
from unittest.mock import patch

import numpy as np

import freezethaw as ft
from benchmarks import tables
from benchmarks.simulate import Game, Over

MOST_EPOCHS = 20  # times the budget, of a game whose budget is in seconds


@dataclass(frozen=True)
class Setup:
    """What is played. A clock of seconds tells the study what each epoch took, and ends the game by seconds."""

    table: str
    seed: int
    budget: int = 300  # epochs; with a clock of seconds, in units of the table's mean epoch
    mode: Literal["candidates", "free"] = "candidates"
    policy: str | None = None  # None: the study's default
    model: str | None = None
    workers: int = 1
    clock: Literal["epochs", "seconds"] = "epochs"
    variant: str | None = None
    constants: tuple[tuple[str, Any], ...] = ()  # of the package, by name, that have other values in this game

    @property
    def label(self) -> str:
        """Names this kind of game in file names."""
        chosen = "-".join(part for part in (self.policy, self.model) if part)
        parts = [self.variant or chosen or "default"]
        parts += [f"{self.workers}workers"] if self.workers > 1 else []
        parts += ["seconds"] if self.clock == "seconds" else []
        return "-".join(parts)

    @property
    def method(self) -> str:
        """Names this kind of game in reports."""
        chosen = ", ".join(part for part in (self.policy, self.model) if part)
        parts = [f"freezethaw ({self.variant or chosen})" if self.variant or chosen else "freezethaw"]
        parts += [f"{self.workers} workers"] if self.workers > 1 else []
        parts += ["seconds told"] if self.clock == "seconds" else []
        return ", ".join(parts)


class Player:
    """A study at a game. Decisions under way are told in the order in which they end, ties in the order of asking."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        table = tables.load()[setup.table]
        timed = setup.clock == "seconds"
        if timed and table.seconds is None:
            raise ValueError(f"{setup.table} has no seconds: only LCBench can be played by them")
        self.game = Game(table, setup.seed, setup.budget * (MOST_EPOCHS if timed else 1))
        self.limit = setup.budget * self.game.epoch_seconds if timed else np.inf
        self.sign = -1.0 if table.maximise else 1.0
        chosen = {"policy": setup.policy, "model": setup.model}
        self.study = ft.Study(
            self.game.space,
            max_epochs=table.epochs,
            seed=setup.seed,
            direction="maximize" if table.maximise else "minimize",
            candidates=self.game.configs if setup.mode == "candidates" else None,
            budget=ft.Budget(hours=self.limit / 3600) if timed else setup.budget,
            **{key: value for key, value in chosen.items() if value is not None},
        )
        self.rows = {self.game.space.key(config): row for row, config in enumerate(self.game.configs)}
        self.row_of: dict[int, int] = {}
        self.seconds: list[float] = []  # of the study alone, one entry for each decision told
        self.now = 0.0
        self.under_way: list[tuple[float, int, ft.Decision]] = []

    def play(self) -> dict[str, Any]:
        """The whole game; its record."""
        with suppress(Over):  # in free mode rows may run out
            while self.game.spent < self.game.budget and self.game.elapsed < self.limit and self._ask():
                self._tell()
        return self._record()

    def _ask(self) -> bool:
        """Keeps all workers busy; whether there is anything under way."""
        while len(self.under_way) < self.setup.workers:
            start = time.perf_counter()
            try:
                decision = self.study.ask()
            except ft.StudyFinished:
                break
            except ft.AllPending:
                if not self.under_way:
                    raise
                break
            self.seconds.append(time.perf_counter() - start)
            row = self._row(decision)
            count = min(decision.epochs, int(self.game.length[row] - self.game.done[row]))
            price = self.game.price(row, count) if self.setup.clock == "seconds" else float(count)
            heapq.heappush(self.under_way, (self.now + price, decision.number, decision))
        return bool(self.under_way)

    def _row(self, decision: ft.Decision) -> int:
        if decision.run not in self.row_of:
            row = self.rows.get(self.game.space.key(decision.config))
            used = set(self.row_of.values())
            free = row is None or row in used
            self.row_of[decision.run] = self.game.nearest_unused(decision.config, used) if free else row
        return self.row_of[decision.run]

    def _tell(self) -> None:
        """The next decision that ends: its epochs are trained and told."""
        self.now, _, decision = heapq.heappop(self.under_way)
        row = self.row_of[decision.run]
        losses, seconds = [], []
        for _ in range(decision.epochs):
            seconds.append(self.game.price(row))
            losses.append(self.sign * self.game.train(row))
            if not np.isfinite(losses[-1]) or self.game.spent >= self.game.budget:
                break
        start = time.perf_counter()
        self.study.tell(decision, losses, seconds if self.setup.clock == "seconds" else None)
        self.seconds[-1] += time.perf_counter() - start
        if self.game.table.losses.shape[1] > 1:
            best = self.study.best
            if best is not None:
                self.game.recommend(self.row_of[best.run], best.epoch)

    def _record(self) -> dict[str, Any]:
        ran_out = self.game.spent < self.game.budget and self.setup.clock == "epochs"
        return {
            "method": self.setup.method,
            "version": f"freezethaw {ft.__version__}",
            "policy": self.study.policy,
            "model": self.study.model,
            "table": self.setup.table,
            "seed": self.setup.seed,
            "mode": self.setup.mode,
            **self.game.result(ran_out),
            "budget": self.setup.budget,
            "seconds": {"median": float(np.median(self.seconds)), "p99": float(np.quantile(self.seconds, 0.99))},
        }


def play(setup: Setup) -> dict[str, Any]:
    """One game; the record of it."""
    with ExitStack() as stack:
        for name, value in setup.constants:
            stack.enter_context(patch(f"freezethaw.{name}", value))
        return Player(setup).play()
