"""Forecasts of real curves: what the kept results say, and a few contexts computed anew."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import forecast, tables

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
needs_data = pytest.mark.skipif(tables.data_folder() is None, reason="no folder of real curves: set FREEZETHAW_DATA")


def kept(name):
    return json.loads((RESULTS / f"{name}.json").read_text())["results"]


@pytest.mark.parametrize("suite", tables.SUITES)
def test_the_kept_results_beat_each_rival_and_cover(suite):
    found = kept("forecast")[suite]["later"]
    ours = found["drift"]
    for rival in ("paper", "last", "power"):
        assert ours["log_likelihood"] > found[rival]["log_likelihood"], rival
        assert ours["crps"] < found[rival]["crps"], rival
    assert 0.83 <= ours["covered_90"] <= 0.96
    assert 0.40 <= ours["covered_50"] <= 0.65
    assert sum(ours["pit"]) == pytest.approx(1.0)


@pytest.mark.parametrize("suite", ["taskset", "lcbench"])
@pytest.mark.parametrize("what", ["later", "unseen"])
def test_the_kept_results_beat_ftpfn(suite, what):
    found = kept("forecast_ftpfn")[suite][what]
    assert found["drift"]["log_likelihood"] >= found["ft-pfn"]["log_likelihood"]
    assert found["drift"]["squared_error"] <= found["ft-pfn"]["squared_error"]


@needs_data
@pytest.mark.slow
def test_a_few_recorded_contexts_anew():
    ours, theirs = [], []
    for context, record in forecast.recorded_contexts()[3::30]:
        scores, _, _ = forecast.evaluate((context, "drift"))
        ours.append(scores.log_density.mean())
        theirs.append(np.maximum(record["logp"], -10).mean())
        assert np.isfinite(scores.crps).all()
    assert np.mean(ours) > np.mean(theirs)


@needs_data
def test_rivals_of_one_curve_forecast_what_they_say():
    context = forecast.context("lcbench/3945", 0, 20)
    old = forecast.single_curve.only_old(context)
    assert len(old.queries) < len(context.queries)
    last = forecast.single_curve.forecast(old, "last")
    row, seen, _ = old.queries[0]
    assert last.mean[0] == pytest.approx(context.losses[row, seen - 1], abs=1e-6)
    law = 0.2 + 0.7 * np.arange(1.0, 31.0) ** -0.8
    np.testing.assert_allclose(forecast.single_curve.power_law(law[:10], 30), law, rtol=1e-3)
