"""Losses to model units and back, and forecasts in the user's units."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from freezethaw.errors import ModelError
from freezethaw.losses import FENCE, KNOTS, Forecast, Transform

EPS = np.finfo(float).eps

ordinary = st.floats(-100.0, 100.0, allow_subnormal=False).map(lambda x: round(x, 6))
wild = st.one_of(ordinary, st.sampled_from([1e34, 1e12, 1e6, 0.1, 2.3026, 0.0]))
close_together = st.integers(0, 50).map(lambda i: 1.0 + 1e-12 * i)
lists = st.one_of(
    st.lists(ordinary, min_size=1, max_size=60),
    st.lists(wild, min_size=1, max_size=60),
    st.lists(close_together, min_size=1, max_size=30),
    st.lists(st.sampled_from([0.1, 0.5, 2.3026]), min_size=1, max_size=30),
    st.tuples(ordinary, st.integers(1, 20)).map(lambda pair: [pair[0]] * pair[1]),
)
blends = st.sampled_from([0.0, 0.5, 1.0])


def seen(transform, losses):
    """The losses as the transform counts them: minimised, and capped."""
    return np.minimum(transform.sign * np.array(losses), transform.cap)


@settings(max_examples=300, deadline=None)
@given(lists, st.booleans(), blends)
@example([1e34, 0.1, 0.1, 0.2], False, 0.5)
@example([1e34, 0.1], False, 0.5)
@example([1e34], False, 0.5)
@example([-1e34, 0.1, 0.3], False, 0.5)
@example([0.0], False, 0.5)
@example([0.0, 0.0, 0.0], True, 1.0)
@example([1.0, 1.0 + 1e-12], False, 0.5)
@example([1.0] * 30 + [1.0 + 1e-12], False, 0.5)
def test_monotone_and_finite(losses, maximize, blend):
    transform = Transform.fit(losses, maximize, blend)
    assert np.all(np.diff(transform.knots) > 0)
    assert np.all(np.diff(transform.scores) > 0)
    assert np.all(np.array(transform.slopes) > 0)
    assert 2 <= len(transform.knots) <= max(KNOTS, 2)
    k, width = np.array(transform.knots), transform.knots[-1] - transform.knots[0]
    grid = transform.sign * np.linspace(k[0] - width, k[-1] + width, 301)
    z, slope = transform.with_slope(grid)
    assert np.isfinite(z).all()
    assert np.all(slope > 0)
    # increasing, but for the rounding of losses that hardly differ
    rounding = 16 * EPS * (np.abs(z).max() + np.abs(k).max() * slope.max())
    assert np.all(np.diff(z) >= -rounding)


@settings(max_examples=300, deadline=None)
@given(lists, st.booleans(), blends)
@example([1e34, 0.1, 0.1, 0.2], False, 0.5)
@example([1.0, 1.0 + 1e-12], False, 0.5)
def test_there_and_back(losses, maximize, blend):
    transform = Transform.fit(losses, maximize, blend)
    y = seen(transform, losses)
    z = transform.to_model(losses)
    back = transform.sign * transform.from_model(z)
    # an error eps |z| of z is one of eps |z| / slope of y, with the smallest slope there is
    rounding = 64 * EPS * (np.abs(y).max() + (1 + np.abs(z).max() + np.abs(transform.scores).max()) / least(transform))
    np.testing.assert_allclose(back, y, rtol=0, atol=rounding)


@settings(max_examples=200, deadline=None)
@given(lists, st.booleans(), blends, st.lists(st.floats(-6.0, 6.0), min_size=1, max_size=20))
def test_back_and_there(losses, maximize, blend, z):
    transform = Transform.fit(losses, maximize, blend)
    y = transform.from_model(z)
    again = transform.with_slope(y)[0]
    _, slope = transform.with_slope(np.concatenate([y, transform.sign * np.array(transform.knots)]))
    rounding = 64 * EPS * (10 + np.abs(transform.scores).max() + np.abs(y).max() * slope.max())
    np.testing.assert_allclose(again, z, rtol=0, atol=rounding)


def least(transform):
    """The smallest slope at and between the knots."""
    k = np.array(transform.knots)
    grid = np.concatenate([k, (k[:-1, None] + np.diff(k)[:, None] * np.linspace(0, 1, 33)).ravel()])
    return transform.with_slope(transform.sign * grid)[1].min()


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("blend", [0.0, 0.5, 1.0])
def test_the_slope_is_that_of_finite_differences(maximize, blend):
    rng = np.random.default_rng(0)
    losses = np.concatenate([0.1 + rng.exponential(0.3, 60), [2.3026] * 20])
    transform = Transform.fit(losses, maximize, blend)
    y = np.linspace(losses.min() - 0.5, losses.max() + 0.5, 400)
    y = y[np.min(np.abs(y[:, None] - transform.sign * np.array(transform.knots)), axis=1) > 1e-5]
    h = 1e-6
    difference = (transform.with_slope(y + h)[0] - transform.with_slope(y - h)[0]) / (2 * h)
    np.testing.assert_allclose(transform.sign * difference, transform.with_slope(y)[1], rtol=1e-5)


@settings(max_examples=200, deadline=None)
@given(lists, st.booleans(), blends)
def test_fitted_losses_have_mean_zero_and_variance_one(losses, maximize, blend):
    transform = Transform.fit(losses, maximize, blend)
    z = transform.to_model(losses)
    assert abs(z.mean()) < 1e-6 * (1 + np.abs(z).max())
    if len(np.unique(seen(transform, losses))) > 1:
        assert z.std() == pytest.approx(1.0, rel=1e-6)
    else:
        np.testing.assert_allclose(z, 0.0, atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(ordinary, min_size=1, max_size=40), blends)
def test_maximising_is_minimising_the_negative(losses, blend):
    up, down = Transform.fit(losses, True, blend), Transform.fit([-x for x in losses], False, blend)
    np.testing.assert_array_equal(up.to_model(losses), down.to_model([-x for x in losses]))
    z = np.linspace(-3, 3, 7)
    np.testing.assert_array_equal(up.from_model(z), -down.from_model(z))
    np.testing.assert_array_equal(up.with_slope(losses)[1], down.with_slope([-x for x in losses])[1])


@settings(max_examples=100, deadline=None)
@given(st.lists(ordinary, min_size=2, max_size=40))
def test_without_blend_it_is_affine(losses):
    transform = Transform.fit(losses, blend=0.0)
    y = seen(transform, losses)
    assume(y.std() > 1e-6)
    expected = (y - y.mean()) / y.std()
    np.testing.assert_allclose(transform.to_model(losses), expected, rtol=0, atol=1e-8 * (1 + np.abs(expected).max()))
    far = transform.with_slope([-1e3, 0.0, 1e3])[1]
    np.testing.assert_allclose(far, 1 / y.std(), rtol=1e-8)


def test_absurd_losses_are_capped_and_do_not_spoil_the_others():
    rng = np.random.default_rng(0)
    good = 0.1 + 0.2 * rng.random(50)
    alone, spoilt = Transform.fit(good), Transform.fit([*good, 1e34, 1e34])
    middle = np.median([*good, 1e34, 1e34])
    assert spoilt.cap == pytest.approx(middle + FENCE * (middle - good.min()))
    assert spoilt.to_model(1e34) == spoilt.to_model(1e20) == spoilt.to_model(spoilt.cap)
    assert spoilt.to_model(1e34) < 10
    # resolution where the good losses are: still a good part of what it was
    assert np.ptp(spoilt.to_model(good)) > 0.3 * np.ptp(alone.to_model(good))


def test_good_losses_are_resolved_better_than_bad_ones():
    losses = np.concatenate([np.linspace(0.1, 0.5, 30), np.linspace(1.0, 20.0, 30)])
    transform = Transform.fit(losses)
    assert np.ptp(transform.to_model([0.1, 0.5])) > np.ptp(transform.to_model([10.0, 10.4])) * 5


def test_on_a_plateau_units_are_those_of_what_lies_beside_it():
    """Most runs at chance level, to five digits: leaving the plateau must not be hundreds of spreads away."""
    rng = np.random.default_rng(0)
    plateau = np.log(2) + 1e-5 * rng.random(28)
    beside = np.array([0.70, 0.71, 0.72, 0.74, 0.75, 0.78, 0.8, 0.9, 1.7, 4.1])
    transform = Transform.fit(np.concatenate([plateau, beside]))
    best, middle, bad, worse, left = transform.to_model([plateau.min(), np.median(plateau), 0.75, 0.9, 0.40])
    assert middle - best < 0.1  # what is nothing counts as nothing
    assert worse - bad > 0.1  # what lies beside is told apart, not capped
    assert best - left < 100  # a run that learns can be thought of


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_runs_that_diverge_are_no_scale(offset):
    """Good losses five apart are resolved beside a fifth of absurd ones, far from zero too."""
    good = offset + np.linspace(0.0, 5.0, 20)
    alone, beside = Transform.fit(good), Transform.fit(np.concatenate([good, np.full(5, offset + 1e4)]))
    spans = [np.ptp(transform.to_model([good[0], np.median(good)])) for transform in (alone, beside)]
    assert spans[1] > 0.4 * spans[0]


def test_losses_that_are_not_finite_are_passed_over():
    assert Transform.fit([0.1, math.nan, 0.4, math.inf, 0.2]) == Transform.fit([0.1, 0.4, 0.2])
    for losses in ([], [math.nan, math.inf]):
        with pytest.raises(ModelError, match="no finite loss"):
            Transform.fit(losses)


def test_equal_losses_and_a_single_one_leave_a_scale():
    for losses in ([0.7], [0.7] * 5, [0.0], [-3.0] * 2):
        transform = Transform.fit(losses)
        np.testing.assert_allclose(transform.to_model(losses), 0.0, atol=1e-12)
        assert transform.from_model(1.0) > losses[0]


# --- forecasts -------------------------------------------------------------------------------------------------------


def a_forecast(maximize=False, freedoms=(math.inf, 8.0, 12.0), blend=0.5):
    rng = np.random.default_rng(0)
    losses = 0.1 + rng.exponential(0.3, 60)
    transform = Transform.fit(-losses if maximize else losses, maximize, blend)
    weights = np.array([[0.5, 0.2], [0.3, 0.2], [0.2, 0.6]])
    means = np.array([[-0.5, 0.1], [0.3, 1.0], [0.0, -1.0]])
    scales = np.array([[0.3, 0.5], [0.6, 0.2], [0.1, 0.4]])
    return Forecast(transform, weights, means, scales, np.repeat(np.array(freedoms)[:, None], 2, axis=1))


def monte_carlo(forecast, count, rng):
    """Draws of the losses: a component, a Student-t or normal deviate, and the inverse transform."""
    draws = np.empty((count, 2))
    for e in range(2):
        which = rng.choice(3, size=count, p=forecast.weights[:, e])
        nu = forecast.freedoms[which, e]
        chi = np.where(np.isinf(nu), 1.0, rng.chisquare(np.minimum(nu, 1e6)) / np.minimum(nu, 1e6))
        z = forecast.means[which, e] + forecast.scales[which, e] * rng.standard_normal(count) / np.sqrt(chi)
        draws[:, e] = forecast.transform.from_model(z)
    return draws


both = pytest.mark.parametrize("maximize", [False, True])


@both
def test_quantiles_and_probabilities_are_each_others_inverse(maximize):
    forecast = a_forecast(maximize)
    levels = np.array([0.001, 0.05, 0.25, 0.5, 0.9, 0.999])
    quantiles = forecast.quantile(levels)
    assert quantiles.shape == (6, 2)
    assert np.all(np.diff(quantiles, axis=0) > 0)
    for level, row in zip(levels, quantiles, strict=True):
        np.testing.assert_allclose(forecast.probability_below(row), level, atol=1e-9)
        np.testing.assert_allclose(forecast.quantile(level), row)
    with pytest.raises(ModelError, match="quantiles lie strictly between 0 and 1"):
        forecast.quantile([0.5, 1.0])


@both
def test_moments_quantiles_and_probabilities_are_those_of_draws(maximize):
    forecast, count = a_forecast(maximize), 200_000
    draws = monte_carlo(forecast, count, np.random.default_rng(1))
    error = draws.std(axis=0) / math.sqrt(count)
    # 64 nodes of equal probability miss what is beyond the outermost, about a hundredth of the spread
    assert np.all(np.abs(forecast.mean - draws.mean(axis=0)) < 4 * error + 0.02 * draws.std(axis=0))
    np.testing.assert_allclose(forecast.std, draws.std(axis=0), rtol=0.06)
    levels = np.array([0.05, 0.5, 0.95])
    for level, row in zip(levels, forecast.quantile(levels), strict=True):
        share = np.mean(draws < row, axis=0)
        np.testing.assert_allclose(share, level, atol=4 * math.sqrt(level * (1 - level) / count))
    for loss in forecast.quantile([0.2, 0.7])[:, 0]:
        share = np.mean(draws < loss, axis=0)
        np.testing.assert_allclose(forecast.probability_below(loss), share, atol=4 * 0.5 / math.sqrt(count))


@both
@pytest.mark.parametrize("blend", [0.0, 0.5])
def test_the_density_integrates_to_one_in_the_users_units(maximize, blend):
    forecast = a_forecast(maximize, blend=blend)
    corners = transform_corners(forecast)
    for e in range(2):
        parts = [quad(lambda y: math.exp(forecast.log_density(y)[e]), a, b, limit=200)[0] for a, b in corners]
        assert sum(parts) == pytest.approx(1.0, abs=1e-5)


def transform_corners(forecast):
    """Intervals between the knots, where the density is smooth, and the tails."""
    knots = np.sort(forecast.transform.sign * np.array(forecast.transform.knots))
    ends = np.sort(forecast.transform.from_model(np.array([-60.0, -8.0, 8.0, 60.0])))
    breaks = np.unique(np.concatenate([knots, ends]))
    return list(pairwise(breaks))


@both
def test_the_density_is_the_derivative_of_the_probability(maximize):
    forecast = a_forecast(maximize)
    h = 1e-6
    for loss in forecast.quantile([0.1, 0.4, 0.8])[:, 0] + 1e-4:
        rate = (forecast.probability_below(loss + h) - forecast.probability_below(loss - h)) / (2 * h)
        np.testing.assert_allclose(np.exp(forecast.log_density(loss)), rate, rtol=1e-4)


def test_a_density_without_the_slope_does_not_integrate_to_one():
    """A mutant: the density per model unit, read in the user's units."""
    forecast = a_forecast()

    def wrong(y):
        return math.exp(forecast.log_density(y)[0]) / forecast.transform.with_slope(y)[1]

    assert abs(sum(quad(wrong, a, b, limit=200)[0] for a, b in transform_corners(forecast)) - 1.0) > 0.1


