"""The methods that are compared, each a function that spends a budget of epochs on a problem and keeps a diary.

Ours are run by `ft.tune`, as users run it. Budgets are in epochs, so an epoch costs one, whatever its configuration, as
in the paper.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks import records
from benchmarks.rivals import plain
from benchmarks.simulate import SimulationEnded

import freezethaw as ft
from experiments.baseline import warped_gp
from experiments.bench import Bench
from experiments.diary import Diary
from experiments.problems import Problem
from freezethaw.decide.inference_cache import one_thread
from freezethaw.study import session


class Interrupted(Exception):  # noqa: N818 - an end, not a mistake
    """A study was stopped before its end; the same call continues it."""


@dataclass(frozen=True)
class Task:
    """What a method gets: a problem, a seed, a budget of epochs, a diary, and a folder of its own."""

    problem: Problem
    seed: int
    budget: int
    diary: Diary
    folder: Path


Method = Callable[[Task], None]


def by_tune(task: Task, **named: Any) -> None:
    """Ours: one worker in this process, with a store, so that the same call continues after an interruption."""
    problem, diary = task.problem, task.diary

    def train(run: Any) -> None:
        training = problem.build(run.config, run.seed)
        if run.checkpoint:
            training.load(run.checkpoint)
        for epoch in run.epochs():
            loss = diary.train_epoch(run.number, epoch, run.config, training)
            run.report(loss, save=training.save)

    with patch.object(session, "decide", diary.timed(session.decide)), suppress(ft.Interrupted):  # `study` says so
        ft.tune(
            train,
            problem.space,
            problem.max_epochs,
            ft.Budget(epochs=task.budget),
            seed=task.seed,
            store=f"sqlite:///{task.folder.absolute()}/study.db?synchronous=off",  # survives a kill, not a power cut
            progress=False,
            prices=ft.Prices(),  # methods are compared by epochs: deciding costs none
            **named,
        )


def on_bench(search: Callable[[Any], None], task: Task) -> None:
    """A method that trains runs itself."""
    with suppress(SimulationEnded):
        search(Bench(task.problem, task.seed, task.budget, task.diary, task.folder))


METHODS: dict[str, Method] = {
    "paper": partial(by_tune, policy="entropy_search", model="paper", finish_best=False),
    "default": by_tune,
    "baseline": partial(on_bench, warped_gp),
    "random": partial(on_bench, plain.random),
    "asha": partial(on_bench, plain.asha),
}
TITLES = {
    "paper": "Freeze-thaw as in the paper",
    "default": "freezethaw, our default",
    "baseline": "Warped GP EI MCMC",
    "random": "Random search",
    "asha": "ASHA",
}


def study(problem: Problem, method: str, seed: int, budget: int | None = None, folder: Path | None = None) -> Any:
    """Run one study; its record. With a folder, an interrupted study continues; the folder is removed at its end.

    Raises Interrupted if it was stopped.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="freezethaw-experiment-") as home:
            return study(problem, method, seed, budget, Path(home) / "study")
    budget = budget or problem.budget
    problem.load_data()
    ft.tune  # noqa: B018 - imported now, not within the first decision's time
    folder.mkdir(parents=True, exist_ok=True)
    diary = Diary(folder / "diary.jsonl")
    with one_thread():
        METHODS[method](Task(problem, seed, budget, diary, folder))
    if diary.epochs < budget:
        raise Interrupted(f"{problem.name}, {method}, seed {seed}: left after {diary.epochs} epochs")
    shutil.rmtree(folder)
    return {
        "problem": problem.name,
        "method": method,
        "seed": seed,
        "budget": budget,
        "max_epochs": problem.max_epochs,
        "version": f"freezethaw {ft.__version__}",
        "commit": records.commit(),
        **diary.record(budget),
    }
