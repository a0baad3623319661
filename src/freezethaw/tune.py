"""`tune`: wires the study, the engine and the training together."""

from __future__ import annotations

from typing import Literal

from freezethaw.records import Budget, Checkpoints, Result
from freezethaw.runtime.inline import Train, Watch, work
from freezethaw.space import Space
from freezethaw.study import Study


def tune(
    train: Train,
    space: Space,
    max_epochs: int,
    budget: Budget | int,
    name: str = "study",
    seed: int = 0,
    direction: Literal["minimize", "maximize"] = "minimize",
    checkpoints: Checkpoints | None = None,
    finish_best: bool = True,
    watch: Watch | None = None,
) -> Result:
    """Search `space` for the configuration whose training ends best. `train(run)` is called for each start and thaw."""
    study = Study(space, max_epochs, name=name, direction=direction, seed=seed, budget=budget, finish_best=finish_best)
    end = work(study, train, checkpoints or Checkpoints(), watch)
    return Result(study.best, end.reason, sum(run.epoch for run in study.runs), study.runs)
