"""Ray's Tuner with a study's decisions, on a real cluster of several nodes; then the trial registry alone."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.faults import ray as ray_faults

import freezethaw as ft
from freezethaw.errors import MissingLibrary
from freezethaw.integrations.ray_tune.trial_registry import TrialRegistry, UnavailableRegistry, register
from freezethaw.study import read

ROOT = Path(__file__).parents[2]
SPACE = ft.Space(rate=ft.Float(0.01, 0.5))
RATES = (0.1, 0.2, 0.3)


def configs(*rates):
    return [{"rate": rate} for rate in rates]


def study_of(*rates, max_epochs=4, **more):
    """A study that trains all of these to the end, in a random order, unless its budget ends it before."""
    wanted = {"budget": max_epochs * len(rates), "policy": "random", "candidates": configs(*rates)}
    return ft.Study(SPACE, max_epochs, **wanted | more)


# On a cluster.

on_cluster = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray has warnings of its own


@pytest.fixture(scope="module")
def trainables():
    """Ray is not imported before its authentication is on. In CI a missing library is a failure."""
    if not os.environ.get("FREEZETHAW_CI"):
        pytest.importorskip("pyarrow")
        pytest.importorskip("tensorboardX")
    ray_faults.library()
    return importlib.import_module("tests.integrations.trainables")


@pytest.fixture(scope="module")
def cluster(trainables):
    """Two nodes with resources for one trial each."""
    import ray

    with ray_faults.cluster(workers=1) as found:
        ray.init(found.address, log_to_driver=False)
        yield found
        ray.shutdown()


@pytest.fixture
def tuned(cluster, tmp_path):
    """What Tune found, and what was trained, in this order: rate, epoch and node."""
    from ray import tune

    def tuned(trainable, study, metric="loss", workers=1, failures=0, stop=None, together=False, **more):
        tuner = tune.Tuner(
            trainable,
            param_space={"log": str(tmp_path / "log"), "together": together},
            tune_config=ft.ray_tune_config(study, metric, workers, **more),
            run_config=tune.RunConfig(
                storage_path=str(tmp_path / "results"),
                failure_config=tune.FailureConfig(max_failures=failures),
                stop=stop,
                verbose=0,
            ),
        )
        return tuner.fit(), trained(tmp_path / "log")

    return tuned


def trained(log):
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [(float(rate), int(epoch), node) for rate, epoch, node in lines]


def by_rate(study):
    return {run.config["rate"]: run for run in study.runs}


def most_under_way(study):
    """Decisions at a time; time is counted in losses recorded."""
    history = read(study).history
    spans = [(history.epochs_at(d.committed), history.epochs_at(d.closed)) for d in history.decisions]
    return max(sum(end > began for _, end in spans[: n + 1]) for n, (began, _) in enumerate(spans))


def check_agreement(results, study, trainables):
    """Between Tune, the study and an uninterrupted training."""
    assert len(results) == len(study.runs)
    for result in results:
        run = by_rate(study)[result.config["rate"]]
        assert run.losses == trainables.curve(run.config["rate"], run.epoch)
        assert (result.metrics["training_iteration"], result.metrics["loss"]) == (run.epoch, run.losses[-1])
        with result.checkpoint.as_directory() as folder:
            assert (Path(folder) / "state").read_text() == f"{run.losses[-1]!r} {run.epoch}"


@pytest.mark.parametrize(
    ("name", "rates", "epochs", "reuse"), [("descend", RATES, 3, True), ("Descend", RATES[:2], 2, False)]
)
class TestPauseAndResume:
    pytestmark = on_cluster

    def test_trials_train_what_is_decided_in_this_order_each_epoch_once(
        self, name, rates, epochs, reuse, tuned, trainables
    ):
        study = study_of(*rates, max_epochs=epochs, seed=1)
        results, log = tuned(getattr(trainables, name), study, reuse_actors=reuse)
        decided = [(t.decision.config["rate"], t.decision.to_epoch) for t in read(study).history.decisions]
        assert [(rate, epoch) for rate, epoch, _ in log] == decided
        assert len(decided) == epochs * len(rates)
        assert any(r.metrics["iterations_since_restore"] < r.metrics["training_iteration"] for r in results)
        check_agreement(results, study, trainables)


class TestOnTheCluster:
    pytestmark = on_cluster

    def test_two_trials_at_a_time_on_two_nodes_until_the_budget_is_spent(self, tuned, trainables):
        study = study_of(*RATES, 0.4, max_epochs=5, budget=12)
        results, log = tuned(trainables.descend, study, workers=2, together=True, reuse_actors=True)
        assert max(Counter((rate, epoch) for rate, epoch, _ in log).values()) == 1
        assert len(log) == sum(run.epoch for run in study.runs) == 12
        assert len({node for _, _, node in log}) == 2
        assert most_under_way(study) == 2
        assert study.pending == ()
        check_agreement(results, study, trainables)

    def test_what_is_maximised_is_best_in_tune_and_in_the_study(self, tuned, trainables):
        study = study_of(*RATES, max_epochs=2, direction="maximize")
        results, _ = tuned(trainables.descend, study, metric="gain", reuse_actors=True)
        assert study.best.config == {"rate": 0.3}
        assert results.get_best_result().config["rate"] == 0.3
        assert by_rate(study)[0.3].losses == tuple(-loss for loss in trainables.curve(0.3, 2))

    def test_trials_that_raise_diverge_and_die(self, tuned, trainables):
        raises, diverges, dies = trainables.RAISES, trainables.DIVERGES, trainables.DIES
        study = study_of(raises, diverges, dies, 0.2, max_epochs=3)
        results, log = tuned(trainables.descend, study, workers=2, failures=1, reuse_actors=True)
        runs = by_rate(study)
        assert (runs[raises].state, runs[raises].outcome) == ("failed", "failed")
        assert runs[raises].losses == trainables.curve(raises, 1)
        assert (runs[diverges].state, runs[diverges].losses) == ("diverged", trainables.curve(diverges, 1))
        for rate in (dies, 0.2):
            assert (runs[rate].state, runs[rate].losses) == ("finished", trainables.curve(rate, 3))
        again = Counter((rate, epoch) for rate, epoch, _ in log)
        assert again[raises, 2] == again[dies, 2] == 2
        assert results.num_errors == 1

    def test_a_death_without_retries_does_not_fail_the_run(self, tuned, trainables):
        study = study_of(trainables.DIES, 0.2, max_epochs=3)
        results, _ = tuned(trainables.descend, study)
        runs = by_rate(study)
        assert (runs[trainables.DIES].state, runs[trainables.DIES].epoch) == ("frozen", 1)
        assert study.definition.banned == (runs[trainables.DIES].number,)
        assert runs[0.2].losses == trainables.curve(0.2, 3)
        assert results.num_errors == 1

    def test_a_stopping_criterion_ends_trials_and_their_last_losses_are_recorded(self, tuned, trainables):
        study = study_of(*RATES[:2], max_epochs=3)
        tuned(trainables.descend, study, stop={"training_iteration": 2}, reuse_actors=True)
        assert [run.losses for run in study.runs] == [trainables.curve(run.config["rate"], 2) for run in study.runs]
        assert set(study.definition.banned) == {1, 2}

    def test_a_trainable_that_cannot_be_frozen_is_refused(self, tuned, trainables, tmp_path):
        with pytest.raises(ft.StudyError, match="was paused but has no checkpoint, so it would start again"):
            tuned(trainables.forgetful, study_of(*RATES))
        (tmp_path / "log").unlink()
        with pytest.raises(ft.StudyError, match="Forgetful has no save_checkpoint, so its runs cannot be frozen"):
            tuned(trainables.Forgetful, study_of(*RATES))
        assert trained(tmp_path / "log") == []

    def test_a_trial_whose_actor_cannot_be_reused_has_failed(self, tuned, trainables):
        """A class without `reset_config`: Tune ends the trial and tells neither the searcher nor the scheduler."""
        study = study_of(*RATES[:2], max_epochs=3)
        results, log = tuned(trainables.Descend, study, reuse_actors=True)
        assert results.num_errors == sum(run.state == "failed" for run in study.runs) > 0
        assert len(log) == sum(run.epoch for run in study.runs)
        assert study.pending == ()

    def test_a_trainable_that_always_fails_ends_the_search(self, tuned):
        def hopeless(config):
            raise RuntimeError("nothing works")

        with pytest.raises(Exception, match="3 trials in a row failed before their first epoch"):
            tuned(hopeless, study_of(*RATES, 0.4, 0.45), reuse_actors=True)

    def test_the_code_of_the_page_runs(self, cluster, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        page = (ROOT / "docs" / "ray.md").read_text("utf-8")
        names = {"__name__": "__main__"}
        exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[-1], names)
        assert sum(run.epoch for run in names["study"].runs) == 20
        assert names["results"].get_best_result().metrics["loss"] == min(r.losses[-1] for r in names["study"].runs)
        assert list((tmp_path / "results").iterdir())


DRIVER = """
import sys
from pathlib import Path
from freezethaw.runtime.ray import library
library()
import ray
from ray import tune
import freezethaw as ft
from tests.integrations import test_ray_tune as here, trainables

