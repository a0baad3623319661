"""Forecasts of real curves: a few contexts computed anew."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import forecast, tables

needs_data = pytest.mark.skipif(tables.data_folder() is None, reason="no folder of real curves: set FREEZETHAW_DATA")


@needs_data
@pytest.mark.slow
def test_a_few_recorded_contexts_anew():
    ours, theirs = [], []
    for context, record in forecast.recorded_contexts()[3::30]:
        scores, _, _, _ = forecast.evaluate((context, "drift"))
        ours.append(scores.log_density.mean())
        theirs.append(np.maximum(record["logp"], -10).mean())
        assert np.isfinite(scores.crps).all()
    assert np.mean(ours) > np.mean(theirs)


@needs_data
def test_queries_that_repeat_the_last_loss_are_a_kind_of_their_own():
    context = forecast.context("taskset/FixedTextRNNClassification_imdb_patch32_GRU64_avg_bs128", 0, 20)
    kinds = context.kinds()
    assert set(kinds) == set(forecast.KINDS)
    for kind, (row, seen, epoch) in zip(kinds, context.queries, strict=True):
        assert (kind == "unseen") == (seen == 0)
        if seen:
            assert (kind == "repeated") == (context.losses[row, seen - 1] == context.losses[row, epoch - 1])


def test_rivals_of_one_curve_forecast_what_they_say():
    context = forecast.context("lcbench/3945", 0, 20)
    old = forecast.single_curve.only_old(context)
    assert len(old.queries) < len(context.queries)
    last = forecast.single_curve.forecast(old, "last")
    row, seen, _ = old.queries[0]
    assert last.mean[0] == pytest.approx(context.losses[row, seen - 1], abs=1e-6)
    law = 0.2 + 0.7 * np.arange(1.0, 31.0) ** -0.8
    np.testing.assert_allclose(forecast.single_curve.power_law(law[:10], 30), law, rtol=1e-3)
