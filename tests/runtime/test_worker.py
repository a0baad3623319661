"""The worker loop, in this process: what it does with trainings that do as they please, and when it must leave."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest

import freezethaw as ft
from freezethaw.errors import CheckpointError
from freezethaw.records import Report
from freezethaw.runtime import checkpoints
from freezethaw.runtime.checkpoints import CheckpointManager
from freezethaw.runtime.training_session import FAILED, MOST_PREEMPTIONS, PREEMPTED
from freezethaw.runtime.worker import TAKEN_OVER, Worker, WorkerOptions
from freezethaw.runtime.worker_failures import CRASHES, DIED, UNEXPLAINED
from freezethaw.store import Store, Watcher
from freezethaw.study import Study, session_of
from tests.runtime.trainings import BAD, GOOD, SPACE, descend, freeze_after_each_decision

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # a training here forks


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


def tuned(train, url, tmp_path, **changes):
    wanted = {"max_epochs": 3, "budget": 6, "candidates": [GOOD, BAD, {"rate": 0.1}], "policy": "random"} | changes
    return ft.tune(train, SPACE, store=url, checkpoints=ft.Checkpoints(tmp_path / "kept"), **wanted)


def events(url, kind):
    with Store(url) as store:
        return [event for event in store.open("study").events() if event.kind == kind]


def spoilt(how):
    """A training that is good but for high rates."""

    def train(run):
        if run.config["rate"] > 0.5:
            return how(run)
        return descend(run)

    return train


def _raises(run):
    raise RuntimeError("out of luck")


def _leaves(run):
    raise SystemExit(7)


def _eats(run):
    raise MemoryError("all of it")


def _silent(run):
    return None


def _stops(run):
    for _ in run.epochs():
        run.report(1.0)
        return "done"
    return None


def _reports(value):
    def train(run):
        for _ in run.epochs():
            run.report(value)

    return train


def _skips(run):
    for _ in run.epochs():
        pass


@pytest.mark.parametrize(
    ("how", "state", "outcome", "message"),
    [
        (_raises, "failed", "failed", "RuntimeError: out of luck"),
        (_leaves, "failed", "failed", "ended its process: exit\\(7\\)"),
        (_eats, "failed", "out_of_memory", "ran out of memory: all of it"),
        (_silent, "failed", "failed", "returned without reporting a loss"),
        (_stops, "failed", "failed", "returned at epoch 1, before the run was frozen"),
        (_skips, "failed", "failed", "epoch 1 of run . ended without run.report"),
        (_reports("0.5"), "failed", "failed", "the loss of run . at epoch 1 must be a number, not '0.5'"),
        (_reports(None), "failed", "failed", "must be a number, not None"),
        (_reports([1.0, 2.0]), "failed", "failed", "must be a number, not \\[1.0, 2.0\\]"),
        (_reports(float("nan")), "diverged", "", None),
        (_reports(np.float32("inf")), "diverged", "", None),
    ],
)
def test_failures_of_a_training_are_reported_and_other_runs_continue(url, tmp_path, how, state, outcome, message):
    result = tuned(spoilt(how), url, tmp_path, max_epochs=2, budget=50)
    assert result.reason.startswith("space exhausted") or "nothing" in result.reason
    by_rate = {run.config["rate"]: run for run in result.runs}
    assert (by_rate[0.8].state, by_rate[0.8].outcome) == (state, outcome)
    assert by_rate[0.2].state == by_rate[0.1].state == "finished"
    said = events(url, FAILED)
    if message is None:
        assert said == []
    else:
        [event] = said
        assert re.search(message, event.text), event.text
        assert event.run == by_rate[0.8].number
        if how is _raises:
            assert 'raise RuntimeError("out of luck")' in event.details["traceback"]


def test_numbers_of_libraries_are_numbers(url, tmp_path):
    def train(run):
        for _ in run.epochs():
            run.report(np.float32(0.5), accuracy=np.float32(0.25), count=np.int64(3), note="fine", flag=True)

    result = tuned(train, url, tmp_path, max_epochs=1, budget=1)
    assert result.runs[0].losses == (0.5,)
    with Store(url) as store:
        assert store.open("study").metrics(1) == ({"accuracy": 0.25, "count": 3.0, "note": "fine", "flag": True},)


def test_a_metric_that_cannot_be_stored_is_named(url, tmp_path):
    with pytest.raises(ft.StudyError, match="picture of run 3 must be a number"):
        tuned(lambda run: [run.report(1.0, picture=object()) for _ in run.epochs()], url, tmp_path)


def test_a_forked_child_neither_reports_nor_returns(url, tmp_path):
    seen = tmp_path / "seen"

    def train(run):
        for epoch in run.epochs():
            child = os.fork()
            if child == 0:
                if epoch == 1:
                    return  # as if it were a worker too
                try:
                    run.report(99.0)
                except ft.FreezeThawError as error:
                    seen.write_text(str(error))
                return
            os.waitpid(child, 0)
            run.report(1.0 / epoch)

    result = tuned(train, url, tmp_path, max_epochs=2, budget=2, candidates=[GOOD])
    assert result.runs[0].losses == (1.0, 0.5)
    assert "reported by a forked process" in seen.read_text()


class Bench:
    """A study, its checkpoints and a worker, by hand."""

    def __init__(self, url, folder, train=descend, leaving=lambda: False, every=10, **study):
        wanted = {"max_epochs": 5, "candidates": [GOOD, BAD], "policy": "random", "budget": 10} | study
        self.study = Study(SPACE, store=url, **wanted)
        self.session = session_of(self.study)
        self.storage = self.session.storage
        self.checkpoints = CheckpointManager(self.storage, folder)
        self.worker = Worker(self.session, train, self.checkpoints, WorkerOptions(every), leaving)

    def train_one(self):
        """One decision, after which the run is frozen."""
        freeze_after_each_decision(self.session)
        with contextlib.suppress(ft.AllPending):
            self.worker.train_decision(self.study.ask())


@pytest.fixture
def log(tmp_path, monkeypatch):
    file = tmp_path / "log.txt"
    file.touch()
    monkeypatch.setenv("FREEZETHAW_TEST_LOG", str(file))
    return lambda: [tuple(map(int, line.split())) for line in file.read_text().splitlines()]


def test_asked_to_leave_it_saves_and_no_recorded_epoch_is_trained_again(url, tmp_path, log):
    for stop in range(1, 11):
        bench = Bench(url, tmp_path / "kept", leaving=lambda stop=stop: len(log()) >= stop)
        bench.worker.work()
        assert bench.study.pending == ()
        bench.study.close()
    bench = Bench(url, tmp_path / "kept")
    assert bench.worker.work() == "budget spent: 10 epochs"
    assert len(log()) == len(set(log())) == 10


def test_a_decision_that_was_saved_to_its_end_is_closed_without_training(url, tmp_path, log):
    bench = Bench(url, tmp_path / "kept")
    decision = bench.study.ask()
    lease = bench.session.lease(decision)
    stored = bench.storage
    losses = tuple(0.9**epoch for epoch in range(1, decision.to_epoch + 1))
    stored.record(lease, Report(1, losses))
    saved = bench.checkpoints.save(lease, decision.to_epoch, lambda folder: (folder / "weight").write_text("0.9"))
    stored.record(lease, checkpoint=saved)
    stored.release(lease)
    bench.study.close()
    other = Bench(url, tmp_path / "kept")
    assert other.session.take_over() == decision
    other.worker.train_decision(decision)
    assert log() == []
    assert other.study.runs[0].losses == losses
    assert other.study.pending == ()


@pytest.mark.parametrize("closed", [False, True])
def test_a_run_that_another_worker_took_over_is_left_to_it(url, tmp_path, closed):
    taken = []

    def train(run):
        for epoch in run.epochs():
            if not taken:
                with Store(url) as store:
                    thief, watcher = store.open("study"), Watcher(0.0)
                    thief.take_over(watcher)  # it has seen the heart stand still, for as long as it waits
                    taken.append(thief.take_over(watcher))
                    if closed:
                        thief.record(taken[0][1], close="interrupted")
            run.report(1.0 / epoch)

    bench = Bench(url, tmp_path / "kept", train)
    bench.train_one()
    assert taken[0] is not None
    assert bench.study.runs[0].losses == ()
    assert bench.study.runs[0].state == ("frozen" if closed else "pending")
    assert events(url, FAILED) == []


def test_a_full_disk_is_not_the_fault_of_the_run(url, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "is_full", lambda _folder: True)

    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    def train(run):
        for _ in run.epochs():
            run.report(1.0, save=full)

    with pytest.raises(CheckpointError, match=r"could not be saved: .*No space left"):
        tuned(train, url, tmp_path, max_epochs=5, budget=10)
    with Store(url) as store:
        study = store.open("study")
        assert [run.state for run in study.load().runs] == ["pending"]
        assert study.take_over(Watcher()) is not None, "nobody could take it over at once"


@pytest.mark.parametrize(
    ("causes", "outcome", "message"),
    [
        (["crashed"] * CRASHES, "failed", "3 workers in a row crashed .* after epoch 0"),
        (
            ["out of memory"] * CRASHES,
            "out_of_memory",
            "3 workers in a row were killed for lack of memory after epoch 0",
        ),
        (["killed"] * (UNEXPLAINED - 1), "", None),
        (["killed"] * UNEXPLAINED, "failed", "10 workers in a row were killed after epoch 0; out of memory"),
        (["unknown"] * 5 + ["crashed"] * 2, "", None),
        (["killed"] * 3 + ["crashed"] * CRASHES, "failed", "3 workers in a row crashed"),
    ],
)
def test_a_run_that_causes_deaths_of_workers_has_failed(url, tmp_path, causes, outcome, message):
    """As `take_over` sees it: the real thing, with SIGKILL, is in test_local."""
    bench = Bench(url, tmp_path / "kept")
    decision = bench.study.ask()
    with Store(url) as store:
        thief = store.open("study")
        for place, cause in enumerate(causes):
            holder = f"process {place} on host"
            if place < len(causes) - 1:  # the last one is taken over below
                thief.add_event(TAKEN_OVER, "run 1 is taken over after epoch 0", 1, 0, {"saved": 0, "from": holder})
            else:
                watcher = Watcher(0.0)
                thief.take_over(watcher)
                assert thief.take_over(watcher) is not None  # this process was silent
                holder = str(thief.leases()[0].holder)
            thief.add_event(DIED, "a worker died", details={"worker": holder, "cause": cause})
    other = Bench(url, tmp_path / "kept")
    other.session.watcher = Watcher(0.0)
    assert other.session.watcher.may_take("x", other.storage.leases()[0]) is False
    other.session.take_over()
    taken, inherited = other.worker._next()
    assert inherited
    if message is None:
        assert taken == decision, "a healthy run would have failed"
        return
    assert taken is None
    assert (other.study.runs[0].state, other.study.runs[0].outcome) == ("failed", outcome)
    assert re.search(message, events(url, FAILED)[0].text)


def test_a_training_that_is_always_preempted_has_failed_in_the_end(url, tmp_path):
    def preempted(run):
        raise ft.Preempted("wanted elsewhere")

    result = tuned(spoilt(preempted), url, tmp_path, max_epochs=2, budget=50)
    assert [run.state for run in sorted(result.runs, key=lambda run: run.config["rate"])] == ["finished"] * 2 + [
        "failed"
    ]
    assert len(events(url, PREEMPTED)) == MOST_PREEMPTIONS
    assert "preempted 5 times after epoch 0 and never got any further" in events(url, FAILED)[0].text
    with pytest.raises(ft.StudyError, match=r"failed in all of the first 3 runs.*preempted 5 times"):
        tuned(preempted, f"{url}2", tmp_path)


def test_a_training_that_is_preempted_sometimes_continues(url, tmp_path):
    def train(run):
        for epoch in run.epochs():
            run.report(1 / epoch, save=lambda folder: (folder / "x").write_text("x"))
            if run.to_epoch > epoch:
                raise ft.Preempted("wanted elsewhere")

    result = tuned(train, url, tmp_path, max_epochs=12, budget=36, finish_best=True)
    assert result.epochs == 36
    assert events(url, FAILED) == []


# Checkpoints.


def fat(log):
    """A training whose checkpoints are large, and which tells what it trained."""

    def train(run):
        weight = float((run.checkpoint / "weight").read_text()) if run.checkpoint else 1.0
        for epoch in run.epochs():
            weight *= 1 - 0.5 * run.config["rate"]
            log.append((run.number, epoch))

            def save(folder: Path, weight=weight):
                (folder / "weight").write_text(repr(weight))
                (folder / "bulk").write_bytes(b"\0" * 10_000)

            run.report(weight + 0.1 * run.config["rate"] ** 2, save=save)

    return train


def test_evicted_runs_are_trained_again_and_their_first_losses_stay(url, tmp_path):
    log = []
    budget, kept, allowed = 30, tmp_path / "kept", 45_000
    result = ft.tune(
        fat(log), SPACE, 6, budget, store=url, seed=2, checkpoints=ft.Checkpoints(kept, gb=allowed / 1e9, every=2)
    )
    assert result.epochs == budget
    evicted = events(url, "checkpoint evicted")
    assert evicted
    assert len(log) >= budget
    assert events(url, "loss differs") == []
    with Store(url) as store:
        there = store.open("study").checkpoints()
        assert sum(c.bytes for c in there) <= allowed
    for run in result.runs:
        weight, expected = 1.0, []
        for _ in run.losses:
            weight *= 1 - 0.5 * run.config["rate"]
            expected.append(weight + 0.1 * run.config["rate"] ** 2)
        assert list(run.losses) == expected
    assert result.best.checkpoint.is_dir()
    weight = float((result.best.checkpoint / "weight").read_text())
    epoch = int(result.best.checkpoint.name.split("-")[1])
    assert weight + 0.1 * result.best.config["rate"] ** 2 == result.runs[result.best.run - 1].losses[epoch - 1]


def test_thawing_an_evicted_run_begins_at_its_start(url, tmp_path):
    log = []
    bench = Bench(url, tmp_path / "kept", fat(log), candidates=None, budget=None, max_epochs=9)
    bench.train_one()
    [run] = bench.study.runs
    gone = [c.number for c in bench.storage.checkpoints()]
    bench.checkpoints.remove(bench.storage.drop_checkpoints(gone, "evicted"))
    bench.study.thaw(run.number, run.epoch + 1)
    del log[:]
    bench.train_one()
    assert log[: run.epoch + 1] == [(1, epoch) for epoch in range(1, run.epoch + 2)]
    assert bench.study.runs[0].losses[: run.epoch] == run.losses


def test_the_best_epoch_is_saved_even_if_it_is_the_first(url, tmp_path):
    def rising(run):
        for epoch in run.epochs():
            run.report(float(epoch), save=lambda folder, epoch=epoch: (folder / "epoch").write_text(str(epoch)))

    bench = Bench(url, tmp_path / "kept", rising, candidates=[GOOD], budget=4)
    bench.worker.work()
    assert (1, 1) in {(c.run, c.epoch) for c in bench.storage.checkpoints()}


def noisy(run):
    """The lowest loss is mostly luck: the best run is another one than that of the lowest loss."""
    lucky = run.config["rate"] == 0.1
    for epoch in run.epochs():
        noise = -0.9 if lucky and epoch == 3 else 0.02 * math.sin(7 * epoch + run.number)
        save = lambda folder, epoch=epoch: (folder / "bulk").write_bytes(b"\0" * 10_000)  # noqa: E731
        run.report((1.0 if lucky else 0.3) + 1 / epoch + noise, save=save)


def test_the_checkpoint_of_the_best_stays_whatever_the_budget(url, tmp_path):
    """Lowest as measured, and lowest with the noise removed: both may be asked for."""
    wanted = {"max_epochs": 8, "candidates": [{"rate": 0.1}, GOOD, BAD], "seed": 1, "store": url}
    kept = ft.Checkpoints(tmp_path / "kept", gb=1e-9, every=2)
    result = ft.tune(noisy, SPACE, budget=24, checkpoints=kept, policy="random", **wanted)
    lowest = min((loss, run.number, epoch) for run in result.runs for epoch, loss in enumerate(run.losses, 1))
    assert lowest[1] != result.recommended.run, "this test is about another case"
    assert lowest[1:] == (result.best.run, result.best.epoch)
    with Store(url) as store:
        there = {(c.run, c.epoch) for c in store.open("study").checkpoints()}
    assert lowest[1:] in there
    assert result.best.checkpoint.is_dir()
    assert f"run-{result.best.run}/epoch-{result.best.epoch}-" in str(result.best.checkpoint)
    assert {run for run, _ in there} == {result.best.run, result.recommended.run}
    assert len(there) == 2
    assert len(events(url, "disk budget exceeded")) == 1


def test_a_training_that_fails_from_now_on_ends_the_study(url, tmp_path, monkeypatch):
    """Runs that fail before their first epoch spend no budget: nothing else would end it."""
    monkeypatch.setattr("freezethaw.runtime.worker.FAILURES_IN_A_ROW", 6)
    trained = []

    def train(run):
        if trained and run.number != trained[0]:
            raise RuntimeError("the disk is gone")
        trained.append(run.number)
        descend(run)

    with pytest.raises(ft.StudyError, match=r"failed in all of the last 6 runs.*the disk is gone"):
        tuned(train, url, tmp_path, candidates=None, budget=1000, max_epochs=2)
    study = Study.open(url)
    assert 7 <= len(study.runs) <= 9
    study.close()


def test_an_error_of_the_tuner_does_not_fail_the_run(url, tmp_path, monkeypatch):
    bench = Bench(url, tmp_path / "kept")

    def broken(*_):
        raise ft.ModelError("a bug in the model")

    monkeypatch.setattr(bench.session, "next_decision", broken)
    with pytest.raises(ft.ModelError, match="a bug in the model"):
        bench.worker.work()
    assert [run.state for run in bench.study.runs] == ["pending"]  # released: another worker may continue it
    assert events(url, FAILED) == []


def test_a_decision_that_is_tried_again_records_its_checkpoint_once(url, tmp_path, monkeypatch):
    """The decision lease is lost at the commit: the checkpoint that was written before belongs to the second try."""
    bench = Bench(url, tmp_path / "kept", every=1, budget=6)
    commit, lost = bench.storage.commit, []

    def flaky(*args, **named):
        if named.get("closing") is not None and len(lost) < 3:
            lost.append(1)
            raise ft.LeaseLost("the decision lease was lost")
        return commit(*args, **named)

    monkeypatch.setattr(bench.storage, "commit", flaky)
    assert bench.worker.work() == "budget spent: 6 epochs"
    assert len(lost) == 3
    kept = bench.storage.checkpoints()
    assert len({(c.run, c.epoch) for c in kept}) == len(kept)
    assert all((tmp_path / "kept" / c.place).is_dir() for c in kept)


def test_a_search_with_failed_runs_says_so_at_the_end(url, tmp_path, capsys):
    def train(run):
        if run.config == BAD:
            raise RuntimeError("no such device")
        descend(run)

    tuned(train, url, tmp_path, max_epochs=2, budget=2)
    said = capsys.readouterr().err
    assert "of 2 runs 1 failed" in said
    assert "RuntimeError: no such device" in said
    assert "Traceback (most recent call last)" in said


def test_a_search_in_which_everything_diverges_says_so(url, tmp_path, capsys):
    def train(run):
        for _ in run.epochs():
            run.report(math.nan)

    result = tuned(train, url, tmp_path, max_epochs=2, budget=2)
    with pytest.raises(ft.StudyError, match=r"there is no best: no run has a finite loss \(2 diverged\)"):
        result.best  # noqa: B018
    assert "of 2 runs 2 diverged\nno run has a finite loss" in capsys.readouterr().err
