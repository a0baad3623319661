"""The inline engine: a worker in this process. For tests, notebooks and quick trainings."""

from __future__ import annotations

from freezethaw.records import Checkpoints
from freezethaw.runtime.keeper import CheckpointKeeper
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.worker import Habits, Train, Watch, Worker
from freezethaw.study import Study


def work(study: Study, train: Train, folder: str, checkpoints: Checkpoints, watch: Watch | None = None) -> str:
    """Train until the study ends or a signal asks to leave; returns why."""
    leaving = Leaving()
    keeper = CheckpointKeeper(study.shared.stored, folder, checkpoints.gb)
    with on_signals(leaving):
        reason = Worker(study, train, keeper, Habits.of(checkpoints), leaving, watch).work()
    if leaving.why == "SIGINT":
        raise KeyboardInterrupt
    return reason
