"""The benchmark of pruned trials: scores of good and bad forecasts, and a small table with Optuna itself."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import optuna_import, tables

import freezethaw as ft
from freezethaw.model.specification import Geometry

pytest.importorskip("optuna")
TRUTH = np.linspace(0.0, 1.0, 101)


def pruned(median, width):
    return optuna_import.Pruned(
        "t", np.full(101, 3), TRUTH + 0.5, TRUTH, np.array([median - width, median, median + width])
    )


def test_good_and_bad_forecasts_are_distinguished():
    good = optuna_import.summary(pruned(TRUTH + 0.01, 0.02))
    assert (good["covered_by_90_percent"], good["rank_correlation"]) == (1.0, 1.0)
    assert good["median_error"] == pytest.approx(0.01 / 0.25)
    assert good["median_error_of_the_last_loss"] == pytest.approx(0.5 / 0.25)
    bad = optuna_import.summary(pruned(1 - TRUTH, 0.02))
    assert bad["covered_by_90_percent"] < 0.05
    assert bad["rank_correlation"] == pytest.approx(-1.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Optuna's experimental functions
def test_the_benchmark_with_the_real_optuna(monkeypatch):
    monkeypatch.setattr(optuna_import, "PRUNED", 10)
    rng, epochs = np.random.default_rng(0), np.arange(1, 13)
    configs = tuple({"x": float(x)} for x in rng.uniform(size=60))
    losses = np.array([[c["x"] + 1 / epochs] for c in configs])
    features = np.array([[c["x"]] for c in configs])
    table = tables.Table(
        "made/up", features, Geometry.plain(1), losses, space=ft.Space(x=ft.Float(0.0, 1.0)), configs=configs
    )
    found, seconds = optuna_import.forecast_pruned(table)
    assert len(found.truth) == 10
    assert np.all(found.seen < 12)
    assert optuna_import.summary(found)["rank_correlation"] > 0.9
    assert set(seconds) >= {"import_in_memory"}
