"""Screening: which runs and candidates enter the basket, and that screening does not change the decision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import freezethaw as ft
from freezethaw.decide.configurations import Configurations, Neighbours
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.loss_units import Observations
from freezethaw.model.sequential import initialise
from freezethaw.model.specification import Geometry
from freezethaw.policy import improvement_rate
from freezethaw.policy.acquisition import LEADING_RUNS, Options
from freezethaw.records import Run

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


class Around:
    """Neighbours at fixed steps from each candidate."""

    def __init__(self, candidates, steps):
        self.candidates, self.steps = candidates, steps

    def __call__(self, centres):
        count, each = len(self.candidates), len(self.steps)
        numbers = (count + each * centres[:, None] + np.arange(each)).reshape(-1)
        features = np.clip(self.candidates[centres][:, None, :] + self.steps, 0, 1).reshape(-1, 2)
        return Neighbours(numbers, np.repeat(centres, each), features)


def test_a_neighbour_scores_as_if_it_were_a_candidate_and_wins_if_it_is_best():
    found, may = forecaster(3, 12), options(12, np.random.default_rng(3))
    steps = np.array([[0.02, -0.03], [-0.1, 0.05], [0.0, 0.1]])
    around = Around(may.candidates, steps)
    refined = improvement_rate.choose(found, replace(may, neighbours=around), np.random.default_rng(3))
    near = [entry for entry in refined.basket if entry.candidate is not None and entry.candidate >= 20]
    assert near
    # the same configurations as ordinary candidates, all of which are compared
    centres = np.unique([(entry.candidate - 20) // 3 for entry in near])
    numbers, features = around(centres).numbers, around(centres).features
    listed = np.concatenate([may.candidates, features])
    more = np.zeros(len(listed))
    whole = replace(may, candidates=listed, score_factor_new=more + 1, switch_cost_new=more)
    expected = improvement_rate.choose(found, whole, np.random.default_rng(3))
    scores = {entry.candidate: entry.score for entry in expected.basket if entry.candidate is not None}
    for entry in near:
        place = 20 + int(np.flatnonzero(numbers == entry.candidate)[0])
        if place in scores:  # else it was screened out there
            assert entry.score == pytest.approx(scores[place], rel=0.05)  # on another grid of epochs
    assert refined.winner.score >= improvement_rate.choose(found, may, np.random.default_rng(3)).winner.score


def test_neighbours_of_proposals_are_numbered_and_never_a_configuration_that_was_started():
    space = ft.Space(a=ft.Int(0, 400), b=ft.Choice("x", "y"))
    configurations = Configurations(space, None)
    runs = [Run(n + 1, {"a": n, "b": "x"}, (1.0,), (1.0,)) for n in range(300)]
    candidates = configurations.new(runs, runs[:3], 1, np.random.default_rng(0))
    near = candidates.neighbours(np.arange(len(candidates)))
    assert len(near.numbers)
    assert near.numbers.min() >= len(candidates)
    np.testing.assert_array_equal(near.features, candidates.at(near.numbers))
    started = {space.key(run.config) for run in runs}
    for number, features in zip(near.numbers[:200], near.features[:200], strict=True):
        config = candidates.config(int(number))
        assert space.key(config) not in started
        np.testing.assert_allclose(space.features(config), features, atol=1e-12)
