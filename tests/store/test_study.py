"""A study in a store: the same as in memory, continued by the same call, shared, replayed, and saved from memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

import freezethaw as ft
from freezethaw.records import Report
from freezethaw.store import Store
from freezethaw.study import session_of
from tests.store.small_study import checkpoint

SPACE = ft.Space(x=ft.Float(0.0, 1.0), width=ft.Int(1, 64, log=True))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/study.db"
    server = request.getfixturevalue("postgresql_server")
    with Store(server) as store:
        for study in store.studies():
            store.delete(study.name)
    return server


def loss(config, epoch):
    return (config["x"] - 0.3) ** 2 + 0.01 * config["width"] / 64 + 1.0 / epoch


def losses(decision):
    return [loss(decision.config, e) for e in range(decision.from_epoch + 1, decision.to_epoch + 1)]


def advance(study, count):
    taken = []
    for _ in range(count):
        decision = study.ask()
        study.tell(decision, losses(decision))
        taken.append(decision)
    return taken


def test_the_same_decisions_as_in_memory_also_when_continued(url):
    expected = advance(ft.Study(SPACE, max_epochs=9, seed=3), 14)
    found = []
    for count in (5, 5, 4):  # a new process each time, as far as the study can tell
        study = ft.Study(SPACE, max_epochs=9, seed=3, store=url)
        found += advance(study, count)
        study.close()
    assert found == expected


def test_a_decision_is_replayed_from_what_was_known_then(url):
    study = ft.Study(SPACE, max_epochs=9, seed=1, store=url, budget=40)
    taken = advance(study, 6)
    waiting = study.ask()  # pending while others are decided
    taken += [waiting, *advance(study, 4)]
    study.tell(waiting, losses(waiting))
    taken += advance(study, 3)
    for decision in taken:
        again = session_of(study).replay(decision.number)
        fresh = decision.kind == "start" and again.run is None
        assert fresh or again.run == decision.run
        assert (again.config, again.to_epoch, again.reason) == (decision.config, decision.to_epoch, decision.reason)
    study.close()


def test_two_processes_share_a_study_and_start_nothing_twice(url):
    first, second = (ft.Study(SPACE, max_epochs=9, seed=0, store=url) for _ in range(2))
    advance(first, 3)
    one, other = first.ask(), second.ask()
    assert other.number == one.number + 1
    assert other.run != one.run
    with pytest.raises(ft.TellError, match="held by another session"):
        second.tell(one, losses(one))
    second.tell(other, losses(other))
    first.tell(one, losses(one))
    with pytest.raises(ft.TellError, match="told once"):
        first.tell(one, losses(one))
    assert first.runs == second.runs
    assert first.best == second.best
    for study in (first, second):
        study.close()


def test_requests_imported_runs_explanations_and_cancelling(url):
    study = ft.Study(SPACE, max_epochs=9, store=url)
    study.add_run({"x": 0.5, "width": 8}, [1.0, 0.6, 0.5])
    study.enqueue({"x": 0.9, "width": 2}, to_epoch=2)
    requested = study.ask()
    assert requested.config == {"x": 0.9, "width": 2}
    assert requested.epochs == 2
    study.cancel(requested)
    assert study.runs[1].state == "frozen"
    [again] = advance(study, 1)
    assert again.run == requested.run  # cancelled before its first epoch: it comes first
    [chosen] = advance(study, 1)
    assert study.explain(chosen.number).decision == chosen
    assert study.explain(chosen.number).basket[0].to_epoch >= 1
    study.thaw(requested.run, 5)
    assert study.ask().to_epoch == 5
    failed = study.ask()
    study.cancel(failed, "out_of_memory")
    assert study.runs[failed.run - 1].state == "failed"
    study.close()


def test_bounds_may_change_and_old_runs_stay_as_evidence(url):
    study = ft.Study(SPACE, max_epochs=9, store=url)
    advance(study, 6)
    study.close()
    narrower = ft.Space(x=ft.Float(0.2, 0.4), width=ft.Int(1, 128, log=True))
    study = ft.Study(narrower, max_epochs=12, store=url)
    assert len(study.runs) > 0
    taken = advance(study, 4)
    started = [d for d in taken if d.kind == "start"]
    assert all(0.2 <= d.config["x"] <= 0.4 for d in started)
    assert study.forecast(1).mean > 0
    assert study.definition.max_epochs == 12
    study.close()
    with pytest.raises(ft.StudyError, match="other parameters"):
        ft.Study(ft.Space(y=ft.Float(0.0, 1.0)), max_epochs=12, store=url)


def test_a_study_in_memory_continues_in_a_store(url):
    study, twin = (ft.Study(SPACE, max_epochs=9, seed=2) for _ in range(2))
    assert advance(study, 5) == advance(twin, 5)
    pending, same = study.ask(), twin.ask()
    study.save_to(url, "saved")
    study.tell(pending, losses(pending))
    twin.tell(same, losses(same))
    expected = advance(twin, 3)
    assert advance(study, 3) == expected
    study.close()
    opened = ft.Study.open(url, "saved")
    assert opened.runs == twin.runs
    assert opened.best == twin.best
    assert opened.best.expected == pytest.approx(twin.best.expected)
    assert opened.recommended == twin.recommended
    opened.close()


def test_the_decision_of_a_dead_process_is_taken_over(url):
    """Killed while it holds a decision: the run is taken over by another process on the same host at once."""
    code = f"""
