"""The Ray engine on a real cluster of several nodes, killed and asked to leave. `make ray` does more."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from benchmarks.faults import ray as ray_faults

import freezethaw as ft
from freezethaw.errors import MissingLibrary
from freezethaw.runtime import ray as engine
from freezethaw.store import Store
from tests.runtime import trainings
from tests.runtime.trainings import BAD, GOOD, LOG, SPACE

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray has warnings of its own


@pytest.fixture(scope="module")
def cluster():
    """In CI a missing library is a failure; on a laptop its tests are skipped."""
    if not os.environ.get("FREEZETHAW_CI") and importlib.util.find_spec("ray") is None:  # not imported: see `library`
        pytest.skip("no Ray: pip install 'freezethaw[ray]'")
    with ray_faults.cluster(workers=2) as found:
        yield found


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


def tuned(train, cluster, url, environment=None, **changes):
    wanted = {"max_epochs": 3, "budget": 6, "candidates": [GOOD, BAD], "policy": "random"}
    ray_engine = ft.RayEngine(address=cluster.address, runtime_env={"env_vars": environment or {}})
    return ft.tune(train, SPACE, store=url, engine=ray_engine, **wanted | changes)


def events(url, kind):
    with Store(url) as store:
        return [event for event in store.open("study").events() if event.kind == kind]


def test_an_actor_a_node_and_the_driver_are_killed_and_every_promise_holds(cluster):
    found = ray_faults.with_kills(cluster, 40, 2, kills=1, drivers=1, seconds="0.05 0.2", replay=False)
    assert found["epochs"] == 40
    assert found["workers_lost"] >= 2
    assert found["replayed"] > 0


def test_a_worker_that_gets_sigterm_saves_and_leaves_and_another_continues(cluster, url, tmp_path):
    def train(run):
        if run.from_epoch == 0 and run.config == GOOD:
            os.kill(os.getpid(), signal.SIGTERM)
        trainings.descend(run)

    log = tmp_path / "log"
    result = tuned(train, cluster, url, {LOG: str(log)})
    assert result.epochs == 6
    assert sorted(log.read_text().split("\n")) == ["", "1 1", "1 2", "1 3", "2 1", "2 2", "2 3"]
    assert events(url, "worker died") == []


def test_an_epoch_that_takes_too_long_fails_its_run_and_others_continue(cluster, url):
    result = tuned(trainings.sleepy, cluster, url, budget=9, epoch_limit=1.5)
    by_rate = {run.config["rate"]: run for run in result.runs}
    assert by_rate[0.2].state == "finished"
    assert (by_rate[0.8].state, by_rate[0.8].losses) == ("failed", (1.0,))
    assert "longer than 1.5 s for one epoch (epoch 2)" in events(url, "run failed")[0].text


def test_ctrl_c_freezes_the_runs_and_the_same_call_continues(cluster, url):
    def interrupt(notice):
        if notice.kind == "epoch":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(trainings.descend, cluster, url, callbacks=[interrupt], workers=2, max_epochs=500, budget=1000)
    with Store(url) as store:
        left = store.open("study").load()
    assert left.pending == ()
    assert {run.state for run in left.runs} <= {"frozen", "finished"}
    done = sum(run.epoch for run in left.runs)
    assert tuned(trainings.descend, cluster, url, max_epochs=500, budget=done + 5).epochs == done + 5


def test_a_worker_that_the_driver_does_not_know_to_run_decides_nothing(cluster, url, monkeypatch):
    """Such workers are killed, not asked to leave: the driver may learn late that they were placed."""
    import ray

    ready, drivers, interrupted = engine.RayWorkers._ready, [], []

    def late(self, future):
        drivers.append(self)
        return future is not self._workers[2].who and ready(self, future)

    def interrupt(notice):
        if notice.kind == "epoch" and not interrupted:
            interrupted.append(notice)
            ray.get(drivers[0]._workers[2].who)  # it runs
            time.sleep(1.0)
            raise KeyboardInterrupt

    monkeypatch.setattr(engine.RayWorkers, "_ready", late)
    with pytest.raises(KeyboardInterrupt):
        tuned(trainings.descend, cluster, url, callbacks=[interrupt], workers=2, max_epochs=500, budget=1000)
    with Store(url) as store:
        assert store.open("study").load().pending == ()


def test_what_cannot_work_ends_the_study_with_its_message(cluster, url, monkeypatch):
    ghost = type(sys)("ghost")
    exec("def train(run): pass", ghost.__dict__)
    monkeypatch.setitem(sys.modules, "ghost", ghost)
    with pytest.raises(ft.StudyError, match=r"cannot be loaded in a worker process: ModuleNotFoundError.*ghost"):
        tuned(ghost.train, cluster, url)


def test_the_cluster_of_the_tests_requires_a_token(cluster):
    code = f"from ray._raylet import GcsClient; GcsClient({cluster.address!r}).internal_kv_keys(b'', None)"
    environment = os.environ | {"RAY_AUTH_MODE": "disabled"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert found.returncode != 0
    assert "uthenticat" in found.stderr


def test_the_code_of_the_page_runs(cluster, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    page = (Path(__file__).parents[2] / "docs" / "ray.md").read_text()
    names = {"__name__": "__main__"}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)
    assert names["result"].epochs == 20


# Without a cluster.


class Library:
    """Of Ray, what is asked before anything is started."""

    @staticmethod
    def nodes():
        return [{"NodeManagerAddress": f"192.0.2.{i}", "Alive": i < 3} for i in range(4)]

    @staticmethod
    def is_initialized():
        return True


def test_several_machines_need_a_store_that_they_share(url, monkeypatch):
    monkeypatch.setattr(engine, "library", Library)
    with pytest.raises(ft.StudyError, match="cluster has 3 machines, and a store in SQLite is for one; give a Postgr"):
        ft.tune(trainings.descend, SPACE, 3, 6, store=url, engine=ft.RayEngine())


def test_the_dashboard_is_off_and_the_token_on_unless_asked_and_no_cluster_is_a_clear_message(url, monkeypatch):
    asked = []

    class Away(Library):
        exceptions = type("exceptions", (), {"RayError": RuntimeError})

        @staticmethod
        def is_initialized():
            return False

        @staticmethod
        def init(*where, **how):
            asked.append((where, how["include_dashboard"]))
            raise ConnectionError("nobody there")

    monkeypatch.setattr(engine, "library", Away)
    for ray_engine in (ft.RayEngine(), ft.RayEngine(address="192.0.2.1:6379", dashboard=True)):
        with pytest.raises(ft.StudyError, match="cannot connect to a Ray cluster: nobody there"):
            ft.tune(trainings.descend, SPACE, 3, 6, store=url, engine=ray_engine)
    assert asked == [((None,), False), (("192.0.2.1:6379",), True)]
    code = "import os; from freezethaw.runtime.ray import library; library(); print(os.environ['RAY_AUTH_MODE'])"
    for before, after in (({}, "token"), ({"RAY_AUTH_MODE": "disabled"}, "disabled")):
        environment = {k: v for k, v in os.environ.items() if k != "RAY_AUTH_MODE"} | before
        found = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == after


IMPORTED_BEFORE = """
import os, ray
import freezethaw as ft

