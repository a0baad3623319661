"""Screening: which runs and candidates enter the basket, and that screening does not change the decision."""

from __future__ import annotations

import numpy as np
import pytest

from freezethaw.model.forecaster import Forecaster
from freezethaw.model.loss_units import Observations
from freezethaw.model.sequential import initialise
from freezethaw.model.specification import Geometry
from freezethaw.policy import improvement_rate
from freezethaw.policy.acquisition import LEADING_RUNS, Options

MAX_EPOCHS = 30


def forecaster(seed: int, runs: int) -> Forecaster:
    """Runs of several lengths whose level depends on their configuration."""
    rng = np.random.default_rng(seed)
    configs = rng.random((runs, 2))
    curves = []
    for x in configs:
        t = np.arange(1.0, 2 + rng.integers(10))
        curves.append(tuple(2 * np.sum((x - 0.3) ** 2) + 1 / t + 0.02 * rng.standard_normal(len(t))))
    observations = Observations(configs, tuple(curves), Geometry.plain(2), float(MAX_EPOCHS))
    return Forecaster.condition(initialise(observations, "drift", rng, count=4), observations)


def options(runs: int, rng: np.random.Generator) -> Options:
    """All runs and twenty new configurations, all of equal cost."""
    new = rng.random((20, 2))
    zeros, ones = np.zeros(runs), np.ones(runs)
    return Options(np.arange(runs), new, MAX_EPOCHS, ones, np.ones(20), zeros, np.zeros(20))


@pytest.mark.parametrize("seed", range(6))
def test_screening_keeps_the_runs_that_win(seed, monkeypatch):
    found, may = forecaster(seed, 40), options(40, np.random.default_rng(seed))
    whole = improvement_rate.choose(found, may, np.random.default_rng(seed))
    monkeypatch.setattr(improvement_rate, "OLD_BASKET", 20)
    monkeypatch.setattr(improvement_rate, "NEW_BASKET", 10)
    screened = improvement_rate.choose(found, may, np.random.default_rng(seed))
    assert screened.winner == whole.winner
    best = [entry.run for entry in whole.basket if entry.run is not None][:5]
    assert set(best) <= {entry.run for entry in screened.basket}
    assert len([entry for entry in screened.basket if entry.run is None]) == 10


def test_nothing_costly_is_computed_for_what_is_screened_out(monkeypatch):
    monkeypatch.setattr(improvement_rate, "OLD_BASKET", 20)
    monkeypatch.setattr(improvement_rate, "NEW_BASKET", 5)
    predicted = []

    def predict(posterior, runs, configs, epochs):
        predicted.append((len(runs), len(configs)))
        return real(posterior, runs, configs, epochs)

    real = improvement_rate.predict
    monkeypatch.setattr(improvement_rate, "predict", predict)
    improvement_rate.choose(forecaster(0, 40), options(40, np.random.default_rng(0)), np.random.default_rng(0))
    ((runs, new),) = predicted  # nothing costly is done for all 40 and 20
    assert 20 <= runs <= 20 + LEADING_RUNS
    assert new == 5
