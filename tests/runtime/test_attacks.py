"""What trainings, machines and users do to a search: it reports it, loses nothing recorded, and continues or stops."""

from __future__ import annotations

import errno
import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import freezethaw as ft
from freezethaw.runtime import worker
from freezethaw.runtime.serialization import CHANGED, fingerprint
from freezethaw.runtime.training_session import FAILED, LATE_ERROR, NOT_SAVED
from freezethaw.runtime.worker import FINISHED, Worker, WorkerOptions
from freezethaw.store import Store
from freezethaw.trainers import command, function_of, named
from tests.runtime import trainings
from tests.runtime.trainings import BAD, GOOD, LOG, SPACE

OTHERS = [GOOD, BAD, {"rate": 0.1}]


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


def tuned(train, url, **changes):
    wanted = {"max_epochs": 3, "budget": 6, "candidates": OTHERS, "policy": "random"}
    return ft.tune(train, SPACE, store=url, **wanted | changes)


def events(url, kind):
    with Store(url) as store:
        return [event for event in store.open("study").events() if event.kind == kind]


def states(result):
    return {run.config["rate"]: run.state for run in result.runs}


# Trainings that end their process. The codes are those with which our own workers end.


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 1, 3, 4, 5])
def test_a_training_that_exits_fails_its_run_whatever_the_code(url, code):
    def train(run):
        for epoch in run.epochs():
            if run.config["rate"] > 0.5:
                os._exit(code)
            run.report(1.0 / epoch, save=lambda folder: (folder / "x").write_text("x"))

    result = tuned(train, url, engine="processes")
    assert states(result) == {0.2: "finished", 0.8: "failed", 0.1: "finished"}
    assert result.reason == "budget spent: 6 epochs"
    assert "3 workers in a row crashed" in events(url, FAILED)[0].text
    assert f"ended with exit code {code}" in events(url, "worker died")[0].text


# Saving.


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.ENOSPC])
def test_an_error_of_one_save_fails_that_run_only(url, error):
    """Also if there is no space on another disk than that of the checkpoints."""

    def save(rate, folder):
        (folder / "x").write_text("x")
        if rate > 0.5:
            raise OSError(error, os.strerror(error))

    def train(run):
        for epoch in run.epochs():
            run.report(1.0 / epoch, save=functools.partial(save, run.config["rate"]))

    result = tuned(train, url, budget=7)
    assert {rate: state for rate, state in states(result).items() if rate > 0.5} == {0.8: "failed"}
    assert sum(run.epoch for run in result.runs if run.state == "finished") == 6
    [said] = events(url, FAILED)
    assert os.strerror(error) in said.text
    assert "in save" in said.details["traceback"]


def test_a_save_that_always_fails_ends_the_search_and_says_so(url):
    def save(folder):
        raise RuntimeError("no such tensor")

    def train(run):
        for epoch in run.epochs():
            run.report(1.0 / epoch, save=save)

    with pytest.raises(ft.StudyError, match=r"failed in all of the first 3 runs.*RuntimeError: no such tensor"):
        tuned(train, url, budget=1000, max_epochs=100, candidates=None)


def test_an_empty_file_is_a_checkpoint(url):
    def train(run):
        assert (run.checkpoint is None) == (run.from_epoch == 0)
        for epoch in run.epochs():
            run.report(1.0 / epoch, save=lambda folder: (folder / "empty").touch())

    result = tuned(train, url)
    assert {run.state for run in result.runs} <= {"finished", "frozen"}
    assert events(url, FAILED) == []


def test_a_training_that_never_saves_gets_one_warning(url, capsys):
    def train(run):
        for epoch in run.epochs():
            run.report(1.0 / epoch)

    tuned(train, url, candidates=None, max_epochs=9, budget=20)
    [said] = events(url, NOT_SAVED)
    assert "without a checkpoint" in said.text
    assert "each thaw of a run trains it again from epoch 1" in said.text
    assert capsys.readouterr().err.count("without a checkpoint") == 1


def test_a_training_that_saves_gets_no_warning(url, capsys):
    tuned(trainings.descend, url, max_epochs=9, budget=20, candidates=None)
    assert events(url, NOT_SAVED) == []
    assert capsys.readouterr().err == ""


# Errors.


@pytest.mark.parametrize("error", [ValueError("too late"), SystemExit(1), KeyError()])
def test_an_error_after_the_last_report_of_a_decision_is_recorded(url, error):
    def train(run):
        for epoch in run.epochs():
            run.report(1.0 / epoch, save=lambda folder: (folder / "x").touch())
        raise error

    result = tuned(train, url)
    assert result.epochs == 6
    assert {run.state for run in result.runs} <= {"finished", "frozen"}
    said = events(url, LATE_ERROR)
    assert said
    assert type(error).__name__ in said[0].text
    assert "raise error" in said[0].details["traceback"]


