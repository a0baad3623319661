"""Into Ray Tune: its `Tuner` pauses and resumes trials by the decisions of a study. Ray is needed only when called."""

from __future__ import annotations

from typing import Any

from freezethaw.doors.ray_tune.book import TrialBook, keep
from freezethaw.errors import StudyError
from freezethaw.study import Study

OURS = ("mode", "search_alg", "scheduler", "num_samples", "max_concurrent_trials")


def ray_tune_config(study: Study, metric: str = "loss", workers: int = 1, **more: Any) -> Any:
    """A `TuneConfig` for Ray's `Tuner`: its searcher and its scheduler carry out the decisions of this study.

    `metric`: what the trainable reports in each epoch; `workers`: trials at a time; `more`: as `TuneConfig` takes it,
    such as `reuse_actors` and `time_budget_s`. Each trial is a run. It is paused where the study freezes it, which
    needs a trainable that saves and loads checkpoints, and resumed where the study thaws it; the study's budget ends
    the search. Decisions that this process has under way are given back. Before `Tuner.restore`, call this again.
    """
    if not isinstance(study, Study):
        raise StudyError(f"expected a study, ft.Study(space, max_epochs=20, budget=200), not {study!r}")
    for name in OURS:
        if name in more:
            raise StudyError(f"{name} follows from the study and from workers; leave it out")
    count: object = workers
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise StudyError(f"workers must be a positive whole number, not {workers!r}")
    from freezethaw.doors.ray_tune import pair

    return pair.config(keep(TrialBook(study, metric, workers)), more)
