"""Figures, forecasts and findings from results: here of small, made-up studies."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from experiments import data, draw, findings, forecasts, methods, problems, results

RUNS, EPOCHS = 5, 10


def made_up(problem, method, seed):
    """Runs trained to the end one after the other, but for the paper's method, which goes round."""
    rng = np.random.default_rng([seed, len(problem), len(method)])
    space = problems.PROBLEMS[problem].space
    order = np.repeat(np.arange(1, RUNS + 1), EPOCHS)
    if method == "paper":
        order = np.tile(np.arange(1, RUNS + 1), EPOCHS)
    epoch = np.array([np.sum(order[: i + 1] == run) for i, run in enumerate(order)])
    losses = 1.0 + 0.1 * order + 1.0 / epoch + 0.01 * rng.standard_normal(len(order))
    return {
        "problem": problem,
        "method": method,
        "seed": seed,
        "budget": len(order),
        "max_epochs": EPOCHS,
        "configs": [space.sample(rng) for _ in range(RUNS)],
        "order": order.tolist(),
        "losses": losses.tolist(),
        "training": [0.1] * len(order),
        "deciding": [0.02] * len(order),
        "wall": 0.13 * len(order),
    }


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for problem in ("lda", "pmf"):
        for method in methods.METHODS:
            for seed in range(2):
                results.write(folder, made_up(problem, method, seed))
    return folder


@pytest.fixture(scope="module")
def ends(kept):
    return forecasts.measure([r for r in results.everything(kept) if r.problem == "pmf"])


def test_every_figure_is_drawn_from_what_is_kept_and_none_from_nothing(kept, tmp_path):
    pytest.importorskip("plotly")
    summary = results.summary_of(kept)
    assert draw.FIGURES["comparison_logistic"](summary) is None
    figure = draw.FIGURES["comparison_lda"](summary)
    assert [t.name for t in figure.data if t.mode == "lines" and not t.fill] == list(methods.TITLES.values())
    wanted = list(draw.FIGURES)
    written = draw.draw(wanted, summary, tmp_path, html=True)
    assert [file.stem for file in written] == [name for name in wanted if name != "comparison_logistic"]


def test_forecasts_of_ends_beat_standing_still_on_curves_that_fall(ends):
    assert set(ends) == {"pmf"}
    assert ends["pmf"]["runs"] == 2 * RUNS
    assert list(ends["pmf"]["seen"]) == ["1", "2", "5"]
    entry = ends["pmf"]["seen"]["5"]
    assert entry["as it is"] == pytest.approx(0.1, rel=0.2)
    assert entry["drift"] < 0.5 * entry["as it is"]
    assert 0 <= entry["drift, in the 90 % interval"] <= 1


def test_only_runs_that_reached_the_end_are_forecast(tmp_path):
    record = made_up("pmf", "random", 0)
    cut = EPOCHS * RUNS - 3
    changed = {name: record[name][:cut] for name in ("order", "losses", "training", "deciding")}
    changed["losses"] = [*changed["losses"][: EPOCHS - 1], None, *changed["losses"][EPOCHS:]]
    results.write(tmp_path, record | changed)
    configs, curves = forecasts.whole_curves(results.everything(tmp_path), "pmf")
    assert curves.shape == (RUNS - 2, EPOCHS)
    assert configs[0] == record["configs"][1]


def test_the_tables_hold_what_was_measured(kept):
    raw, records = results.everything(kept), results.summary_of(kept).studies
    baseline = [r for r in raw if (r.problem, r.method) == ("lda", "baseline")]
    assert findings.goal(records, "lda") == pytest.approx(np.mean([r.losses.min() for r in baseline]))
    rows = [line.split(" | ") for line in findings.visits(records).splitlines()[2:]]
    assert rows[0][2:] == ["5", "0 %", "10", "45", "100 %", "9", "56 % |"]
    assert rows[1][2:] == ["5", "0 %", "10", "0", "0 %", "0", "nan % |"]
    assert "15.4 %" in findings.time_spent(records)
    assert findings.speed(records).count("\n") == 1 + 2 * len(methods.METHODS)


def test_the_page_has_a_place_for_every_table_and_keeps_the_rest(kept, ends):
    (kept / results.FORECASTS).write_text(json.dumps(ends))
    found = findings.parts(results.summary_of(kept))
    assert set(found) == {"speed", "medians", "visits", "time", "ends"}
    page = findings.PAGE.read_text(encoding="utf-8")
    full = findings.filled(page, found)
    assert findings.filled(full, found) == full
    assert "make paper QUICK=1" in full
    for content in found.values():
        assert content in full
    with pytest.raises(ValueError, match="no mark"):
        findings.filled("nothing", found)


def test_a_summary_is_read_back_and_updated_study_by_study(kept, tmp_path):
    summary = results.summary_of(kept)
    summary.save(tmp_path / "summary.json")
    found = results.published(tmp_path / "summary.json")
    assert found.studies == summary.studies
    assert found.progressions == summary.progressions
    for raw, short in zip(results.everything(kept), found.studies, strict=True):
        np.testing.assert_array_equal(short.lowest, raw.lowest)
    newer = replace(summary.studies[3], wall=1.0)
    updated = found.updated(results.Summary([newer]))
    assert updated.studies[3] == newer
    assert updated.studies[:3] + updated.studies[4:] == found.studies[:3] + found.studies[4:]
    assert results.published(tmp_path / "missing.json").studies == []


def test_no_rating_is_in_the_results():
    text = results.SUMMARY.read_text(encoding="utf-8")
    assert len(text) < 200_000
    assert '"rating' not in text


@pytest.mark.parametrize("problem", list(problems.QUICK))
def test_the_small_version_runs_on_the_real_data(problem):
    try:
        problems.QUICK[problem].load_data()
    except data.DataError as error:
        pytest.skip(str(error))
    record = methods.study(problems.QUICK[problem], "default", 0, budget=8)
    losses = [loss for loss in record["losses"] if loss is not None]
    assert record["epochs"] == 8
    assert min(losses) < losses[0]


def test_the_page_shows_the_pictures_that_were_drawn_and_no_others(tmp_path):
    (tmp_path / "comparison_pmf.png").write_bytes(b"")
    found = findings.pictures(tmp_path)
    assert found["comparisons"] == "![Matrix factorisation: lowest loss against epochs](images/comparison_pmf.png)"
    assert found["progressions"] == "Not drawn yet."
    text = findings.filled(findings.PAGE.read_text(), found)
    assert "images/comparison_pmf.png" in text
    assert "images/comparison_lda.png" not in text
    drawn = findings.PAGE.parent / "images"
    linked = re.findall(r"\(images/([\w.]+)\)", findings.PAGE.read_text())
    assert all((drawn / name).exists() for name in linked)
