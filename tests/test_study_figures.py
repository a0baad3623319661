"""Figures of a study show what is in it; of an empty one, of one run or of diverged ones they show something true."""

from __future__ import annotations

import json

import numpy as np
import pytest

import freezethaw as ft
from freezethaw import figures
from freezethaw.study import read
from freezethaw.study.importance import first_order_shares

pytest.importorskip("plotly")

SPACE = ft.Space(
    {
        "rate": ft.Float(1e-3, 1.0, log=True),
        "<b>kind</b>": ft.Choice("sgd", "adam"),
        "momentum": ft.Float(0.0, 0.9, when={"<b>kind</b>": "sgd"}),
        "width": ft.Int(1, 8),
    }
)
INERT = ("parcoords", "scattergl", "splom", "pointcloud", "scatterpolargl")  # these need unsafe-eval


def advance(study, count, diverge=False):
    for _ in range(count):
        decision = study.ask()
        x = abs(np.log10(decision.config["rate"]) + 1.5)  # only the rate matters
        losses = [x + 1 / e for e in range(decision.from_epoch + 1, decision.to_epoch + 1)]
        study.tell(decision, [*losses[:-1], float("nan")] if diverge else losses, 30.0)


def make(count=0, diverge=False, **options):
    study = ft.Study(SPACE, max_epochs=8, seed=2, budget=60, **options)
    advance(study, count, diverge)
    return study


@pytest.fixture(scope="module")
def searched():
    study = make(24)
    study.cancel(study.ask(), "out_of_memory")
    study.ask()
    return read(study)


@pytest.fixture(scope="module")
def odd():
    """Studies with little in them."""
    asked = make()
    asked.ask()
    added = make()
    added.add_run({"rate": 0.1, "<b>kind</b>": "adam", "width": 3}, [0.5, 0.4])
    return {"none": make(), "asked": asked, "one": make(1), "diverged": make(3, diverge=True), "added": added}


def numbers(figure):
    return sum(len(axis) for trace in figure.data for axis in (trace.x, trace.y) if axis is not None)


@pytest.mark.parametrize("name", figures.STUDY_FIGURES)
def test_every_figure_of_a_study_has_data_and_no_trace_that_a_strict_page_forbids(searched, name):
    figure = figures.STUDY_FIGURES[name](searched)
    assert numbers(figure) > 0
    assert not {trace.type for trace in figure.data} & set(INERT)
    assert "<b>" not in json.dumps(json.loads(figure.to_json()))
    assert figure.layout.meta["title"]


@pytest.mark.parametrize("kind", ["none", "asked", "one", "diverged", "added"])
@pytest.mark.parametrize("name", figures.STUDY_FIGURES)
def test_every_figure_of_a_study_with_little_in_it_shows_data_or_says_why_not(odd, name, kind):
    figure = figures.STUDY_FIGURES[name](odd[kind])
    said = [annotation.text for annotation in figure.layout.annotations]
    assert numbers(figure) > 0 or any("yet" in text or "recorded" in text for text in said)


def test_curves_hold_the_losses_and_bands_that_the_study_forecasts(searched):
    figure = figures.curves(searched, runs=[1])
    run = searched.runs[0]
    dots = next(trace for trace in figure.data if trace.name == "run 1" and trace.mode == "lines+markers")
    assert list(dots.y) == list(run.losses)
    if run.epoch < 8:
        outer = next(trace for trace in figure.data if trace.fill == "toself")
        expected = searched.forecast(1, [8.0]).quantile(0.95)[0]
        assert np.isclose(outer.y, expected, rtol=1e-9).any()


def test_the_best_loss_falls_over_epochs_hours_and_cost(searched):
    lowest = min(loss for run in searched.runs for loss in run.losses)
    ends = {}
    for against in ("epochs", "hours", "cost"):
        line = figures.best_loss(searched, against).data[0]
        assert list(line.y) == sorted(line.y, reverse=True)
        assert line.y[-1] == lowest
        ends[against] = line.x[-1]
    assert ends["epochs"] == sum(run.epoch for run in searched.runs)
    assert ends["hours"] == pytest.approx(30 * ends["epochs"] / 3600)
    assert ends["cost"] == pytest.approx(ends["hours"])  # prices are nought


def test_prices_count_for_the_cost_but_not_where_a_run_just_goes_on():
    study = ft.Study(ft.Space(x=ft.Float(0, 1)), max_epochs=4, prices=ft.Prices(start=3600.0))
    for run, to_epoch in ((None, 1), (1, 2), (None, 1), (1, 3)):
        study.enqueue({"x": 0.5 if not study.runs else 0.2}, 1) if run is None else study.thaw(run, to_epoch)
        study.tell(study.ask(), 1.0, 0.0)
    assert figures.best_loss(study, "cost").data[0].x[-1] == pytest.approx(3.0)


