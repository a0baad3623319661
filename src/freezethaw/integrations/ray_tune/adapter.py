"""The searcher and the scheduler of Ray Tune: the searcher starts new runs, the scheduler freezes and thaws them.

Both delegate to the trial registry. Only this module imports Ray Tune.
"""

from __future__ import annotations

import copy
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from freezethaw.errors import StudyError, extra
from freezethaw.integrations.ray_tune.trial_registry import Action, TrialRegistry
from freezethaw.records import Outcome

with extra("ray-tune"):
    from pyarrow import fs as filesystems
    from ray import cloudpickle
    from ray.exceptions import RayActorError
    from ray.tune import Trainable, TuneConfig
    from ray.tune.experiment import Trial
    from ray.tune.schedulers import TrialScheduler
    from ray.tune.search import Searcher
    from ray.tune.utils.util import unflatten_dict

TUNE_ACTIONS: dict[Action, str] = {
    "continue": TrialScheduler.CONTINUE,
    "freeze": TrialScheduler.PAUSE,
    "stop": TrialScheduler.STOP,
}


def tune_config(registry: TrialRegistry, more: dict[str, Any]) -> Any:
    """A `TuneConfig` whose searcher and scheduler share a registry."""
    searcher = StudySearch(registry)
    return TuneConfig(
        metric=registry.metric,
        mode=searcher.mode,
        search_alg=searcher,
        scheduler=StudyScheduler(registry),
        num_samples=-1,  # the study decides how many runs to start
        max_concurrent_trials=registry.workers,
        **more,
    )


class StudySearch(Searcher):
    """Creates a trial for each run that the study starts."""

    def __init__(self, registry: TrialRegistry) -> None:
        super().__init__(
            metric=registry.metric, mode="max" if registry.study.definition.direction == "maximize" else "min"
        )
        self._registry = registry

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Limit the number of open decisions; Tune would count paused trials too."""
        self._registry.workers = max_concurrent
        return True

    def suggest(self, trial_id: str) -> Any:
        """The configuration of a new run, None if there is none for now, or FINISHED when the study has ended."""
        found = self._registry.start(trial_id)
        if found is None:
            return Searcher.FINISHED if self._registry.finished else None
        return unflatten_dict(dict(found))  # Tune separates nested names by "/"

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Close a trial. The scheduler has recorded why it failed, if it did."""
        if error:
            self._registry.fail(trial_id, self._registry.outcomes.pop(trial_id, "failed"))
        elif result:
            self._registry.complete(trial_id, *_reported(self._registry, result))
        else:
            self._registry.close(trial_id)

    def save(self, checkpoint_path: str) -> None:
        """Save the run of each trial."""
        Path(checkpoint_path).write_text(json.dumps(self._registry.to_dict()), encoding="utf-8")

    def restore(self, checkpoint_path: str) -> None:
        """Load the run of each trial."""
        self._registry.restore(json.loads(Path(checkpoint_path).read_text(encoding="utf-8")))


