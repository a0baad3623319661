"""What the user changes about a running study is followed by its workers; its history can be read back."""

from __future__ import annotations

import pytest

import freezethaw as ft
from freezethaw.errors import StudyError
from freezethaw.study import read, session_of

SPACE = ft.Space(rate=ft.Float(1e-3, 1.0, log=True), width=ft.Int(1, 8))


def advance(study, count, diverge=()):
    for _ in range(count):
        decision = study.ask()
        losses = [decision.config["rate"] + 1 / e for e in range(decision.from_epoch + 1, decision.to_epoch + 1)]
        study.tell(decision, [*losses[:-1], float("nan")] if decision.number in diverge else losses, 2.0)


@pytest.fixture
def store(tmp_path):
    return f"sqlite:///{tmp_path}/steering.db"


def make(store, **options):
    return ft.Study(SPACE, max_epochs=6, store=store, seed=3, **{"budget": 30} | options)


def test_a_stop_is_followed_by_other_processes_and_undone_by_the_same_call_again(store):
    worker, page = make(store), ft.Study.open(store)
    advance(worker, 3)
    page.stop()
    with pytest.raises(ft.StudyFinished, match="stopped by the user"):
        worker.ask()
    looked = ft.Study.open(store)  # opening does not continue
    assert looked.definition.stopped
    again = make(store)
    advance(again, 1)
    assert not worker.definition.stopped
    for study in (worker, page, looked, again):
        study.close()


def test_another_budget_is_followed(store):
    worker, page = make(store, budget=3), ft.Study.open(store)
    while True:
        try:
            advance(worker, 1)
        except ft.StudyFinished:
            break
    page.set_budget(5)
    advance(worker, 1)
    assert worker.definition.budget.epochs == 5
    with pytest.raises(StudyError, match="positive"):
        page.set_budget(-1)
    worker.close()
    page.close()


@pytest.mark.parametrize("kept", [False, True])
def test_a_banned_run_is_advanced_no_more_unless_the_user_thaws_it(store, kept):
    study = make(store if kept else None)
    advance(study, 4)
    for run in study.runs:
        study.ban(run.number)
    before = {run.number: run.epoch for run in study.runs}
    decision = study.ask()
    assert decision.run not in before
    study.cancel(decision)
    study.thaw(1, 6)
    assert study.ask().run == 1
    if kept:
        same = make(store)  # a ban stays when the same call continues
        assert same.definition.banned == tuple(before)
        assert session_of(study).replay(5).config == decision.config
        same.ban(2, banned=False)
        assert 2 not in same.definition.banned
        same.close()
    with pytest.raises(StudyError, match="no run 99"):
        study.ban(99)
    study.close()


def test_the_history_is_the_same_in_memory_and_in_a_store(store):
    remembered, stored = make(None), make(store)
    for study in (remembered, stored):
        advance(study, 8, diverge=(4,))
        study.cancel(study.ask(), "out_of_memory")
        study.ask()
    history = read(stored).history
    assert read(remembered).history == history
    assert len(history.decisions) == 10
    assert history.decisions[3].outcome == "diverged"
    assert history.decisions[8].outcome == "out_of_memory"
    assert history.decisions[9].closed is None
    assert len(history.epochs) == sum(run.epoch for run in stored.runs)
    forecasts = read(stored).past_forecasts()
    assert forecasts == read(remembered).past_forecasts()
    assert forecasts
    assert all(f.low < f.median < f.high and 0 <= f.below <= 1 and f.ahead >= 1 for f in forecasts)
    stored.close()


def test_a_past_forecast_is_what_the_study_said_then(store):
    study = make(store)
    advance(study, 6)
    said = study.forecast(study.runs[0].number, [study.runs[0].epoch + 1.0])
    study.thaw(1, study.runs[0].epoch + 1)
    advance(study, 1)  # requested by the user: the samples are those of the decision before
    found = [f for f in read(study).past_forecasts() if f.decision == 7]
    assert found
    # the samples may have moved once more before the present forecast, so the two agree only roughly
    assert found[0].median == pytest.approx(float(said.quantile(0.5)[0]), abs=float(said.std[0]))
    study.close()


def test_a_reader_answers_from_one_state(store):
    study = make(store)
    advance(study, 5)
    reader = read(study)
    seen, best = (reader.runs, reader.history), (reader.best, reader.recommended)
    advance(study, 3)
    assert (reader.runs, reader.history) == seen
    assert (reader.best, reader.recommended) == best
    assert reader.p_min()
    assert len(read(study).history.decisions) == 8
    study.close()


def test_the_history_is_read_as_of_the_state(store):
    """Also if it is asked for after more has happened."""
    study = make(store)
    advance(study, 5)
    reader = read(study)
    advance(study, 3)
    assert len(reader.history.decisions) == 5
    assert len(reader.history.epochs) == sum(run.epoch for run in reader.runs)
    study.close()
