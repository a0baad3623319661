"""The scale of a run, integrated out by hand: an inverse-gamma scale, or a run that has stalled."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import invgamma

from freezethaw.model.scales import (
    STALLED,
    STALLED_VARIANCE,
    Mixture,
    ScaleModel,
    infer_scales,
    new_run_scales,
    one_run_scales,
)

freedoms = st.floats(2.1, 30.0)
noises = st.floats(1e-6, 1.0)


def density(rss, k, s2):
    """Of k independent residuals of variance s2 whose squares sum to rss."""
    return math.exp(-0.5 * (k * math.log(2 * math.pi * s2) + rss / s2))


def integrate(f, nu):
    """Expectation of f(s^2) over inverse-gamma(nu/2, nu/2), in w = log s^2."""
    prior = invgamma(nu / 2, scale=nu / 2)
    breaks = np.linspace(-14, 30, 23)
    return sum(
        quad(lambda w: f(math.exp(w)) * prior.pdf(math.exp(w)) * math.exp(w), a, b)[0] for a, b in pairwise(breaks)
    )


@pytest.mark.parametrize("nu", [2.5, 6.0, 20.0])
@pytest.mark.parametrize(("rss", "k"), [(0.0, 0), (0.3, 1), (5.0, 4), (60.0, 7), (1e-3, 3), (2e-4, 5)])
def test_the_evidence_and_the_posterior_are_those_of_the_mixture(nu, rss, k):
    model = ScaleModel(nu, 1e-3)
    s = infer_scales(np.array([rss]), np.array([k]), model)
    stalled_scale = STALLED_VARIANCE / 1e-3
    active = (1 - STALLED) * integrate(lambda s2: density(rss, k, s2), nu)
    stalled = STALLED * density(rss, k, stalled_scale)
    assert s.log_density[0] == pytest.approx(math.log(active + stalled), abs=1e-8)
    assert s.stalled[0] == pytest.approx(stalled / (active + stalled), abs=1e-10)
    if nu + k > 3:  # the tail of s^2 beyond the range of integration is heavy otherwise
        mean = (1 - STALLED) * integrate(lambda s2: s2 * density(rss, k, s2), nu) + stalled * stalled_scale
        assert s.plug_in[0] == pytest.approx(mean / (active + stalled), rel=1e-5)


@pytest.mark.parametrize("nu", [2.5, 6.0])
def test_the_next_residual_of_a_run_is_student_t(nu):
    """p(next | seen) = p(both) / p(seen), which `active_scale` and `active_freedom` describe, if it is not stalled."""
    rss, k, model = 40.0, 6, ScaleModel(nu, 1.0)
    s = infer_scales(np.array([rss]), np.array([k]), model)
    assert s.stalled[0] < 1e-12
    f, scale = s.active_freedom[0], s.active_scale[0]
    for x in (0.0, 1.0, 4.0):
        both = infer_scales(np.array([rss + x * x]), np.array([k + 1]), model).log_density[0]
        constant = math.lgamma((f + 1) / 2) - math.lgamma(f / 2) - 0.5 * math.log(f * math.pi * scale)
        assert both - s.log_density[0] == pytest.approx(constant - 0.5 * (f + 1) * math.log1p(x * x / (f * scale)))


def test_a_constant_curve_is_recognised_as_stalled_and_an_ordinary_one_is_not():
    model = ScaleModel(6.0, 1e-3)
    rng = np.random.default_rng(0)
    s = infer_scales(np.array([0.0, float(np.sum(rng.standard_normal(8) ** 2)), 0.0]), np.array([8, 8, 0]), model)
    assert s.stalled[0] > 0.999
    assert s.stalled[1] < 1e-12
    assert s.stalled[2] == pytest.approx(STALLED)  # nothing was seen
    assert s.plug_in[0] < 1e-2
    assert s.plug_in[1] == pytest.approx(1.0, abs=0.5)


def test_the_longer_a_curve_is_constant_the_surer_it_is_stalled():
    model = ScaleModel(6.0, 1e-3)
    p = infer_scales(np.zeros(6), np.arange(6), model).stalled
    assert np.all(np.diff(p) > 0)


@given(st.floats(0.0, 1e4), st.integers(0, 200), freedoms, noises)
def test_nothing_overflows_and_scales_are_positive(rss, k, nu, noise):
    s = infer_scales(np.array([rss]), np.array([k]), ScaleModel(nu, noise))
    assert np.isfinite(s.log_density[0])
    assert 0 <= s.stalled[0] <= 1
    assert s.plug_in[0] > 0
    assert s.active_scale[0] > 0


@given(st.floats(0.0, 1e3), st.integers(0, 50), freedoms, noises, st.floats(1.0, 100.0))
def test_weights_sum_to_one(rss, k, nu, noise, last):
    s = infer_scales(np.array([rss]), np.array([k]), ScaleModel(nu, noise))
    at = np.array([0.5, 1.0, last, 2 * last, 1e6, math.inf])
    for mixture in (
        one_run_scales(s, 0, last, at),
        new_run_scales(s.model, at),
        Mixture.concatenate([new_run_scales(s.model, at)] * 2),
    ):
        np.testing.assert_allclose(mixture.weights.sum(axis=0), 1.0, rtol=0, atol=1e-14)
        assert np.all(mixture.weights >= -1e-15)
        assert mixture.weights.shape == mixture.scales.shape == mixture.freedoms.shape
        np.testing.assert_allclose(mixture.mean, (mixture.weights * mixture.scales).sum(axis=0))


def test_a_run_is_as_it_was_at_first_and_like_a_new_one_at_last():
    model = ScaleModel(5.0, 1e-3)
    s = infer_scales(np.array([50.0]), np.array([6]), model)
    mixture = one_run_scales(s, 0, 10.0, np.array([10.0, 20.0, 1e300]))
    np.testing.assert_allclose(mixture.weights[0], [1.0, 0.5**0.1, 1e-299**0.1], rtol=1e-6, atol=1e-12)
    assert mixture.mean[0] == pytest.approx(s.active_scale[0])
    assert mixture.mean[2] == pytest.approx(1.0)
    assert np.all(np.diff(mixture.mean) < 0)  # this one was wild


def test_infinite_freedom_is_the_gaussian():
    model = ScaleModel(None, 0.01)
    rss, k = np.array([0.0, 3.0, 40.0]), np.array([0, 4, 9])
    s = infer_scales(rss, k, model)
    np.testing.assert_allclose(s.log_density, -0.5 * (rss + k * math.log(2 * math.pi)))
    np.testing.assert_array_equal(s.plug_in, 1.0)
    np.testing.assert_array_equal(s.stalled, 0.0)
    for mixture in (one_run_scales(s, 1, 4.0, np.array([5.0, 9.0])), new_run_scales(model, np.array([1.0, 2.0]))):
        np.testing.assert_array_equal(mixture.weights, np.ones((1, 2)))
        np.testing.assert_array_equal(mixture.scales, np.ones((1, 2)))
        assert np.all(np.isinf(mixture.freedoms))


def test_a_large_freedom_tends_to_the_gaussian_but_for_stalled_runs():
    rss, k = np.array([3.0, 40.0]), np.array([4, 30])
    near = infer_scales(rss, k, ScaleModel(1e7, 0.01)).log_density - math.log1p(-STALLED)
    np.testing.assert_allclose(near, infer_scales(rss, k, ScaleModel(None, 0.01)).log_density, atol=1e-4)


def test_a_stalled_run_is_never_louder_than_an_ordinary_one():
    assert ScaleModel(4.0, 1e-3).stalled_scale == pytest.approx(1e-5)
    assert ScaleModel(4.0, 1e-9).stalled_scale == 1.0
