"""The methods that are compared, each a function that spends a budget of epochs on a problem and keeps a diary.

Ours are run by `ft.tune`, as users run it. An epoch costs one, whatever its configuration, as in the paper: what `tune`
learns of the seconds of an epoch is left out of its decisions here, so that they depend on the seed alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from benchmarks.rivals import plain
from benchmarks.simulate import Over

import freezethaw as ft
from experiments.baseline import warped_gp
from experiments.bench import Bench
from experiments.diary import Diary
from experiments.problems import Problem
from freezethaw.study import Study
from freezethaw.study.decider import Decider
from freezethaw.study.threads import one_thread

Method = Callable[[Problem, int, int, Diary], None]  # problem, seed, budget, diary


def by_tune(problem: Problem, seed: int, budget: int, diary: Diary, model: str | None = None, **named: Any) -> None:
    """Ours: one worker in this process, nothing kept beyond it."""

    def train(run: Any) -> None:
        training = problem.build(run.config, run.seed)
        if run.checkpoint:
            training.load(run.checkpoint)
        for _ in run.epochs():
            loss = diary.train_epoch(run.number, run.config, training)
            run.report(loss, save=training.save)

    with _watched(diary, model):
        ft.tune(train, problem.space, problem.max_epochs, ft.Budget(epochs=budget), seed=seed, progress=False, **named)


@contextmanager
def _watched(diary: Diary, model: str | None) -> Iterator[None]:
    """Decisions are timed, every epoch has the same price, and the model is the one that is wanted."""

    def study(*args: Any, **given: Any) -> Study:
        return Study(*args, **given | ({} if model is None else {"model": model}))

    def equal_prices(*told: np.ndarray) -> np.ndarray:
        """One for each configuration that is asked for, the last argument."""
        return np.ones(len(told[-1]))

    with ExitStack() as stack:
        stack.enter_context(patch.object(Decider, "decide", diary.timed(Decider.decide)))
        stack.enter_context(patch("freezethaw.study.chooser.relative_prices", equal_prices))
        stack.enter_context(patch.object(sys.modules["freezethaw.tune"], "Study", study))
        yield


def on_bench(search: Callable[[Any], None], problem: Problem, seed: int, budget: int, diary: Diary) -> None:
    """A method that trains runs itself."""
    with Bench(problem, seed, budget, diary) as bench, suppress(Over):
        search(bench)


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


def study(problem: Problem, method: str, seed: int, budget: int | None = None) -> dict[str, Any]:
    """Run one study; its record."""
    budget = budget or problem.budget
    problem.load_data()
    diary = Diary()
    ft.tune  # noqa: B018 - imported now, not within the first decision's time
    with one_thread():
        METHODS[method](problem, seed, budget, diary)
    return {
        "problem": problem.name,
        "method": method,
        "seed": seed,
        "budget": budget,
        "max_epochs": problem.max_epochs,
        "version": f"freezethaw {ft.__version__}",
        **diary.record(budget),
    }