def train(run):
    for _ in run.epochs():
        run.report(1.0, save=lambda folder: (folder / "state").write_text(""))

found = ft.tune(train, ft.Space(x=ft.Float(0.0, 1.0)), max_epochs=2, budget=2, engine=ft.RayEngine())
print(found.best.loss, os.environ["RAY_AUTH_MODE"])
"""


def test_a_cluster_has_tokens_even_if_ray_was_imported_before(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {"HOME": str(tmp_path)}
    with tempfile.TemporaryDirectory() as short:  # where no cluster of another test is found; sockets need a short path
        found = subprocess.run(
            [sys.executable, "-c", IMPORTED_BEFORE],
            env=environment | {"RAY_TMPDIR": short},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert found.stdout.split() == ["1.0", "token"], found.stderr


def test_resources_as_ray_takes_them():
    found = ft.RayEngine({"GPU": 0.5, "big": 2}, runtime_env={"pip": ["x"]}).options()
    assert (found["num_cpus"], found["num_gpus"], found["resources"]) == (0, 0.5, {"big": 2})
    assert found["runtime_env"] == {"pip": ["x"]}
    assert ft.RayEngine().options()["num_cpus"] == 1


def test_ray_is_imported_on_use_and_its_absence_is_one_line(monkeypatch):
    code = "import sys, freezethaw as ft; ft.tune; ft.RayEngine(); print('ray' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingLibrary, match=r'this needs ray: pip install "freezethaw\[ray\]"'):
        ft.tune(trainings.descend, SPACE, 3, 6, engine=ft.RayEngine())


def test_causes_of_deaths_as_ray_reports_them():
    class OutOfMemoryError(Exception):
        pass

    assert engine._cause(OutOfMemoryError("x")) == "out of memory"
    assert engine._cause(Exception("The actor died because its node has died.")) == "killed"
    assert engine._cause(Exception("Worker unexpectedly exits with a connection error code 2.")) == "unknown"
