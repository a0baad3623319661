"""The inline engine: a worker in this process. For tests, notebooks and quick trainings."""

from __future__ import annotations

from collections.abc import Callable

from freezethaw.records import Checkpoints
from freezethaw.runtime.keeper import CheckpointKeeper
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.worker import Habits, Worker
from freezethaw.study import Study
from freezethaw.trainers.protocol import Train


def work(study: Study, train: Train, folder: str, checkpoints: Checkpoints, look: Callable[[], object]) -> str:
    """Train until the study ends or a signal asks to leave; returns why. `look` is called after each epoch."""
    leaving = Leaving()
    keeper = CheckpointKeeper(study.shared.stored, folder, checkpoints.gb)
    with on_signals(leaving):
        reason = Worker(study, train, keeper, Habits.of(checkpoints), leaving, look).work()
    if leaving.why == "SIGINT":
        raise KeyboardInterrupt
    return reason