import os, signal
import freezethaw as ft
study = ft.Study(ft.Space(x=ft.Float(0.0, 1.0), width=ft.Int(1, 64, log=True)), max_epochs=9, store={url!r})
study.ask()
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -9
    study = ft.Study(SPACE, max_epochs=9, store=url)
    [pending] = study.pending
    assert study.ask() == pending
    study.tell(pending, losses(pending))
    assert study.runs[0].epoch == 1
    assert study.ask().number == pending.number + 1
    study.close()


@pytest.mark.parametrize("saves", [False, True])
def test_a_decision_is_closed_by_the_commit_of_the_next_one(url, saves):
    """Whether it continues the run or not: one transaction, and with the checkpoint of a run that is left."""
    session = session_of(study := ft.Study(SPACE, max_epochs=9, seed=3, store=url))
    twin = ft.Study(SPACE, max_epochs=9, seed=3)
    decision, same = session.ask(), twin.ask()
    continued, left = [], []
    for _ in range(12):
        assert decision == same
        before = session.storage.change()
        recorded = session.record(decision, Report(decision.from_epoch + 1, tuple(losses(decision))), deciding=True)
        twin.tell(same, losses(same))
        same = twin.ask()

        def save(continues, decision=decision):
            (continued if continues else left).append(decision)
            return (None if continues or not saves else checkpoint(decision.to_epoch, f"run-{decision.run}")), ()

        following = session.next_decision(decision, recorded.decision_lease, save)
        assert session.storage.change() == before + 2
        assert study.pending == (following,)
        assert session.storage.decision(decision.number).outcome == "told"
        decision = following
    assert continued
    assert left
    assert [(c.run, c.epoch) for c in session.storage.checkpoints()] == [(d.run, d.to_epoch) for d in left if saves]
    for number in range(1, decision.number + 1):
        assert session.replay(number).reason == session.storage.decision(number).decision.reason
    study.close()


def test_a_study_in_memory_is_replayed_too():
    study = ft.Study(SPACE, max_epochs=9, seed=4)
    for decision in advance(study, 8):
        again = session_of(study).replay(decision.number)
        assert (again.config, again.to_epoch, again.reason) == (decision.config, decision.to_epoch, decision.reason)


def test_the_price_of_an_evicted_run_is_paid(url):
    """What has to be trained again counts against a thaw, now and in a replay."""
    study = ft.Study(SPACE, max_epochs=9, seed=3, store=url)
    advance(study, 8)
    session, run = session_of(study), max(study.runs, key=lambda run: run.epoch)
    study.thaw(run.number, run.epoch + 1)
    decision = study.ask()
    report = Report(decision.to_epoch, tuple(losses(decision)))
    session.record(decision, report, (checkpoint(decision.to_epoch), ()), close="told")
    [kept] = session.storage.checkpoints(run.number)
    here, others = session.refresh(), [r for r in study.runs if r.number != run.number and r.epoch]
    assert here.epochs_to_retrain(here.run(run.number)) == 0
    assert all(here.epochs_to_retrain(r) == r.epoch for r in others)  # they were never saved
    session.storage.drop_checkpoints([kept.number], "evicted")
    gone = session.refresh()
    assert all(gone.epochs_to_retrain(r) == 0 for r in gone.runs)  # nothing is saved any more at all
    then = session.storage.load(at=here.change)
    assert [then.epochs_to_retrain(r) for r in then.runs] == [here.epochs_to_retrain(r) for r in here.runs]
    study.close()


def test_a_closed_study_releases_its_decisions(url):
    """In the same process too: they are taken over at once, not after the lease time."""
    with ft.Study(SPACE, max_epochs=9, store=url) as study:
        decision = study.ask()
    with ft.Study(SPACE, max_epochs=9, store=url) as again:
        assert again.ask() == decision
        again.tell(decision, losses(decision))
