"""If deciding is expensive compared with an epoch, one decision plans several, and a replay plans the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import freezethaw as ft
from freezethaw.decide.plan import LARGEST_PART, costs_in_epochs, epochs_per_decision, most_runs, share_out
from freezethaw.policy.acquisition import ScoredEntry
from freezethaw.records import Overheads, Prices, Run, StudyState
from freezethaw.study import session, session_of

SPACE = ft.Space(x=ft.Float(0.0, 1.0), y=ft.Float(0.0, 1.0))


def state(seconds: list[tuple[float, ...]], overheads: Overheads) -> StudyState:
    runs = tuple(Run(n, {}, state="frozen", losses=(1.0,) * len(s), seconds=s) for n, s in enumerate(seconds, 1))
    return StudyState(0, {"max_epochs": 10}, 1, runs, overheads=overheads)


def test_measured_costs_are_medians_in_epochs():
    found = costs_in_epochs(None, state([(0.5, 0.1, 0.1), (0.3, 0.1, 9.0)], Overheads(0.2, 0.05)), np.inf)
    assert found.decide == pytest.approx(2.0)
    assert found.save == pytest.approx(0.5)
    assert found.start == pytest.approx(3.0)  # the first epoch takes that much longer


def test_no_measured_cost_exceeds_a_part_of_a_budget_of_epochs():
    expensive = state([(0.001, 0.001)], Overheads(1.0, 1.0))
    assert costs_in_epochs(None, expensive, np.inf).decide == pytest.approx(1000.0)
    assert costs_in_epochs(None, expensive, 200.0).decide == pytest.approx(LARGEST_PART * 200)
    assert costs_in_epochs(None, expensive, 40.0) == Prices()
    assert costs_in_epochs(Prices(start=1.0), expensive, 40.0).start == pytest.approx(1000.0)  # as the user says


def test_without_seconds_nothing_is_charged():
    assert costs_in_epochs(None, state([(), (np.nan,)], Overheads(1.0, 1.0)), np.inf) == Prices()


def test_epochs_per_decision():
    assert epochs_per_decision(0.0, np.inf) == 1
    assert epochs_per_decision(10.0, np.inf) == 90  # a tenth of the time is spent deciding
    assert epochs_per_decision(10.0, 1000.0) == LARGEST_PART * 1000
    assert epochs_per_decision(10.0, -5.0) == 1


@pytest.mark.parametrize(("milliseconds", "runs"), [(0.0, 600), (1.0, 50), (10.0, 100), (40.0, 200), (1e6, 600)])
def test_the_model_uses_fewer_runs_where_epochs_are_short(milliseconds, runs):
    known = state([(milliseconds / 1e3,)], Overheads(0.0, 0.0))
    assert most_runs(None, known) == runs
    assert most_runs(Prices(), known) == 600  # as the user says, whatever this machine is


def entry(score: float, run: int | None = None, candidate: int | None = None, to_epoch: int = 10) -> ScoredEntry:
    return ScoredEntry(run, candidate, score, to_epoch, 0.5, 0.1)


def test_epochs_go_to_the_highest_scores_within_limits_and_to_the_epoch_where_each_is_highest():
    basket = [entry(1.0, run=0), entry(0.9, candidate=0, to_epoch=2), entry(0.8, candidate=1), entry(0.1, candidate=2)]
    shares = share_out(basket, 10, [4, 0, 0, 0], 10, np.zeros((4, 4)))
    assert shares == [(0, 6), (1, 2), (2, 2)]
    assert share_out(basket, 30, [4, 0, 0, 0], 10, np.zeros((4, 4))) == [(0, 6), (1, 2), (2, 5), (3, 5)]
    assert share_out(basket, 1, [4, 0, 0, 0], 10, np.zeros((4, 4))) == [(0, 1)]


def test_similar_configurations_are_not_planned_together():
    basket = [entry(1.0, candidate=0), entry(0.99, candidate=1), entry(0.6, candidate=2)]
    similarity = np.eye(3)
    similarity[0, 1] = similarity[1, 0] = 0.99
    assert [i for i, _ in share_out(basket, 5, [0, 0, 0], 10, similarity)] == [0, 2]


def search(url: str | None, epochs: int, monkeypatch, deciding: float, **options: object) -> ft.Study:
    """Epochs of a millisecond; each decision takes `deciding` seconds, whatever this machine is."""
    clock = itertools.count()
    monkeypatch.setattr(session, "perf_counter", lambda: deciding * next(clock))
    study = ft.Study(SPACE, max_epochs=9, seed=2, store=url, **options)
    while sum(run.epoch for run in study.runs) < epochs:
        decision = study.ask()
        ahead = range(decision.from_epoch + 1, decision.to_epoch + 1)
        floor = (decision.config["x"] - 0.3) ** 2 + decision.config["y"]
        study.tell(decision, [floor + 1 / e for e in ahead], [0.001] * len(ahead))
    return study


def planned(study: ft.Study) -> list[ft.Decision]:
    found = [record.decision for record in session_of(study).storage.decisions(1000)]
    return [decision for decision in found if "planned by decision" in decision.reason]


def test_expensive_decisions_plan_several_runs_and_a_replay_plans_the_same(tmp_path, monkeypatch):
    with search(f"sqlite:///{tmp_path}/s.db", 60, monkeypatch, deciding=0.005) as study:
        assert len(planned(study)) >= 5
        assert any(decision.epochs > 1 for decision in planned(study))
        for number in range(1, session_of(study).refresh().decisions + 1):
            committed = session_of(study).storage.decision(number).decision
            again = session_of(study).replay(number)
            assert (again.config, again.to_epoch, again.reason) == (
                committed.config,
                committed.to_epoch,
                committed.reason,
            ), f"decision {number}"


@pytest.mark.parametrize("options", [{"prices": ft.Prices()}, {"budget": 40}], ids=["no prices", "small budget"])
def test_nothing_is_planned_if_deciding_costs_nothing_or_epochs_are_few(options, monkeypatch):
    assert planned(search(None, 40, monkeypatch, deciding=0.005, **options)) == []


def test_a_planned_run_that_the_user_bans_is_not_advanced(monkeypatch):
    study = search(None, 60, monkeypatch, deciding=0.005)
    for _ in range(200):
        thaws = [r for r in session_of(study).refresh().requests if r.reason and r.run is not None]
        if thaws:
            break
        study.tell(decision := study.ask(), [1.0] * decision.epochs, [0.001] * decision.epochs)
    banned = thaws[0].run
    study.ban(banned)
    for _ in range(10):
        decision = study.ask()
        assert decision.run != banned
        study.tell(decision, [1.0] * decision.epochs, [0.001] * decision.epochs)


def planned_start(study):
    """Train until a decision has planned to start a configuration; that request."""
    for _ in range(200):
        starts = [r for r in session_of(study).refresh().requests if r.reason and r.run is None]
        if starts:
            return starts[0]
        study.tell(decision := study.ask(), [1.0] * decision.epochs, [0.001] * decision.epochs)
    raise AssertionError("no decision planned a new run")


def test_a_planned_configuration_outside_changed_bounds_is_not_started(tmp_path, monkeypatch):
    planned = planned_start(study := search(tmp_path / "plan.db", 60, monkeypatch, deciding=0.005))
    study.close()
    x = planned.config["x"]
    narrower = ft.Space(x=ft.Float(0.0, x / 2) if x > 0.5 else ft.Float((1 + x) / 2, 1.0), y=ft.Float(0.0, 1.0))
    with ft.Study(narrower, 9, store=tmp_path / "plan.db", seed=2) as changed:
        for _ in range(10):
            decision = changed.ask()
            assert decision.config != planned.config
            changed.tell(decision, [1.0] * decision.epochs, [0.001] * decision.epochs)
        assert planned.number not in [r.number for r in session_of(changed).refresh().requests]


def test_a_planned_configuration_that_the_user_starts_is_started_once(monkeypatch):
    planned = planned_start(study := search(None, 60, monkeypatch, deciding=0.005))
    study.enqueue(planned.config)
    started = []
    for _ in range(12):
        decision = study.ask()
        started += [decision.run] if decision.kind == "start" and decision.config == planned.config else []
        study.tell(decision, [1.0] * decision.epochs, [0.001] * decision.epochs)
    assert len(started) == 1
