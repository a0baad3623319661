"""Worker processes: really killed, asked to leave, hung, and given functions of every kind. `make faults` does more."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from benchmarks import servers
from benchmarks.faults import interruptions, outages

import freezethaw as ft
from freezethaw.runtime import serialization, signals, worker_failures
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.training_session import FAILED
from freezethaw.store import Store
from freezethaw.trainers import command
from tests.runtime import trainings
from tests.runtime.trainings import BAD, GOOD, GROUP, LOG, SPACE

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")]
QUICK = {"budget": 24, "every": 3, "replay": False}


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


def tuned(train, url, **changes):
    wanted = {"max_epochs": 3, "budget": 6, "candidates": [GOOD, BAD], "engine": "processes", "policy": "random"}
    return ft.tune(train, SPACE, store=url, **wanted | changes)


def events(url, kind):
    with Store(url) as store:
        return [event for event in store.open("study").events() if event.kind == kind]


# Storms.


def test_kill_9_of_the_parent():
    found = interruptions.repeat(interruptions.kill_parent(3.0), 2, again=0, seed=5, **QUICK)
    assert found["interruptions"] == 2


def test_workers_that_are_asked_to_leave_train_nothing_again():
    found = interruptions.repeat(interruptions.signal_worker(signal.SIGTERM), 3, again=0, seed=6, **QUICK)
    assert found["interruptions"] == 3
    assert found["replayed"] > 0


def test_workers_that_are_killed_lose_little():
    found = interruptions.repeat(interruptions.signal_worker(signal.SIGKILL), 3, again=3, seed=7, **QUICK)
    assert found["interruptions"] == 3


def test_sigterm_in_long_epochs_costs_nothing():
    found = outages.long_epochs(2, 2.5, seed=8, at_once=2)
    assert (found["interruptions"], found["trained_again"]) == (2, 0)


@pytest.mark.skipif(servers.binaries() is None and not os.environ.get("FREEZETHAW_CI"), reason="needs PostgreSQL")
def test_a_search_survives_restarts_of_its_database():
    found = outages.restarts(2, seed=9, budget=40)
    assert (found["interruptions"], found["trained_again"]) == (2, 0)


def test_a_copy_of_any_instant_can_be_continued():
    assert outages.power_losses(2, seed=10, budget=24)["copies"] == 2


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs a C compiler")
def test_a_slow_disk_changes_nothing():
    assert outages.slow_disk(1, seed=11, budget=24)["interruptions"] == 1


# Trainings that kill or hang their worker.


def test_a_run_that_kills_its_workers_has_failed_and_others_continue(url, tmp_path, monkeypatch):
    monkeypatch.setattr(worker_failures, "STATISTICS", tmp_path / "none")  # another test may really lack memory now
    result = tuned(trainings.killed_as_by_the_oom_killer, url, budget=9)
    by_rate = {run.config["rate"]: run for run in result.runs}
    assert by_rate[0.2].state == "finished"
    assert (by_rate[0.8].state, by_rate[0.8].losses) == ("failed", (1.0,))
    [said] = events(url, FAILED)
    assert "10 workers in a row were killed after epoch 1; out of memory?" in said.text
    assert "killed by SIGKILL, from outside" in events(url, "worker died")[0].text


def test_a_run_that_crashes_its_workers_has_failed_sooner(url):
    result = tuned(trainings.crash, url, budget=9)
    assert {run.config["rate"]: run.state for run in result.runs} == {0.2: "finished", 0.8: "failed"}
    assert "3 workers in a row crashed" in events(url, FAILED)[0].text
    assert len(events(url, "worker died")) == 3


def test_workers_that_the_system_kills_for_lack_of_memory(url, tmp_path, monkeypatch):
    """The count of the system is faked: it rises with the first kill."""
    count = tmp_path / "vmstat"
    count.write_text("pgfault 7\noom_kill 3\n")
    monkeypatch.setattr(worker_failures, "STATISTICS", count)

    def train(run):
        for epoch in run.epochs():
            if run.config["rate"] > 0.5:
                count.write_text("pgfault 7\noom_kill 4\n")
                os.kill(os.getpid(), signal.SIGKILL)
            run.report(1.0 / epoch, save=lambda folder: (folder / "x").write_text("x"))

    result = tuned(train, url, budget=9)
    by_rate = {run.config["rate"]: (run.state, run.outcome) for run in result.runs}
    assert by_rate == {0.2: ("finished", ""), 0.8: ("failed", "out_of_memory")}
    assert "3 workers in a row were killed for lack of memory after epoch 0" in events(url, FAILED)[0].text
    assert "by the system, for lack of memory" in events(url, "worker died")[0].text


@pytest.fixture
def small_group():
    """A control group with little memory, if this system lets us make one."""
    for home, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(home) / f"freezethaw-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text("200000000")
            yield group
        except OSError:
            continue
        finally:
            group.rmdir()
        return
    pytest.skip("cannot make a control group with little memory")


def test_workers_that_the_kernel_really_kills_for_lack_of_memory(url, small_group, monkeypatch):
    monkeypatch.setenv(GROUP, str(small_group))
    result = tuned(trainings.greedy, url, budget=9)
    by_rate = {run.config["rate"]: (run.state, run.outcome) for run in result.runs}
    assert by_rate == {0.2: ("finished", ""), 0.8: ("failed", "out_of_memory")}
    assert len(events(url, "worker died")) == 3
    assert "by the system, for lack of memory" in events(url, "worker died")[0].text


# A time limit for each epoch.


def test_an_epoch_that_takes_too_long_fails_its_run_and_others_continue(url):
    result = tuned(trainings.sleepy, url, budget=9, epoch_limit=1.5, engine=None)
    by_rate = {run.config["rate"]: run for run in result.runs}
    assert by_rate[0.2].state == "finished"
    assert (by_rate[0.8].state, by_rate[0.8].losses) == ("failed", (1.0,))
    [said] = events(url, FAILED)
    assert "longer than 1.5 s for one epoch (epoch 2)" in said.text
    assert "time.sleep(1000)" in said.details["traceback"]
    assert events(url, "worker died") == []


def test_a_training_that_lets_no_thread_run_is_ended_from_outside_python(url, monkeypatch):
    """Nobody can write down why then, but a crash: the run has failed after three of them."""
    monkeypatch.setenv("PYTHONSTARTUP", "")
    with monkeypatch.context() as patched:
        patched.setattr(serialization, "message", stubborn_message)
        result = tuned(trainings.deaf, url, candidates=[GOOD], epoch_limit=0.5)
    assert result.runs[0].state == "failed"
    assert "3 workers in a row crashed" in events(url, FAILED)[0].text


def stubborn_message(train, message=serialization.message):
    def impatient(run):
        signals.GRACE = 0.5
        run.epochs.__self__._advance.__self__.timeout.stop()
        run.epochs.__self__._advance.__self__.timeout.start()
        return train(run)

    return message(impatient)


def test_where_every_epoch_takes_too_long_the_study_ends(url):
    with pytest.raises(ft.StudyError, match=r"failed in all of the first 3 runs.*longer than 0.5 s for one epoch"):
        tuned(lambda run: time.sleep(1000), url, epoch_limit=0.5, candidates=None)


def test_a_limit_in_this_process_is_refused_except_for_commands(url, tmp_path):
    with pytest.raises(ft.StudyError, match="epoch_limit needs engine='processes'"):
        tuned(trainings.descend, url, epoch_limit=1.0, engine="inline")
    with pytest.raises(ft.StudyError, match="positive number of seconds"):
        tuned(trainings.descend, url, epoch_limit=0)
    slow = command(["sh", "-c", "sleep 100"], tmp_path)
    with pytest.raises(ft.StudyError, match=r"failed in all .*longer than 0.2 s for one epoch: .*sleep 100"):
        tuned(slow, url, epoch_limit=0.2, engine="inline", candidates=None)


def test_a_worker_that_hangs_is_killed_and_its_run_taken_over(url, tmp_path, monkeypatch):
    monkeypatch.setenv(LOG, str(tmp_path / "hung"))

    def interrupt():
        while not (tmp_path / "hung").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        tuned(trainings.hang, url, candidates=[GOOD], budget=3, grace=1.0)
    process = int((tmp_path / "hung").read_text())
    assert not Path(f"/proc/{process}").exists()
    (tmp_path / "hung").unlink()
    result = tuned(trainings.descend, url, candidates=[GOOD], budget=3)
    assert result.runs[0].epoch == 3
    assert result.runs[0].losses[0] == 1.0, "the loss recorded first stays"


# Functions of every kind.

SCRIPT = """
import freezethaw as ft

