"""The searcher and the scheduler of Tune: new runs become trials in one, and the other pauses and resumes them.

Both only carry out what the book says. Ray Tune is imported here and nowhere else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from freezethaw.doors.ray_tune.book import TrialBook, Verdict
from freezethaw.errors import StudyError
from freezethaw.records import Outcome
from freezethaw.trainers.needing import extra

with extra("ray-tune"):
    from ray import cloudpickle
    from ray.exceptions import RayActorError
    from ray.tune import Trainable, TuneConfig
    from ray.tune.experiment import Trial
    from ray.tune.schedulers import TrialScheduler
    from ray.tune.search import Searcher
    from ray.tune.utils.util import unflatten_dict

ACTIONS: dict[Verdict, str] = {
    "go on": TrialScheduler.CONTINUE,
    "freeze": TrialScheduler.PAUSE,
    "end": TrialScheduler.STOP,
}


def config(book: TrialBook, more: dict[str, Any]) -> Any:
    """A `TuneConfig` in which all that has to fit together does."""
    searcher = StudySearch(book)
    return TuneConfig(
        metric=book.metric,
        mode=searcher.mode,
        search_alg=searcher,
        scheduler=StudyScheduler(book),
        num_samples=-1,  # how many runs there are is decided as the curves come in
        max_concurrent_trials=book.workers,
        **more,
    )


class StudySearch(Searcher):
    """New trials where the study starts new runs."""

    def __init__(self, book: TrialBook) -> None:
        super().__init__(metric=book.metric, mode="max" if book.study.direction == "maximize" else "min")
        self._book = book

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """So many decisions are under way at once; Tune need not count, and would count paused trials."""
        self._book.workers = max_concurrent
        return True

    def suggest(self, trial_id: str) -> Any:
        """The configuration of a new run, None where no new one is wanted now, or that the study has ended."""
        found = self._book.start(trial_id)
        if found is None:
            return Searcher.FINISHED if self._book.finished else None
        return unflatten_dict(dict(found))  # Tune's own sign for nested names is "/"

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial is over. Of one that failed, the scheduler has seen why."""
        if error:
            self._book.fail(trial_id, self._book.outcomes.pop(trial_id, "failed"))
        elif result:
            self._book.complete(trial_id, *_reported(self._book, result))
        else:
            self._book.close(trial_id)

    def save(self, checkpoint_path: str) -> None:
        """Keep which trial is which run."""
        Path(checkpoint_path).write_text(json.dumps(self._book.kept()), encoding="utf-8")

    def restore(self, checkpoint_path: str) -> None:
        """Know again which trial is which run."""
        self._book.adopt(json.loads(Path(checkpoint_path).read_text(encoding="utf-8")))


class StudyScheduler(TrialScheduler):
    """Trials go on, are paused and are resumed where the study thaws and freezes their runs."""

    _supports_buffered_results = False  # a trial must not train on before it is known whether its run is frozen

    def __init__(self, book: TrialBook) -> None:
        super().__init__()
        self._book, self._metric = book, book.metric
        self._freezing: set[str] = set()  # trials that Tune is saving

    def set_search_properties(self, metric: str | None, mode: str | None, **_: Any) -> bool:
        """Refuse a `TuneConfig` that was changed in what follows from the study."""
        wanted = "max" if self._book.study.direction == "maximize" else "min"
        if (metric, mode) != (self._book.metric, wanted):
            raise StudyError(
                f"the study is to {self._book.study.direction} {self._book.metric!r}, and the Tuner has "
                f"metric={metric!r}, mode={mode!r}; leave both as ray_tune_config(study, metric=...) gives them"
            )
        return True

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:  # noqa: ARG002 - as Tune calls it
        """Refuse a class that cannot be frozen before anything is trained."""
        if getattr(trial.get_trainable_cls(), "save_checkpoint", None) is Trainable.save_checkpoint:
            raise StudyError(
                f"{trial.trainable_name} has no save_checkpoint, so its runs cannot be frozen; give it save_checkpoint "
                "and load_checkpoint"
            )

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:  # noqa: ARG002
        """A trial has trained an epoch: it goes on, is paused, or has ended."""
        verdict = self._book.report(trial.trial_id, *_reported(self._book, result))
        if verdict == "freeze":
            self._freezing.add(trial.trial_id)
        return ACTIONS[verdict]

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """A trial whose run is to be thawed or started; others are held back, and those with no future ended."""
        if tune_controller.search_alg.total_samples < sys.maxsize:
            raise StudyError("num_samples must stay -1: the study decides how many runs there are, and when to stop")
        for trial in [t for t in tune_controller.get_trials() if not self._book.granted(t.trial_id)]:
            if trial.status == Trial.PENDING:  # Tune would train it: after a restore, or as another try
                tune_controller._set_trial_status(trial, Trial.PAUSED)
            if trial.status == Trial.PAUSED and self._book.spent(trial.trial_id):
                tune_controller.stop_trial(trial)
        ready: dict[str, list[Any]] = {Trial.PAUSED: [], Trial.PENDING: []}
        for trial in tune_controller.get_trials():
            if trial.status == Trial.PAUSED:
                self._check_saved(trial)
            if trial.status in ready and self._book.granted(trial.trial_id):
                ready[trial.status].append(trial)
        return next(iter(ready[Trial.PAUSED] + ready[Trial.PENDING]), None)

    def _check_saved(self, trial: Any) -> None:
        if trial.trial_id in self._freezing:
            self._freezing.remove(trial.trial_id)
            if trial.checkpoint is None:
                raise StudyError(
                    f"trial {trial} was paused and has no checkpoint, so it would be trained anew from its start; "
                    "tune.report(metrics, checkpoint=...) gives one, and tune.get_checkpoint() loads it"
                )

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:  # noqa: ARG002
        """A trial has failed. Where Tune tries again, the decision stands; else the searcher is told next."""
        self._freezing.discard(trial.trial_id)
        self._book.outcomes[trial.trial_id] = _outcome(trial)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """The searcher is told too."""

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """The searcher is told too."""

    def debug_string(self) -> str:
        """What Tune shows."""
        return f"Freeze-thaw decisions of study {self._book.study.name!r}"


def _reported(book: TrialBook, result: dict[str, Any]) -> tuple[int, object, float]:
    """Epoch, loss and seconds of a result."""
    return result["training_iteration"], result.get(book.metric), float(result.get("time_this_iter_s", 0.0))


def _outcome(trial: Any) -> Outcome:
    """Whether the configuration is to blame. Where a process or a node died, it is not known to be."""
    if trial.pickled_error_file is None:
        return "failed"
    with Path(trial.pickled_error_file).open("rb") as file:  # which Tune wrote a moment ago
        try:
            error = cloudpickle.load(file)
        except Exception:  # an exception of the user's that does not come back from a pickle
            return "failed"
    return "interrupted" if isinstance(error, RayActorError) else "failed"