def test_the_timeline_has_a_row_for_each_decision_under_way_at_once():
    study = make(2)
    first, second = study.ask(), study.ask()
    study.tell(second, [1.0] * second.epochs)
    third = study.ask()
    study.tell(first, [1.0] * first.epochs)
    rows = {
        (base, y)
        for trace in figures.timeline(study).data
        if trace.type == "bar"
        for base, y in zip(trace.base, trace.y, strict=True)
    }
    assert {y for _, y in rows} == {"worker 1", "worker 2"}
    bars = sum(len(trace.y) for trace in figures.timeline(study).data if trace.type == "bar")
    assert bars == third.number


def test_what_matters_is_found():
    study, rng = make(), np.random.default_rng(5)
    for _ in range(25):
        config = SPACE.sample(rng)
        study.add_run(config, [np.log10(config["rate"]) + 1 / e for e in range(1, 9)])
    found = figures.importance(study).data[0]
    assert found.y[-1] == "rate"
    assert found.x[-1] > 0.5


def test_the_uncertainty_of_importance_shrinks_with_evidence():
    few, many, rng = make(), make(), np.random.default_rng(5)
    for number in range(25):
        config = SPACE.sample(rng)
        for study in (many, few) if number < 3 else (many,):
            study.add_run(config, [np.log10(config["rate"]) + 1 / e for e in range(1, 9)])
    widths = []
    for study in (few, many):
        found = figures.importance(study).data[0]
        shares = study.importance()
        assert [shares[name] for name in found.y if name in shares] == pytest.approx(
            [x for x, name in zip(found.x, found.y, strict=True) if name in shares]
        )
        low, high = found.x - found.error_x.arrayminus, found.x + found.error_x.array
        assert np.all((low >= 0) & (low <= found.x) & (found.x <= high) & (high <= 1))
        widths.append((high - low).sum())
    assert widths[1] < widths[0]


def test_first_order_shares_of_a_known_function():
    rng = np.random.default_rng(0)
    # y = 2 x1 + x2: x1 explains 4/5 of the variance, x2 1/5; x3 nothing
    bases = rng.random((200, 3))
    values = np.empty((1, 3, 5, 200))
    for column in range(3):
        for place, unit in enumerate((np.arange(5) + 0.5) / 5):
            x = bases.copy()
            x[:, column] = unit
            values[0, column, place] = 2 * x[:, 0] + x[:, 1]
    assert first_order_shares(values)[0] == pytest.approx([0.8, 0.2, 0.0], abs=0.06)


def test_starting_and_loading_are_told_from_training():
    study, last = make(), 0
    for _ in range(12):
        decision = study.ask()
        losses = [1 / epoch for epoch in range(decision.from_epoch + 1, decision.to_epoch + 1)]
        study.tell(decision, losses, [3.0 if decision.run != last else 1.0, *[1.0] * (len(losses) - 1)])
        last = decision.run
    by_name = {trace.name: trace for trace in figures.time_spent(study).data}
    slow = sum(run.seconds.count(3.0) for run in study.runs if 1.0 in run.seconds)
    assert slow > 0
    assert by_name["starting and loading"].y[-1] == pytest.approx(2.0 * slow)
    total = sum(sum(run.seconds) for run in study.runs)
    assert by_name["training"].y[-1] == pytest.approx(total - 2.0 * slow)
    assert "loading" in figures.time_spent(study).layout.meta["subtitle"]


def test_past_forecasts_are_counted(searched):
    figure = figures.forecast_calibration(searched)
    dots = sum(len(trace.x) for trace in figure.data if trace.mode == "markers")
    assert f"of {dots} losses" in figure.layout.meta["subtitle"]


def test_a_basket_shows_its_reason_and_a_missing_one_is_refused(searched):
    assert searched.explain(20).decision.reason[:20] in figures.basket(searched, 20).layout.title.text
    requested = make()
    requested.enqueue({"rate": 0.1, "<b>kind</b>": "adam", "width": 3})
    requested.ask()
    with pytest.raises(ft.StudyError, match="decision 1 has no basket"):
        figures.basket(requested, 1)
    with pytest.raises(ft.StudyError, match="no decision 999"):
        figures.basket(searched, 999)


def test_maximised_losses_rise():
    study = ft.Study(ft.Space(x=ft.Float(0, 1)), max_epochs=3, direction="maximize")
    for _ in range(5):
        decision = study.ask()
        study.tell(decision, [decision.config["x"]] * decision.epochs)
    line = figures.best_loss(study).data[0]
    assert list(line.y) == sorted(line.y)


def test_several_studies_over_each_other(searched, odd):
    figure = figures.comparison({"a<b>": searched, "none": odd["none"], "one": odd["one"]})
    assert [line.name for line in figure.data] == ["a&lt;b&gt;", "one"]  # a study without a loss has no line
    alone = figures.best_loss(searched).data[0]
    assert list(figure.data[0].y) == list(alone.y)
    assert list(figure.data[0].x) == list(alone.x)
    for against in ("hours", "cost"):
        assert figures.comparison({"a": searched}, against).data[0].x[-1] > 0
    assert "no loss yet" in figures.comparison({"none": odd["none"]}).layout.annotations[0].text


