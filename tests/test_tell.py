"""Every wrong tell raises TellError and changes nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

import freezethaw as ft

SPACE = ft.Space(x=ft.Float(0.0, 1.0))


def new_study(**options):
    return ft.Study(SPACE, max_epochs=5, **options)


@pytest.mark.parametrize(
    "losses",
    [
        [],
        (),
        "0.3",
        None,
        [[0.1]],
        ["a"],
        [None],
        {"loss": 1},
        True,
        [0.1, 0.2],
        [math.nan, 0.1],
        np.zeros((1, 1)),
        b"1",
        1j,
    ],
)
def test_a_wrong_tell_changes_nothing(losses):
    study = new_study()
    decision = study.ask()
    before = study.runs, study.pending
    with pytest.raises(ft.TellError):
        study.tell(decision, losses)
    assert (study.runs, study.pending) == before
    study.tell(decision, 0.5)  # the decision is still good
    assert study.runs[0].losses == (0.5,)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, "1", [1.0, 2.0], True])
def test_wrong_seconds_change_nothing(seconds):
    study = new_study()
    decision = study.ask()
    with pytest.raises(ft.TellError):
        study.tell(decision, 0.5, seconds=seconds)
    assert study.runs[0].losses == ()


def test_a_decision_is_told_once():
    study = new_study()
    decision = study.ask()
    study.tell(decision, 0.5)
    with pytest.raises(ft.TellError, match="told once"):
        study.tell(decision, 0.4)
    with pytest.raises(ft.TellError, match="told once"):
        study.cancel(decision)
    assert study.runs[0].losses == (0.5,)


def test_a_decision_of_another_study_is_refused():
    mine, other = new_study(), new_study()
    for _ in range(3):
        decision = other.ask()
    with pytest.raises(ft.TellError, match="not one of this study"):
        mine.tell(decision, 0.5)
    with pytest.raises(ft.TellError, match="returned by ask"):
        mine.tell(1, 0.5)


def test_several_losses_and_fewer_than_granted():
    study = new_study()
    study.enqueue({"x": 0.5}, to_epoch=4)
    decision = study.ask()
    assert (decision.from_epoch, decision.to_epoch) == (0, 4)
    study.tell(decision, np.array([3.0, 2.0]), seconds=[1, 2])
    run = study.runs[0]
    assert run.losses == (3.0, 2.0)
    assert run.seconds == (1.0, 2.0)
    assert run.state == "frozen"
    study.thaw(1, 5)
    study.tell(study.ask(), [1.5, 1.2, 1.0])
    assert study.runs[0].state == "finished"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_diverged_run_is_never_thawed(value):
    study = new_study()
    study.tell(study.ask(), value)
    assert study.runs[0].state == "diverged"
    assert study.runs[0].losses == ()
    assert study.best is None
    for _ in range(20):
        decision = study.ask()
        assert decision.run != 1
        study.tell(decision, 1.0)


def test_cancelled_runs():
    study = new_study()
    decision = study.ask()
    study.cancel(decision)
    assert study.runs[0].state == "frozen"
    study.thaw(1, 1)
    study.cancel(study.ask(), outcome="out_of_memory")
    assert study.runs[0].state == "failed"
    with pytest.raises(ft.TellError, match="outcome must be one of"):
        study.cancel(study.ask(), outcome="bored")


def test_maximise_and_best():
    study = new_study(direction="maximize")
    for value in (0.1, 0.7, 0.3):
        study.tell(study.ask(), value)
    assert study.best.loss == 0.7


def test_budget_target_and_end_of_space():
    study = ft.Study(SPACE, max_epochs=2, candidates=[{"x": 0.1}, {"x": 0.2}])
    for _ in range(4):
        study.tell(study.ask(), 1.0)
    with pytest.raises(ft.StudyFinished, match="space exhausted") as end:
        study.ask()
    assert end.value.reason.startswith("space exhausted")
    study = new_study(budget=ft.Budget(target=0.5))
    study.tell(study.ask(), 0.4)
    with pytest.raises(ft.StudyFinished, match="target reached"):
        study.ask()
    study = new_study(budget=1)
    decision = study.ask()
    with pytest.raises(ft.AllPending):
        study.ask()
    study.tell(decision, 1.0)
    with pytest.raises(ft.StudyFinished, match="budget spent"):
        study.ask()