def train(run):
    for epoch in run.epochs():
        print("trained in", __name__)
        run.report(run.config["x"] + 1 / epoch, save=lambda folder: (folder / "x").write_text("x"))

result = ft.tune(lambda run: train(run), ft.Space(x=ft.Float(0, 1)), max_epochs=2, budget=4, workers=2, store="sqlite:///s.db")
print(result.epochs, result.reason)
"""


def test_a_lambda_and_a_function_of_a_script_without_a_guard(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    found = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "4 budget spent: 4 epochs", found.stderr
    assert any("trained in" in log.read_text() for log in tmp_path.glob("checkpoints/logs/*/*.log"))


def shipped(function):
    return serialization.receive(io.BytesIO(serialization.message(function)))


def test_functions_are_sent_by_name_or_by_value():
    notebook = {"__name__": "__main__", "offset": 3}
    exec("def train(x): return x + offset", notebook)
    step = 10
    assert shipped(notebook["train"])(1) == 4
    assert shipped(lambda x: x + step)(1) == 11
    assert shipped(trainings.descend) is trainings.descend
    assert serialization.dumps(trainings.descend)["by"] == "name"


def test_a_training_that_mentions_the_package_is_sent_to_workers(url):
    """`ft` is a plain module: cloudpickle sends it by name."""

    def train(run):
        for epoch in run.epochs():
            if run.config == BAD:
                raise ft.Diverged
            run.report(1.0 / epoch)

    assert serialization.dumps(train)["by"] == "value"
    result = tuned(train, url, budget=4)
    assert {run.config["rate"]: run.state for run in result.runs}[BAD["rate"]] == "diverged"


def test_a_function_that_cannot_be_sent_is_refused_before_anything_is_started(url):
    lock = threading.Lock()
    with pytest.raises(ft.StudyError, match=r"cannot be sent to a worker process: .*lock.*exists in this process only"):
        tuned(lambda run: lock.acquire(), url)


def test_a_function_that_does_not_arrive_is_a_clear_message(url, monkeypatch):
    ghost = type(sys)("ghost")
    exec("def train(run): pass", ghost.__dict__)
    monkeypatch.setitem(sys.modules, "ghost", ghost)
    with pytest.raises(ft.StudyError, match=r"cannot be loaded in a worker process: ModuleNotFoundError.*ghost"):
        tuned(ghost.train, url)


def test_a_training_that_always_fails_ends_the_study_with_its_message(url):
    with pytest.raises(ft.StudyError, match=r"failed in all of the first 3 runs.*must be a number, not 'text'"):
        tuned(lambda run: [run.report("text") for _ in run.epochs()], url, candidates=None)


# Signals.


def test_a_forked_helper_of_a_training_can_be_terminated():
    leaving = Leaving()
    with on_signals(leaving):
        helper = os.fork()
        if helper == 0:
            try:
                time.sleep(30)
            finally:  # whatever happens, it must not continue as if it were the process of the tests
                os._exit(0)
        time.sleep(0.2)
        os.kill(helper, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1]) == -signal.SIGTERM
        assert not leaving()
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
        assert leaving()
        assert leaving.why == "SIGUSR1"


# Wall-clock limits.


def slow(run):
    """Epochs of a twentieth of a second that never end by themselves."""
    start = 0 if run.checkpoint is None else int((run.checkpoint / "epoch").read_text())
    for epoch in run.epochs():
        assert epoch > start
        time.sleep(0.05)
        run.report(1.0 / epoch, save=lambda folder, epoch=epoch: (folder / "epoch").write_text(str(epoch)))


@pytest.mark.parametrize("workers", [1, 4])
def test_a_timeout_freezes_all_runs_and_the_same_call_continues(url, workers):
    wanted, timeout = {"max_epochs": 1000, "workers": workers, "store": url, "policy": "random"}, 1.0
    while True:
        timeout *= 2  # until workers have had the time to start, however slow the machine is
        begin = time.monotonic()
        result = ft.tune(slow, SPACE, timeout=timeout, **wanted)
        assert time.monotonic() - begin > timeout
        assert result.reason.startswith(f"timeout: {timeout:g} s have passed")
        assert {run.state for run in result.runs} <= {"frozen"}
        assert len(events(url, "study finished")) == 0
        if result.epochs > 5:
            break
    again = ft.tune(slow, SPACE, timeout=10_000.0, budget=result.epochs + 3, **wanted)
    assert again.epochs == result.epochs + 3
    assert again.reason == f"budget spent: {result.epochs + 3} epochs"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({}, "give a budget .* or a timeout"),
        ({"timeout": 0}, "timeout must be a positive number"),
        ({"timeout": "2h"}, "timeout must be a positive number"),
        ({"budget": 4.5}, "budget must be a number of epochs or a Budget"),
    ],
)
def test_limits_that_make_no_sense_are_named(named, message):
    with pytest.raises(ft.StudyError, match=message):
        ft.tune(slow, SPACE, 10, **named)