def test_an_error_without_a_text_is_named(url):
    def train(run):
        if run.config["rate"] > 0.5:
            raise AssertionError
        trainings.descend(run)

    tuned(train, url)
    [said] = events(url, FAILED)
    assert said.text == f"run {said.run}: AssertionError"


def test_diverged_epochs_count_the_same_everywhere(url):
    def train(run):
        for epoch in run.epochs():
            if run.config["rate"] > 0.5 and epoch == 2:
                run.report(float("nan"))
            else:
                run.report(1.0 / epoch, save=lambda folder: (folder / "x").touch())

    result = tuned(train, url, budget=7)
    assert "diverged" in states(result).values()
    assert result.reason == "budget spent: 7 epochs"
    assert result.epochs == 7
    with Store(url) as store:
        assert store.studies()[0].epochs == 7
        assert store.open("study").load().epochs_trained() == 7


def test_the_end_is_recorded_once_however_many_workers_see_it(url):
    tuned(trainings.descend, url)
    with ft.Study.open(url) as one, ft.Study.open(url) as two:
        for study in (one, two, one):
            Worker._finished(ended_worker(study), "budget spent: 6 epochs")
    assert len(events(url, FINISHED)) == 1


def ended_worker(study):
    found = object.__new__(Worker)
    found.session = study._session
    return found


# Another training.


def test_another_training_is_an_event_and_a_warning(url, capsys):
    def other(run):
        return trainings.descend(run)

    tuned(trainings.descend, url, budget=2)
    tuned(trainings.descend, url, budget=3)
    assert events(url, CHANGED) == []
    assert capsys.readouterr().err == ""
    tuned(other, url, budget=4)
    tuned(other, url, budget=5)
    [said] = events(url, CHANGED)
    assert "continues with another training" in said.text
    assert capsys.readouterr().err.count("continues with another training") == 1


def test_another_version_of_a_training_has_another_fingerprint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fingerprint(trainings.descend) == fingerprint(trainings.descend)
    assert fingerprint(trainings.descend) != fingerprint(trainings.crash)
    first, second = [fingerprint(lambda run, rate=rate: run.report(1.0)) for rate in (1, 2)]
    assert first == second
    assert first != fingerprint(lambda run: run.report(2.0))
    seen = []
    for number in (1, 2):
        (tmp_path / "train.sh").write_text(f"#!/bin/sh\necho {number}\n")
        (tmp_path / "train.sh").chmod(0o755)
        seen.append(fingerprint(command(["./train.sh"], tmp_path)))
        (tmp_path / f"train{number}.py").write_text(f"def train(run):\n    run.report({number})\n")
        seen.append(fingerprint(named(f"train{number}.py")))
    assert len({found["sha256"] for found in seen}) == 4
    assert fingerprint(functools.partial(trainings.descend, x=1)) != fingerprint(functools.partial(trainings.descend))
    assert fingerprint(function_of(Model))["name"] == "Model"
    assert fingerprint(len) == {}, "its source is not known"  # not print: Ray replaces it where it is in use
    (tmp_path / "page.md").write_text("text\n" * 3 + "(((\n" * 3)
    found = {}
    exec(compile("\n\n\n\ndef train(run): pass\n", str(tmp_path / "page.md"), "exec"), found)
    assert fingerprint(found["train"]) == {}, "its file is no Python"


class Model:
    def __init__(self, config, seed):
        self.loss = 1.0

    def train_epoch(self):
        self.loss /= 2
        return self.loss

    def save(self, folder):
        (folder / "loss").write_text(repr(self.loss))

    def load(self, folder):
        self.loss = float((folder / "loss").read_text())


# Signals.