def test_only_highlighted_runs_have_bands_and_pauses_are_marked(searched):
    figure = figures.curves(searched)
    bands = [trace for trace in figure.data if trace.meta and trace.meta.get("band")]
    shown = {trace.meta["run"] for trace in bands if trace.opacity == 1.0}
    able = [run for run in searched.runs if run.losses and run.epoch < 8 and run.state != "failed"]
    lowest = {run.number: min(run.losses) for run in able}
    assert shown == {min(lowest, key=lambda number: lowest[number])}
    chosen = [run.number for run in searched.runs if run.state == "frozen"][:2]
    bands = [t for t in figures.curves(searched, runs=chosen).data if t.meta and t.meta.get("band")]
    assert {trace.meta["run"] for trace in bands if trace.opacity == 1.0} == set(chosen)


def test_a_run_that_was_frozen_and_thawed_has_a_mark_where_it_waited():
    study = ft.Study(ft.Space(x=ft.Float(0, 1)), max_epochs=4)
    for run, to_epoch in ((None, 1), (1, 2), (None, 1), (1, 3)):
        study.enqueue({"x": 0.5 if not study.runs else 0.2}, 1) if run is None else study.thaw(run, to_epoch)
        study.tell(study.ask(), float(len(study.runs)))
    marks = [trace for trace in figures.curves(study, [1, 2], forecasts=False).data if trace.name == "thawed"]
    assert [(list(mark.x), list(mark.y)) for mark in marks] == [([2], [1.0])]  # not where it just continued
    assert "others trained 1 epochs; thawed by decision 4" in marks[0].text[0]


def test_a_replay_grows_epoch_by_epoch_and_ends_as_the_study_does(searched):
    figure = figures.replay(searched, forecasts=False)
    closed = [record for record in searched.history.decisions if record.closed is not None]
    assert [frame.name for frame in figure.frames] == [str(record.decision.number) for record in closed]
    names = [trace.name for trace in figure.data]
    for frame, record in zip(figure.frames, closed, strict=True):
        assert len(frame.data) == len(names)  # plotly changes traces by their place
        new = frame.data[names.index("trained by this decision")]
        epochs = [int(x) for x in new.x if np.isfinite(x)]
        assert epochs == list(range(record.decision.from_epoch + 1, (record.reached or 0) + 1))
        best = min(y for trace in frame.data for y in np.array(trace.y, dtype=float) if np.isfinite(y))
        recorded = searched.history.epochs[: searched.history.epochs_at(record.closed)]
        lowest = min(searched.runs[run - 1].losses[epoch - 1] for _, run, epoch in recorded)
        assert best == pytest.approx(lowest, rel=1e-4)
    assert len(figures.replay(searched, frames=5, forecasts=False).frames) == 5


def test_a_replay_shows_what_was_forecast_before_the_losses_came(searched):
    figure = figures.replay(searched, frames=6)
    names = [trace.name for trace in figure.data]
    medians = [frame.data[names.index("forecast before it")] for frame in figure.frames]
    records = {str(record.decision.number): record for record in searched.history.decisions}
    drawn = 0
    for frame, median in zip(figure.frames, medians, strict=True):
        if np.isfinite(np.array(median.y, dtype=float)).all():
            decision, drawn = records[frame.name].decision, drawn + 1
            assert median.x[0] == decision.from_epoch + 1
            expected = searched.forecast_before(records[frame.name], [median.x[0]]).quantile([0.5])[0, 0]
            assert median.y[0] == pytest.approx(expected)
    assert drawn >= 4


def test_time_adds_up_to_what_was_recorded(searched):
    figure = figures.time_spent(searched)
    ends = {trace.name: trace.y[-1] for trace in figure.data}
    unit = 60 if "Minutes" in figure.layout.yaxis.title.text else 1
    epochs = sum(run.epoch for run in searched.runs)
    assert ends["training"] * unit == pytest.approx(30.0 * epochs)
    deciding = sum(r.seconds for r in searched.history.decisions if np.isfinite(r.seconds))
    assert deciding > 0
    assert ends["deciding"] * unit == pytest.approx(deciding)


def test_a_map_holds_the_asymptotes_that_the_study_forecasts(searched):
    figure = figures.parameter_map(searched, "rate", "width")
    heat = next(trace for trace in figure.data if trace.type == "heatmap")
    config = dict(searched.recommended.config) | {"rate": heat.x[3], "width": heat.y[2]}
    from freezethaw.figures.learning_curves import asymptotes_of

    assert heat.z[2][3] == pytest.approx(asymptotes_of(searched, [], searched.features([config])).quantile(0.5)[0])
    with pytest.raises(ft.StudyError, match="no parameter 'nothing'"):
        figures.parameter_map(searched, "nothing")