ray.init(sys.argv[1], log_to_driver=False)
here.tuner_in(Path(sys.argv[2]), tune, trainables.descend).fit()
"""


def tuner_in(folder, tune, trainable):
    """As a user would write it: the same lines for the first time and for every other."""
    study = study_of(*RATES[:2], max_epochs=8, store=f"sqlite:///{folder / 'study.db'}")
    chosen = ft.ray_tune_config(study, workers=2)
    if tune.Tuner.can_restore(str(folder / "results" / "here")):
        return tune.Tuner.restore(str(folder / "results" / "here"), trainable)
    constants = {"log": str(folder / "log"), "seconds": 0.2}
    place = tune.RunConfig(name="here", storage_path=str(folder / "results"), verbose=0)
    return tune.Tuner(trainable, param_space=constants, tune_config=chosen, run_config=place)


class TestRestore:
    pytestmark = on_cluster

    def test_a_driver_is_killed_and_the_same_lines_continue(self, cluster, trainables, tmp_path, monkeypatch):
        from ray import tune

        from freezethaw.integrations.ray_tune import adapter

        uploads, sync_up = [], adapter.ReplacingSyncer.sync_up
        monkeypatch.setattr(adapter.ReplacingSyncer, "sync_up", lambda *args: uploads.append(args) or sync_up(*args))
        where = os.environ | {"TUNE_GLOBAL_CHECKPOINT_S": "0", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        with subprocess.Popen([sys.executable, "-c", DRIVER, cluster.address, str(tmp_path)], env=where) as driver:
            try:
                while len(trained(tmp_path / "log")) < 10:
                    assert driver.poll() is None
                    time.sleep(0.05)
            finally:
                driver.kill()
        with opened(tmp_path) as before:
            known = [run.losses for run in before.runs]
            assert before.pending
        results = tuner_in(tmp_path, tune, trainables.descend).fit()
        assert uploads, "Tune overwrites its state in place: what a kill leaves of it cannot always be read"
        assert 8 <= sum(map(len, known)) < 16
        with opened(tmp_path) as after:
            assert (after.pending, after.definition.banned) == ((), ())
            assert [run.epoch for run in after.runs] == [8, 8]
            assert all(run.losses[: len(kept)] == kept for run, kept in zip(after.runs, known, strict=True))
            check_agreement(results, after, trainables)
        # of each trial one that was being trained, and one that Tune had not saved yet
        assert len(trained(tmp_path / "log")) - 16 <= 4


@contextlib.contextmanager
def opened(folder):
    study = ft.Study.open(f"sqlite:///{folder / 'study.db'}")
    yield study
    study.close()


# The registry alone. A trial is its ID.


class Bench:
    """What Tune would do with trials, one at a time or two; all but their names and losses left out."""

    def __init__(self, study, workers=1):
        self.registry, self.study = TrialRegistry(study, "loss", workers), study
        self.running, self.names = {}, iter("abcdefghij")

    def go(self, loss, trial=None):
        """Train the next epoch of a trial, by default a new one; returns the trial and its action."""
        trial = trial or self.next_trial()
        epoch = self.running.get(trial, 0) + 1
        self.running[trial] = epoch
        return trial, self.registry.report(trial, epoch, loss, 1.0)

    def next_trial(self):
        name = next(self.names)
        if self.registry.start(name) is not None:
            return name
        return next(trial for trial in self.running if self.registry.assigned(trial))


def test_losses_and_seconds_are_recorded_and_the_end_is_known():
    bench = Bench(study_of(0.1, 0.2, max_epochs=2))
    while not bench.registry.finished:
        trial = bench.next_trial()
        assert bench.go(0.5, trial)[1] in ("continue", "freeze")
    assert [(run.losses, run.seconds, run.state) for run in bench.study.runs] == [
        ((0.5, 0.5), (1.0, 1.0), "finished")
    ] * 2
    assert bench.registry.start("z") is None
    assert all(bench.registry.exhausted(trial) for trial in bench.running)


def test_several_epochs_are_granted_and_recorded_at_once():
    study = study_of(0.1, 0.2, max_epochs=5)
    study.enqueue({"rate": 0.1}, to_epoch=3)
    bench = Bench(study)
    assert bench.registry.start("a") == {"rate": 0.1}
    assert [bench.go(loss, "a")[1] for loss in (0.3, 0.2)] == ["continue", "continue"]
    assert study.runs[0].losses == ()
    bench.go(0.1, "a")
    assert study.runs[0].losses == (0.3, 0.2, 0.1)


def test_an_error_after_some_of_several_epochs_keeps_their_losses_and_the_run_has_failed():
    study = study_of(0.1, max_epochs=5)
    study.enqueue({"rate": 0.1}, to_epoch=3)
    bench = Bench(study)
    bench.registry.start("a")
    bench.go(0.3, "a")
    bench.registry.close("a", "failed")
    assert study.runs[0].losses == (0.3,)
    assert bench.registry.start("b") is None
    assert (study.runs[0].state, study.runs[0].outcome) == ("failed", "failed")


def test_a_run_that_dies_twice_before_its_first_epoch_has_failed_and_three_such_trials_end_the_search():
    bench = Bench(study_of(0.1))
    assert bench.registry.start("a")
    bench.registry.fail("a", "interrupted")
    assert bench.study.runs[0].state == "frozen"
    assert bench.registry.start("b")
    bench.registry.fail("b", "interrupted")
    assert bench.study.runs[0].state == "failed"
    bench = Bench(study_of(*RATES, 0.4))
    for trial in "ab":
        assert bench.registry.start(trial)
        bench.registry.fail(trial, "failed")
    assert bench.registry.start("c")
    with pytest.raises(ft.StudyError, match="3 trials in a row failed before their first epoch"):
        bench.registry.fail("c", "failed")


def test_a_few_failures_at_the_start_do_not_end_a_search_that_has_trained():
    bench = Bench(study_of(*RATES, 0.4, 0.45, max_epochs=1))
    bench.go(0.5)
    for trial in "wxyz":
        assert bench.registry.start(trial) or bench.registry.assigned(trial)
        bench.registry.fail(trial, "failed")
    assert [run.state for run in bench.study.runs] == ["finished"] + ["failed"] * 4


def test_an_epoch_that_is_trained_again_changes_nothing_and_one_that_is_missing_ends_the_trial(caplog):
    bench = Bench(study_of(0.1, max_epochs=5))
    trial, action = bench.go(0.5)
    assert action == "continue"
    assert bench.registry.report(trial, 1, 0.9, 1.0) == "continue"
    assert "epochs 1 to 1 are trained again" in caplog.text
    assert bench.study.runs[0].losses == (0.5,)
    assert bench.registry.report(trial, 3, 0.3, 1.0) == "stop"
    assert bench.study.runs[0].losses == (0.5,)
    assert bench.registry.start("z") is None
    assert bench.study.definition.banned == (1,)


def test_a_loss_that_is_no_number_is_refused_and_one_that_is_not_finite_ends_the_run():
    bench = Bench(study_of(0.1, 0.2))
    with pytest.raises(ft.TellError, match="losses must be a number"):
        bench.go("0.5")
    bench = Bench(study_of(0.1, 0.2))
    assert bench.go(float("inf"))[1] == "stop"
    assert bench.study.runs[0].state == "diverged"


def test_an_unknown_trial_is_frozen():
    bench = Bench(study_of(0.1, 0.2))
    assert bench.registry.report("unknown", 1, 0.5, 1.0) == "freeze"
    assert bench.registry.exhausted("unknown")


def test_open_decisions_of_this_process_are_cancelled():
    study = study_of(0.1, 0.2)
    first = TrialRegistry(study, "loss", 2)
    assert first.start("a")
    assert len(study.pending) == 2
    TrialRegistry(study, "loss", 1)
    assert study.pending == ()


def test_open_decisions_of_another_object_for_the_same_study_are_cancelled(tmp_path):
    first, second, other = (
        study_of(0.1, 0.2, name="twice", store=f"sqlite:///{tmp_path / file}") for file in ("one", "one", "other")
    )
    assert register(TrialRegistry(first, "loss", 2)).start("a")
    register(TrialRegistry(other, "loss", 2))
    assert len(second.pending) == 2
    assert register(TrialRegistry(first, "loss", 2)).start("a")
    register(TrialRegistry(second, "loss", 2))
    assert second.pending == ()
    for study in (first, second, other):
        study.close()


def test_a_study_in_memory_cannot_be_restored_and_the_error_says_so():
    with pytest.raises(
        ft.StudyError, match=r"Tune would resume run\(s\) 3, 7, which study .* does not have; only a study with"
    ):
        TrialRegistry(study_of(0.1), "loss", 1).restore({"a": 7, "b": 3})


def test_a_pickle_names_its_study_and_finds_the_registry_or_raises(tmp_path):
    study = study_of(0.1, name="pickled", store=f"sqlite:///{tmp_path / 'secret.db'}")
    registry = TrialRegistry(study, "loss", 1)
    kept = pickle.dumps(registry)
    assert b"secret" not in kept
    other = study_of(0.1, name="pickled", store=f"sqlite:///{tmp_path / 'other.db'}")
    register(TrialRegistry(other, "loss", 1))  # another study of this name
    unavailable = pickle.loads(kept)
    assert isinstance(unavailable, UnavailableRegistry)
    with pytest.raises(ft.StudyError, match=r"'pickled', .* is not open in this process; call freezethaw.ray_tune_con"):
        unavailable.start("a")
    assert pickle.loads(pickle.dumps(register(registry))) is registry
    reopened = ft.Study.open(tmp_path / "secret.db")
    again = register(TrialRegistry(reopened, "loss", 1))
    assert pickle.loads(kept) is again
    for one in (study, other, reopened):
        one.close()


# What is refused, and what is not imported.


def test_wrong_arguments_are_refused():
    with pytest.raises(ft.StudyError, match=r"expected a study, ft.Study\(space"):
        ft.ray_tune_config(SPACE)
    for workers in (0, True, "2"):
        with pytest.raises(ft.StudyError, match="workers must be a positive integer"):
            ft.ray_tune_config(study_of(0.1), workers=workers)
    with pytest.raises(ft.StudyError, match="num_samples follows from the study"):
        ft.ray_tune_config(study_of(0.1), num_samples=10)


@pytest.mark.filterwarnings("ignore")
def test_a_config_that_was_changed_is_refused(trainables):
    config = ft.ray_tune_config(study_of(0.1, direction="maximize"), "gain", workers=3, time_budget_s=60)
    assert (config.metric, config.mode, config.num_samples, config.max_concurrent_trials) == ("gain", "max", -1, 3)
    assert config.time_budget_s == 60
    for metric, mode in (("loss", "max"), ("gain", "min"), (None, None)):
        with pytest.raises(ft.StudyError, match="the study has metric='gain', mode='max', but the Tuner has metric="):
            config.scheduler.set_search_properties(metric, mode)
    assert config.scheduler.set_search_properties("gain", "max")
    controller = SimpleNamespace(search_alg=SimpleNamespace(total_samples=10))
    with pytest.raises(ft.StudyError, match="num_samples must be -1"):
        config.scheduler.choose_trial_to_run(controller)


class Controller:
    """Of Tune, what the scheduler asks and does when it chooses."""

    search_alg = SimpleNamespace(total_samples=sys.maxsize)

    def __init__(self, **statuses):
        rest = {"checkpoint": object(), "pickled_error_file": None}
        self.trials = [SimpleNamespace(trial_id=t, status=s, **rest) for t, s in statuses.items()]

    def get_trials(self):
        return self.trials

    def _set_trial_status(self, trial, status):
        trial.status = status

    def stop_trial(self, trial):
        trial.status = "TERMINATED"

    @property
    def statuses(self):
        return [trial.status for trial in self.trials]


@pytest.mark.filterwarnings("ignore")
def test_only_trials_with_decisions_run_and_exhausted_ones_end(trainables):
    study = study_of(0.1, 0.2, 0.3)
    scheduler = ft.ray_tune_config(study, workers=2).scheduler
    scheduler._registry.start("a")
    scheduler._registry.start("b")
    study.tell(scheduler._registry._assignments.pop("b").decision, 0.5)  # frozen, and not yet thawed
    controller = Controller(a="PENDING", b="PENDING", unknown="PAUSED")  # as Tune queues them after a restore
    assert scheduler.choose_trial_to_run(controller).trial_id == "a"
    assert controller.statuses == ["PENDING", "PAUSED", "TERMINATED"]
    controller = Controller(a="RUNNING", b="PAUSED")
    assert scheduler.choose_trial_to_run(controller) is None
    study.thaw(2, 3)
    assert scheduler._registry.start("c") is None
    controller = Controller(a="PENDING", b="PAUSED")  # Tune starts those that are pending by itself
    assert scheduler.choose_trial_to_run(controller).trial_id == "b"


@pytest.mark.filterwarnings("ignore")
def test_state_files_of_tune_are_replaced_and_other_files_copied(trainables, tmp_path):
    """A driver that is killed while it saves leaves the state before or the one after: `Tuner.restore` reads both."""
    from pyarrow.fs import LocalFileSystem
    from ray.train._internal.storage import _FilesystemSyncer

    from freezethaw.integrations.ray_tune.adapter import replace_state_files

    local, remote = tmp_path / "local", tmp_path / "remote"
    for folder in (local / "trial", remote):
        folder.mkdir(parents=True)
    state, other = "experiment_state-2026.json", "trial/result.json"
    storage = SimpleNamespace(syncer=_FilesystemSyncer(LocalFileSystem()), storage_filesystem=LocalFileSystem())
    controller = SimpleNamespace(_checkpoint_manager=SimpleNamespace(_storage=storage))
    for _ in range(2):
        replace_state_files(SimpleNamespace(_tune_controller=controller))
    assert isinstance(storage.syncer, _FilesystemSyncer), "that of the trials"
    syncer = controller._checkpoint_manager._storage.syncer
    assert isinstance(syncer._syncer, _FilesystemSyncer)
    kept = []
    for text in ("one", "two"):
        for name in (state, other):
            (local / name).write_text(text)
        syncer.sync_up(str(local), str(remote))
        assert (remote / state).read_text() == text
        syncer.wait()
        assert (remote / other).read_text() == text
        kept.append((remote / state).open())
    assert [file.read() for file in kept] == ["one", "two"], "overwritten in place"
    for file in kept:
        file.close()
    assert sorted(path.name for path in remote.iterdir()) == [state, "trial"]


@pytest.mark.filterwarnings("ignore")
def test_a_trial_that_ended_with_an_error_keeps_no_decision(trainables):
    study = study_of(0.1, 0.2)
    scheduler = ft.ray_tune_config(study).scheduler
    scheduler._registry.start("a")
    assert scheduler.choose_trial_to_run(Controller(a="ERROR")) is None
    assert study.runs[0].state == "failed"


def test_ray_is_imported_on_use_and_its_absence_is_one_line(monkeypatch):
    code = "import sys, freezethaw as ft; ft.ray_tune_config; print('ray' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "freezethaw.integrations.ray_tune.adapter", raising=False)
    monkeypatch.delattr("freezethaw.integrations.ray_tune.adapter", raising=False)
    with pytest.raises(MissingLibrary, match=r'this needs ray: pip install "freezethaw\[ray-tune\]"'):
        ft.ray_tune_config(study_of(0.1))


@pytest.mark.filterwarnings("ignore")
def test_domains_of_tune_become_parameters(trainables):
    from ray import tune

    space = ft.Space.from_ray_tune(
        {
            "rate": tune.loguniform(1e-4, 0.5),
            "momentum": tune.uniform(0.0, 0.9),
            "drop": tune.quniform(0.0, 0.5, 0.1),
            "size": tune.randint(2, 9),
            "width": tune.lograndint(1, 100),
            "depth": tune.qrandint(3, 12, 4),
            "layer": {
                "kind": tune.choice(["a", "b"]),
                "norm": tune.grid_search([True, False]),
                "only": tune.choice(["c"]),
            },
            "data": "here",
        }
    )
    assert space == ft.Space(
        {
            "rate": ft.Float(1e-4, 0.5, log=True),
            "momentum": ft.Float(0.0, 0.9),
            "drop": ft.Float(0.0, 0.5, step=0.1),
            "size": ft.Int(2, 8),
            "width": ft.Int(1, 99, log=True),
            "depth": ft.Int(4, 12, step=4),
            "layer/kind": ft.Choice("a", "b"),
            "layer/norm": ft.Choice(True, False),
            "layer/only": "c",
            "data": "here",
        }
    )
    for domain in (tune.randn(0, 1), tune.sample_from(lambda _: 1)):
        with pytest.raises(ft.SpaceError, match=r"x: tune's .* is not supported"):
            ft.Space.from_ray_tune({"x": domain})
    found = ft.ray_tune_config(ft.Study(space, 3)).search_alg.suggest("a")
    assert set(found) == {"rate", "momentum", "drop", "size", "width", "depth", "layer", "data"}
    assert set(found["layer"]) == {"kind", "norm", "only"}