class StudyScheduler(TrialScheduler):
    """Pauses and resumes trials as the study freezes and thaws their runs."""

    _supports_buffered_results = False  # a trial must wait until it is decided whether its run is frozen

    def __init__(self, registry: TrialRegistry) -> None:
        super().__init__()
        self._registry, self._metric = registry, registry.metric
        self._freezing: set[str] = set()  # trials whose checkpoints Tune is saving

    def set_search_properties(self, metric: str | None, mode: str | None, **_: Any) -> bool:
        """Raise if the metric or the mode of the `TuneConfig` was changed."""
        if (metric, mode) != (self._registry.metric, self._registry.mode):
            raise StudyError(
                f"the study has metric={self._registry.metric!r}, mode={self._registry.mode!r}, but the Tuner has "
                f"metric={metric!r}, mode={mode!r}; use those that ray_tune_config(study, metric=...) sets"
            )
        return True

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Raise before training if the trainable class cannot save checkpoints."""
        replace_state_files(tune_controller)
        if getattr(trial.get_trainable_cls(), "save_checkpoint", None) is Trainable.save_checkpoint:
            raise StudyError(
                f"{trial.trainable_name} has no save_checkpoint, so its runs cannot be frozen; implement "
                "save_checkpoint and load_checkpoint"
            )

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:  # noqa: ARG002
        """Record a result; return whether the trial continues, is paused or is stopped."""
        action = self._registry.report(trial.trial_id, *_reported(self._registry, result))
        if action == "freeze":
            self._freezing.add(trial.trial_id)
        return TUNE_ACTIONS[action]

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Choose a trial with an open decision; stop trials that will never be resumed, pause all others."""
        if 0 < tune_controller.search_alg.total_samples < sys.maxsize:  # 0 after a kill while Tune wrote its state
            raise StudyError(
                "num_samples must be -1: the study decides how many runs to start and when to stop. If this is after "
                "Tuner.restore, Tune found no state that it could read (its log above says why): start a new Tuner in "
                "another folder, which continues the study without the trials of the old one"
            )
        for trial in tune_controller.get_trials():
            if trial.status == Trial.ERROR and self._registry.assigned(trial.trial_id):
                self._registry.fail(trial.trial_id, _outcome(trial))  # Tune is silent if an actor cannot be reused
        for trial in [t for t in tune_controller.get_trials() if not self._registry.assigned(t.trial_id)]:
            if trial.status == Trial.PENDING:  # Tune would train it: after a restore or a retry
                tune_controller._set_trial_status(trial, Trial.PAUSED)
            if trial.status == Trial.PAUSED and self._registry.exhausted(trial.trial_id):
                tune_controller.stop_trial(trial)
        ready: dict[str, list[Any]] = {Trial.PAUSED: [], Trial.PENDING: []}
        for trial in tune_controller.get_trials():
            if trial.status == Trial.PAUSED:
                self._check_saved(trial)
            if trial.status in ready and self._registry.assigned(trial.trial_id):
                ready[trial.status].append(trial)
        return next(iter(ready[Trial.PAUSED] + ready[Trial.PENDING]), None)

    def _check_saved(self, trial: Any) -> None:
        if trial.trial_id in self._freezing:
            self._freezing.remove(trial.trial_id)
            if trial.checkpoint is None:
                raise StudyError(
                    f"trial {trial} was paused but has no checkpoint, so it would start again from epoch 1; "
                    "save one with tune.report(metrics, checkpoint=...) and load it with tune.get_checkpoint()"
                )

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:  # noqa: ARG002
        """Record why a trial failed. If Tune does not retry it, it calls the searcher next."""
        self._freezing.discard(trial.trial_id)
        self._registry.outcomes[trial.trial_id] = _outcome(trial)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Nothing to do: Tune calls the searcher too."""

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """Nothing to do: Tune calls the searcher too."""

    def debug_string(self) -> str:
        """The line that Tune prints."""
        return f"Freeze-thaw decisions of study {self._registry.study.name!r}"


class ReplacingSyncer:
    """Uploads Tune's files as `syncer` does, but replaces each state file at once.

    Tune overwrites them in place, in a thread, while it may be writing its next state. If the driver is killed
    meanwhile, the file that is left cannot be read, and `Tuner.restore` silently begins again without any trial.
    """

    STATE_FILES = (
        "experiment_state-*.json",
        "search_gen_state-*.json",
        "searcher-state-*.pkl",
        "callback-states-*.pkl",
    )

    def __init__(self, syncer: Any, filesystem: Any) -> None:
        self._syncer, self._filesystem = syncer, filesystem

    def sync_up(self, local_dir: str, remote_dir: str, exclude: list[str] | None = None) -> bool:
        """Begin to upload a folder, unless the last upload still runs; its state files are uploaded on return.

        First the trials, then the runs of the searcher: a trial without a run is stopped, but a run would wait for a
        trial that does not exist.
        """
        launched: bool = self._syncer.sync_up(local_dir, remote_dir, [*(exclude or ()), *self.STATE_FILES])
        for file in (file for files in self.STATE_FILES for file in sorted(Path(local_dir).glob(files)) if launched):
            partial = f"{remote_dir}/.{file.name}.partial"
            filesystems.copy_files(str(file), partial, destination_filesystem=self._filesystem)
            self._filesystem.move(partial, f"{remote_dir}/{file.name}")
        return launched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._syncer, name)


def replace_state_files(tune_controller: Any) -> None:
    """Make a controller of Tune replace its state files instead of overwriting them."""
    with suppress(AttributeError):  # another version of Ray: Tune's own way
        manager = tune_controller._tune_controller._checkpoint_manager  # within the wrapper that schedulers see
        if not isinstance(manager._storage.syncer, ReplacingSyncer):
            storage = copy.copy(manager._storage)  # trials share the other one with their actors
            storage.syncer = ReplacingSyncer(storage.syncer, storage.storage_filesystem)
            manager._storage = storage


def _reported(registry: TrialRegistry, result: dict[str, Any]) -> tuple[int, object, float]:
    """Epoch, loss and seconds of a result."""
    return result["training_iteration"], result.get(registry.metric), float(result.get("time_this_iter_s", 0.0))


def _outcome(trial: Any) -> Outcome:
    """The outcome `failed` if the training raised, or `interrupted` if its process or node died."""
    if trial.pickled_error_file is None:
        return "failed"
    with Path(trial.pickled_error_file).open("rb") as file:  # written by Tune
        try:
            error = cloudpickle.load(file)
        except Exception:  # a user exception that cannot be unpickled
            return "failed"
    return "interrupted" if isinstance(error, RayActorError) else "failed"
