"""Simulation of a freezethaw study with one or more workers."""

from __future__ import annotations

import heapq
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Literal
from unittest.mock import patch

import numpy as np

import freezethaw as ft
from benchmarks import records, tables
from benchmarks.simulate import Simulation, SimulationEnded

MAX_EPOCHS = 20  # times the budget, for a budget in seconds


@dataclass(frozen=True)
class Setup:
    """The options of a simulation. With clock "seconds" the study is told seconds, and the budget is in seconds."""

    table: str
    seed: int
    budget: int = 300  # epochs; with clock "seconds" in units of the mean epoch of the table
    mode: Literal["candidates", "free"] = "candidates"
    policy: str | None = None  # None: the default of the study
    model: str | None = None
    workers: int = 1
    clock: Literal["epochs", "seconds"] = "epochs"
    variant: str | None = None
    constants: tuple[tuple[str, Any], ...] = ()  # changed constants of the package, by name

    @property
    def label(self) -> str:
        """The name in file names."""
        chosen = "-".join(part for part in (self.policy, self.model) if part)
        parts = [self.variant or chosen or "default"]
        parts += [f"{self.workers}workers"] if self.workers > 1 else []
        parts += ["seconds"] if self.clock == "seconds" else []
        return "-".join(parts)

    @property
    def method(self) -> str:
        """The name in reports."""
        chosen = ", ".join(part for part in (self.policy, self.model) if part)
        parts = [f"freezethaw ({self.variant or chosen})" if self.variant or chosen else "freezethaw"]
        parts += [f"{self.workers} workers"] if self.workers > 1 else []
        parts += ["seconds told"] if self.clock == "seconds" else []
        return ", ".join(parts)


class StudySimulator:
    """Simulates a study. Open decisions are told in the order in which they end; ties in the order of asking."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        table = tables.find(setup.table)
        timed = setup.clock == "seconds"
        if timed and table.seconds is None:
            raise ValueError(f"{setup.table} has no seconds: only LCBench has them")
        self.simulation = Simulation(table, setup.seed, setup.budget * (MAX_EPOCHS if timed else 1))
        self.limit = setup.budget * self.simulation.epoch_seconds if timed else np.inf
        self.sign = -1.0 if table.maximise else 1.0
        chosen = {"policy": setup.policy, "model": setup.model}
        self.study = ft.Study(
            self.simulation.space,
            max_epochs=table.epochs,
            seed=setup.seed,
            direction="maximize" if table.maximise else "minimize",
            candidates=self.simulation.configs if setup.mode == "candidates" else None,
            budget=ft.Budget(training_hours=self.limit / 3600) if timed else setup.budget,
            prices=ft.Prices(),  # simulated training takes no time, so deciding may take any
            **{key: value for key, value in chosen.items() if value is not None},
        )
        self.rows = {self.simulation.space.key(config): row for row, config in enumerate(self.simulation.configs)}
        self.row_of: dict[int, int] = {}
        self.seconds: list[float] = []  # of the study alone, by decision
        self.now = 0.0
        self.pending: list[tuple[float, int, ft.Decision]] = []

    def run(self) -> dict[str, Any]:
        """Run the simulation and return its record."""
        with suppress(SimulationEnded):  # in free mode all rows may be used
            while (
                self.simulation.spent < self.simulation.budget and self.simulation.elapsed < self.limit and self._ask()
            ):
                self._tell()
        return self._record()

    def _ask(self) -> bool:
        """Ask until all workers are busy; return whether a decision is open."""
        while len(self.pending) < self.setup.workers:
            start = time.perf_counter()
            try:
                decision = self.study.ask()
            except ft.StudyFinished:
                break
            except ft.AllPending:
                if not self.pending:
                    raise
                break
            self.seconds.append(time.perf_counter() - start)
            row = self._row(decision)
            count = min(decision.epochs, int(self.simulation.length[row] - self.simulation.done[row]))
            price = self.simulation.price(row, count) if self.setup.clock == "seconds" else float(count)
            heapq.heappush(self.pending, (self.now + price, decision.number, decision))
        return bool(self.pending)

    def _row(self, decision: ft.Decision) -> int:
        if decision.run not in self.row_of:
            row = self.rows.get(self.simulation.space.key(decision.config))
            used = set(self.row_of.values())
            free = row is None or row in used
            self.row_of[decision.run] = self.simulation.nearest_unused(decision.config, used) if free else row
        return self.row_of[decision.run]

    def _tell(self) -> None:
        """Train and tell the decision that ends next."""
        self.now, _, decision = heapq.heappop(self.pending)
        row = self.row_of[decision.run]
        losses, seconds = [], []
        for _ in range(decision.epochs):
            seconds.append(self.simulation.price(row))
            losses.append(self.sign * self.simulation.train(row))
            if not np.isfinite(losses[-1]) or self.simulation.spent >= self.simulation.budget:
                break
        start = time.perf_counter()
        self.study.tell(decision, losses, seconds if self.setup.clock == "seconds" else None)
        self.seconds[-1] += time.perf_counter() - start
        if self.simulation.table.losses.shape[1] > 1:
            best = self.study.recommended
            if best is not None:
                self.simulation.recommend(self.row_of[best.run], best.epoch)

    def _record(self) -> dict[str, Any]:
        ran_out = self.simulation.spent < self.simulation.budget and self.setup.clock == "epochs"
        return {
            "method": self.setup.method,
            "version": f"freezethaw {ft.__version__}",
            "commit": records.commit(),
            "policy": self.study.definition.policy,
            "model": self.study.definition.model,
            "table": self.setup.table,
            "seed": self.setup.seed,
            "mode": self.setup.mode,
            **self.simulation.result(ran_out),
            "budget": self.setup.budget,
            "seconds": {"median": float(np.median(self.seconds)), "p99": float(np.quantile(self.seconds, 0.99))},
        }


def run_simulation(setup: Setup) -> dict[str, Any]:
    """Run one simulation and return its record."""
    with ExitStack() as stack:
        for name, value in setup.constants:
            stack.enter_context(patch(f"freezethaw.{name}", value))
        return StudySimulator(setup).run()