SCRIPT = """
import sys, time
import freezethaw as ft

def train(run):
    weight = float((run.checkpoint / "weight").read_text()) if run.checkpoint else 1.0
    for epoch in run.epochs():
        time.sleep(0.1)
        weight *= 0.9
        print(epoch, file=open("log", "a"))
        run.report(weight, save=lambda folder: (folder / "weight").write_text(repr(weight)))

ft.tune(train, {"x": ft.Float(0, 1)}, 1000, 10_000, store="study.db", policy="random", workers=int(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_search_in_one_way(tmp_path, workers, number):
    (tmp_path / "script.py").write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, "script.py", str(workers)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(tmp_path / "log")
        process.send_signal(number)
        _, said = process.communicate()
    assert said == f"freezethaw: {number.name}: all runs are frozen; the same command continues the study\n"
    assert process.returncode == 3
    with ft.Study.open(tmp_path / "study.db") as study:
        assert study.pending == ()
        assert {run.state for run in study.runs} == {"frozen"}
        saved = study._session.storage.checkpoints()
        assert any(run.epoch for run in study.runs)
        for run in (run for run in study.runs if run.epoch):
            assert run.epoch in {c.epoch for c in saved if c.run == run.number}


def wait_for(file):
    while not file.exists():
        time.sleep(0.05)


def test_an_interrupt_can_be_caught_as_ctrl_c(url):
    def train(run):
        for epoch in run.epochs():
            os.kill(os.getpid(), signal.SIGTERM)
            run.report(1.0 / epoch)

    with pytest.raises(KeyboardInterrupt) as caught:
        tuned(train, url)
    assert isinstance(caught.value, ft.Interrupted)
    assert (caught.value.why, caught.value.code) == ("SIGTERM", 3)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_nohup_is_respected(url):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def train(run):
        for epoch in run.epochs():
            os.kill(os.getpid(), signal.SIGHUP)
            run.report(1.0 / epoch)

    try:
        assert tuned(train, url).epochs == 6
    finally:
        signal.signal(signal.SIGHUP, before)


def one_long_epoch(run):
    """Its second epoch takes longer than any patience of a test; it writes down what it trained."""
    for epoch in run.epochs():
        with Path(os.environ[LOG]).open("a") as log:
            log.write(f"{run.number} {epoch} {os.getpid()}\n")
        time.sleep(0.1 if epoch == 1 else 1000)
        run.report(1.0 / epoch, save=lambda folder: (folder / "x").touch())


@pytest.mark.slow
def test_a_second_ctrl_c_ends_workers_at_once(url, tmp_path, monkeypatch):
    monkeypatch.setenv(LOG, str(tmp_path / "log"))

    def interrupt_twice():
        while not (tmp_path / "log").exists() or "1 2 " not in (tmp_path / "log").read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_twice, daemon=True).start()
    with pytest.raises(KeyboardInterrupt) as caught:
        tuned(one_long_epoch, url, candidates=[GOOD], engine="processes")
    assert not isinstance(caught.value, ft.Interrupted)
    process = int((tmp_path / "log").read_text().split()[-1])
    assert not Path(f"/proc/{process}").exists()


def test_long_epochs_are_saved_with_their_loss(url, tmp_path, monkeypatch):
    """There may be no time to save them later. Here 30 s are nothing, so all epochs are long."""
    saved = []

    def train(run):
        for epoch in run.epochs():
            time.sleep(0.02)
            run.report(float(epoch), save=lambda folder, epoch=epoch: saved.append(epoch) or (folder / "x").touch())

    tuned(train, url, budget=4, max_epochs=4, candidates=[GOOD])
    assert 2 not in saved, "an epoch that is neither the best, nor long, nor the last was saved"
    monkeypatch.setattr(worker, "USUAL_GRACE", 0.0)
    monkeypatch.setattr(worker, "MOST_SAVING", 1e9)
    saved.clear()
    tuned(train, url, name="long", budget=4, max_epochs=4, candidates=[GOOD])
    assert saved == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("grace", "epoch", "saving", "long"),
    [
        (None, 1.0, 0.1, False),
        (None, 60.0, 1.0, True),
        (None, 60.0, 20.0, False),  # it would train a quarter slower
        (120.0, 60.0, 1.0, False),
        (120.0, 60.0, 30.0, True),
        (120.0, 100.0, 1.0, True),
        (5.0, 1.0, 4.0, True),
    ],
)
def test_which_epochs_are_long(grace, epoch, saving, long):
    assert WorkerOptions(grace=grace).is_long(epoch, saving) == long


def test_a_grace_period_that_makes_no_sense_is_named(url):
    with pytest.raises(ft.StudyError, match="grace must be a positive number of seconds"):
        tuned(trainings.descend, url, grace=0)


# Memory.

GREEDY = """
import resource
import freezethaw as ft
import ctypes

def train(run):
    if run.config["rate"] > 0.5:  # as where `ulimit -v` is set, with a library that ends the process
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 500_000_000, resource.RLIM_INFINITY))
    for epoch in run.epochs():
        if run.config["rate"] > 0.5:
            ctypes.CDLL(None).abort() if ctypes.CDLL(None).malloc(ctypes.c_size_t(4_000_000_000)) == 0 else None
        run.report(1.0 / epoch, save=lambda folder: (folder / "x").touch())

result = ft.tune(train, {"rate": ft.Float(0, 1)}, 3, 6, store="study.db", policy="random", engine="processes",
                 candidates=[{"rate": 0.2}, {"rate": 0.8}, {"rate": 0.1}])
print(sorted((run.config["rate"], run.state, run.outcome) for run in result.runs))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as Linux has them")
def test_a_run_without_enough_memory_fails_and_others_continue(tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(GREEDY))
    found = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    expected = [(0.1, "finished", ""), (0.2, "finished", ""), (0.8, "failed", "failed")]
    assert found.stdout.strip() == str(expected), found.stderr
