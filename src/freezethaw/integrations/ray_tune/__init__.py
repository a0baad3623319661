"""Ray Tune: a `Tuner` that pauses and resumes trials as a study decides. Ray is imported on first use."""

from __future__ import annotations

from typing import Any

from freezethaw.errors import StudyError
from freezethaw.integrations.ray_tune.trial_registry import TrialRegistry, register
from freezethaw.study import Study

RESERVED = ("mode", "search_alg", "scheduler", "num_samples", "max_concurrent_trials")


def ray_tune_config(study: Study, metric: str = "loss", workers: int = 1, **more: Any) -> Any:
    """A `TuneConfig` for Ray's `Tuner` whose searcher and scheduler execute the decisions of this study.

    `metric` is the name under which the trainable reports the loss of each epoch; `workers` is the number of concurrent
    trials; `more` is passed to `TuneConfig` (e.g. `reuse_actors`, `time_budget_s`). Each trial is a run. When the study
    freezes a run its trial is paused, so the trainable must save and load checkpoints; when the study thaws the run the
    trial is resumed. The study's budget ends the search. Open decisions of this process are cancelled. Call this again
    before `Tuner.restore`.
    """
    if not isinstance(study, Study):
        raise StudyError(f"expected a study, ft.Study(space, max_epochs=20, budget=200), not {study!r}")
    for name in RESERVED:
        if name in more:
            raise StudyError(f"{name} follows from the study and from workers; remove it")
    count: object = workers
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise StudyError(f"workers must be a positive integer, not {workers!r}")
    from freezethaw.integrations.ray_tune import adapter

    return adapter.tune_config(register(TrialRegistry(study, metric, workers)), more)
