"""Expected improvement and its rate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

import freezethaw as ft
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.loss_units import Observations
from freezethaw.model.predictions import Predictions, predict
from freezethaw.model.sequential import initialise
from freezethaw.model.specification import Geometry
from freezethaw.policy.acquisition import expected_improvement, improvement_and_chance
from freezethaw.policy.costs import cost_factor, epochs_to_grant, relative_costs, survival_probability
from freezethaw.policy.improvement_rate import correlation_with_others, expected_cost, gains, rates
from freezethaw.policy.surprise import SURPRISE, covered, doublings, surprises

NO_RUNS = np.empty((1, 0))  # the correlation of one run where there are no others


def one_sample(mean: list[list[float]], deviation: float) -> Predictions:
    """Of P runs at E epochs under a single hyperparameter sample, each a single normal."""
    means = np.array([mean])
    return Predictions(
        means, np.full((1, *means.shape), deviation), np.ones((1, *means.shape)), np.empty((1, len(mean), 0))
    )


@pytest.mark.parametrize(("best", "mean", "deviation"), [(0.0, 0.3, 1.0), (1.0, -2.0, 0.5), (-1.0, 2.0, 0.7)])
def test_expected_improvement_equals_quadrature(best, mean, deviation):
    integrand = lambda y: (best - y) * norm.pdf(y, mean, deviation)  # noqa: E731 - an integrand
    expected, _ = quad(integrand, min(mean, best) - 12 * deviation, best)
    found = expected_improvement(best, np.array([mean]), np.array([deviation]))[0]
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-12)
    chance = improvement_and_chance(best, np.array([mean]), np.array([deviation]))[1][0]
    assert chance == pytest.approx(norm.cdf(best, mean, deviation))


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.01, 5), st.floats(0.01, 2))
def test_more_variance_never_lowers_the_expected_improvement(best, mean, deviation, more):
    narrow, wide = (
        expected_improvement(best, np.array([mean]), np.array([d]))[0] for d in (deviation, deviation + more)
    )
    assert wide >= narrow - 1e-12
    assert narrow >= max(best - mean, 0.0) - 1e-9


def test_gains_average_over_samples_and_components():
    mean, deviations = np.zeros((1, 1)), np.array([[[1.0]], [[2.0]]])
    weights = np.array([[[0.25]], [[0.75]]])
    twice = [
        np.repeat(a, 2, axis=axis) for a, axis in ((mean[None], 0), (deviations[:, None], 1), (weights[:, None], 1))
    ]
    found = gains(Predictions(*twice, NO_RUNS), np.array([0.0, 1.0]), np.array([0.4, 0.6]))
    expected = sum(
        s * w * expected_improvement(b, np.zeros(1), np.array([d]))[0]
        for s, b in ((0.4, 0.0), (0.6, 1.0))
        for w, d in ((0.25, 1.0), (0.75, 2.0))
    )
    assert found.improvement[0, 0] == pytest.approx(expected)


def test_the_rate_looks_only_ahead():
    prediction = one_sample([[-9.0, 0.0, -1.0]], 0.1)
    rate, at = rates(
        gains(prediction, np.zeros(1), np.ones(1)), np.array([1.0, 2.0, 3.0]), np.array([1.0]), np.zeros(1)
    )
    assert at[0] == 2  # epoch 1 is past, however good it looks
    assert rate[0] == pytest.approx(1.0 / 2.0, rel=1e-6)
    _, near = rates(
        gains(prediction, np.zeros(1), np.ones(1)),
        np.array([1.0, 2.0, 3.0]),
        np.array([1.0]),
        np.zeros(1),
        epochs_left=1,
    )
    assert near[0] == 1  # horizons beyond the budget are excluded


def test_a_sure_success_costs_all_its_epochs_and_a_gamble_less():
    assert expected_cost(np.array([16.0]), np.array([1.0]))[0] == 16.0
    assert expected_cost(np.array([16.0]), np.array([0.0]))[0] == 4.0
    assert expected_cost(np.array([1.0]), np.array([0.3]))[0] == 1.0


def test_costs_follow_a_power_law_and_have_no_unit():
    rng = np.random.default_rng(0)
    known, wanted = rng.random((60, 3)), rng.random((5, 3))
    cost = lambda x: np.exp(3 * x[:, 0] - x[:, 2])  # noqa: E731 - a law
    found = relative_costs(known, cost(known), wanted)
    expected = cost(wanted) / np.exp(np.log(cost(known)).mean())
    np.testing.assert_allclose(found, expected, rtol=0.25)
    np.testing.assert_allclose(relative_costs(known, 60 * cost(known), wanted), found)
    np.testing.assert_allclose(cost_factor(known, cost(known), wanted), np.sqrt(found))
    np.testing.assert_allclose(relative_costs(known, np.full(60, 7.0), wanted), 1.0)
    np.testing.assert_allclose(relative_costs(known[:1], np.array([7.0]), wanted), 1.0)


def test_survival_learns_a_boundary():
    rng = np.random.default_rng(0)
    known = rng.random((40, 4))
    survived = (known[:, 1] < 0.6).astype(float)
    wanted = np.array([[0.5, y, 0.5, 0.5] for y in (0.1, 0.3, 0.8, 1.0)])
    chance = survival_probability(known, survived, wanted)
    assert (chance[:2] > 0.8).all()
    assert (chance[2:] < 0.3).all()
    few = survival_probability(known[:1], np.zeros(1), wanted)
    assert ((few > 0.05) & (few < 0.99)).all()  # one run proves nothing


def test_survival_of_all_or_none():
    known = np.random.default_rng(0).random((30, 2))
    assert (survival_probability(known, np.ones(30), known) > 0.85).all()
    assert (survival_probability(known, np.zeros(30), known) < 0.3).all()


def test_a_switch_cost_lengthens_the_horizon_and_grants_more_epochs():
    prediction = one_sample([[-0.3, -0.5, -0.6]], 1e-3)
    found = gains(prediction, np.zeros(1), np.ones(1))
    epochs, done = np.array([1.0, 2.0, 3.0]), np.zeros(1)
    _, cheap = rates(found, epochs, done, np.zeros(1))
    rate, expensive = rates(found, epochs, done, np.full(1, 5.0))
    assert cheap[0] == 0
    assert expensive[0] == 2  # once the switch cost is paid, a longer horizon is better
    assert rate[0] == pytest.approx(0.6 / 8.0, rel=1e-3)
    assert epochs_to_grant(0.0, 10) == 1
    assert epochs_to_grant(8.0, 10) == 4
    assert epochs_to_grant(8.0, 3) == 3


def test_doublings_of_time_double_and_are_covered_by_their_share():
    assert 2.0 ** doublings(10) == pytest.approx([0.5, 1, 2, 4, 8, 10])
    assert 2.0 ** doublings(4) == pytest.approx([0.5, 1, 2, 4])
    assert 2.0 ** doublings(1) == pytest.approx([0.5, 1])
    share = covered(np.array([0.0, 2.0]), np.array([2.0, 5.0]), doublings(10))
    assert share[0] == pytest.approx([1, 1, 0, 0, 0])
    assert share[1] == pytest.approx([0, 0, 1, np.log2(5 / 4), 0])


def test_surprises_fade_with_the_runs_that_went_there():
    lengths, epochs = np.array([1.0, 1.0, 4.0]), np.array([1.0, 2.0, 4.0, 8.0])
    chance = surprises(lengths, np.ones((2, 3)), np.array([0.0, 1.0]), epochs, 8)
    calm = np.cumprod([1 - SURPRISE / 4, 1 - SURPRISE / 2, 1 - SURPRISE / 2, 1 - SURPRISE])  # seen by 3, 1, 1, none
    assert chance[0] == pytest.approx(1 - calm)
    assert chance[1] == pytest.approx(1 - calm / calm[0])  # what was seen of the run surprises no more


def test_runs_are_counted_by_their_correlation():
    lengths, epochs = np.array([1.0, 1.0, 8.0]), np.array([1.0, 8.0])
    corner, elsewhere, alone = np.array([1.0, 1.0, 6.0]), np.array([4.0, 4.0, 0.01]), np.zeros(3)
    chance = surprises(lengths, np.array([corner, elsewhere, alone, 1e-9 * corner]), np.zeros(4), epochs, 8)
    assert chance[0, 1] < chance[1, 1] < chance[2, 1]  # where no long run is near, nothing is known of late epochs
    assert chance[2, 1] == pytest.approx(1 - (1 - SURPRISE) ** 4)
    assert chance[3] == pytest.approx(chance[0])  # how strong correlations are over all says nothing


def test_a_run_is_not_counted_for_itself():
    rng = np.random.default_rng(0)
    observations = Observations(rng.random((4, 2)), ((1.0, 0.9), (0.8,), (0.7, 0.6, 0.5), (0.9,)), Geometry.plain(2), 9)
    forecaster = Forecaster.condition(initialise(observations, "drift", rng), observations)
    candidates = np.concatenate([observations.configs[:1], rng.random((2, 2))])
    runs = np.array([2, 0])
    predictions = predict(forecaster.posterior, runs, candidates, np.ones(1))
    correlation = correlation_with_others(predictions, forecaster.weights, runs)
    assert correlation.shape == (5, 4)
    assert correlation[0, 2] == correlation[1, 0] == 0.0
    assert correlation[2, 0] == pytest.approx(1.0)  # a new run of the same configuration
    assert correlation[0, 0] == pytest.approx(correlation[1, 2])


def test_where_all_runs_are_flat_at_first_some_are_trained_long():
    """Losses are noise up to epoch 6. Without the share for depth no run gets there."""
    rng = np.random.default_rng(0)
    study = ft.Study(ft.Space(x=ft.Float(0, 1), y=ft.Float(0, 1)), max_epochs=12, seed=3, prices=ft.Prices())
    spent = 0
    while spent < 100:
        decision = study.ask()
        epochs = range(decision.from_epoch + 1, decision.to_epoch + 1)
        study.tell(decision, [2.3 - (e > 6) * decision.config["x"] + 0.01 * rng.standard_normal() for e in epochs])
        spent += len(epochs)
    lengths = np.array([run.epoch for run in study.runs])
    assert lengths.max() > 6
    assert study.best.loss < 2.0


def test_a_surprise_improves_more_near_the_best():
    prediction = one_sample([[0.1], [3.0]], 1e-3)
    found = gains(prediction, np.zeros(1), np.ones(1), np.full((2, 1), 0.05))
    assert found.improvement[0, 0] == pytest.approx(0.05 * expected_improvement(0.0, np.array([0.1]), np.ones(1))[0])
    assert found.improvement[1, 0] < 0.01 * found.improvement[0, 0]


def test_waiting_for_a_surprise_pays_every_epoch():
    epochs, done = np.array([1.0, 4.0, 16.0]), np.zeros(1)
    flat = one_sample([[0.1, 0.1, 0.1]], 1e-3)
    chance = np.array([[0.01, 0.02, 0.04]])
    found = gains(flat, np.zeros(1), np.ones(1), chance)
    assert found.forecast == pytest.approx(0.0, abs=1e-12)
    rate, at = rates(found, epochs, done, np.zeros(1))
    once = expected_improvement(0.0, np.array([0.1]), np.ones(1))[0]
    assert at[0] == 0
    assert rate[0] == pytest.approx(0.01 * once)  # not 0.04 * once / sqrt(16), which would be as much