def test_a_mixture_of_one_component_twice_is_that_component():
    once = a_forecast()
    single = Forecast(once.transform, *(a[:1] for a in (np.ones((1, 2)), once.means, once.scales, once.freedoms)))
    twice = Forecast(
        once.transform,
        np.array([[0.3, 0.5], [0.7, 0.5]]),
        *(np.repeat(a[:1], 2, axis=0) for a in (once.means, once.scales, once.freedoms)),
    )
    np.testing.assert_allclose(twice.mean, single.mean)
    np.testing.assert_allclose(twice.std, single.std)
    np.testing.assert_allclose(twice.quantile([0.1, 0.9]), single.quantile([0.1, 0.9]))
    np.testing.assert_allclose(twice.log_density(0.3), single.log_density(0.3))


def test_a_component_of_no_weight_adds_nothing():
    one = a_forecast()
    weights = np.array([[0.4, 0.4], [0.6, 0.6], [0.0, 0.0]])
    with_it = Forecast(one.transform, weights, one.means, one.scales, one.freedoms)
    without = Forecast(one.transform, weights[:2], one.means[:2], one.scales[:2], one.freedoms[:2])
    np.testing.assert_allclose(with_it.log_density(0.4), without.log_density(0.4))
    np.testing.assert_allclose(with_it.quantile(0.3), without.quantile(0.3))
    np.testing.assert_allclose(with_it.mean, without.mean)
