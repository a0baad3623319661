"""The covariance functions are what the paper's formulas say, and are positive semidefinite."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import gamma, kv
from scipy.stats import beta as beta_distribution
from scipy.stats import gamma as gamma_distribution

from freezethaw.model import kernels
from freezethaw.model.correlation import correlation, run_correlation, scaled, scaled_column, warped
from freezethaw.model.specification import Geometry

EPS = np.finfo(float).eps
positive = st.floats(0.05, 20.0)
epochs = st.lists(st.floats(0.1, 1000.0), min_size=1, max_size=12).map(np.array)


def smallest_eigenvalue(K):
    """In units of what rounding may make of a zero."""
    np.testing.assert_array_equal(K, K.T)
    return np.linalg.eigvalsh(K)[0] / (EPS * len(K) * np.abs(K).max())


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.7])
@pytest.mark.parametrize("beta", [0.2, 1.0, 5.0])
@pytest.mark.parametrize(("t", "u"), [(0.0, 0.0), (1.0, 1.0), (1.0, 7.0), (30.0, 100.0)])
def test_the_decay_is_a_gamma_mixture_of_exponentials(alpha, beta, t, u):
    def integrand(v):  # lambda = e^v
        rate = math.exp(v)
        return math.exp(-rate * (t + u)) * gamma_distribution.pdf(rate, alpha, scale=1 / beta) * rate

    expected = sum(quad(integrand, a, a + 5, epsabs=1e-13)[0] for a in range(-120, 10, 5))
    got = kernels.exponential_decay(np.array([t]), np.array([u]), alpha, beta)
    assert got.shape == (1, 1)
    assert got[0, 0] == pytest.approx(expected, rel=1e-8)


@given(epochs, positive, positive)
def test_the_decay_is_a_covariance_that_decays(t, alpha, beta):
    K = kernels.exponential_decay(t, t, alpha, beta)
    assert smallest_eigenvalue(K) > -10
    assert np.all((K >= 0) & (K <= 1))
    later = kernels.exponential_decay(t, t + 1.0, alpha, beta)
    assert np.all(later <= K)


@given(epochs, epochs, positive)
def test_ornstein_uhlenbeck(t, u, length):
    K = kernels.ornstein_uhlenbeck(t, u, length)
    expected = [[math.exp(-abs(a - b) / length) for b in u] for a in t]
    np.testing.assert_allclose(K, expected, rtol=1e-13, atol=1e-300)
    square = kernels.ornstein_uhlenbeck(t, t, length)
    assert smallest_eigenvalue(square) > -10
    np.testing.assert_array_equal(np.diag(square), 1.0)


def test_ornstein_uhlenbeck_forgets_what_came_before():
    K = kernels.ornstein_uhlenbeck(np.array([1.0, 4.0, 9.0]), np.array([1.0, 4.0, 9.0]), 3.0)
    assert K[0, 2] == pytest.approx(K[0, 1] * K[1, 2])  # Markov


@given(st.lists(st.floats(0.0, 50.0), min_size=1, max_size=10).map(np.array))
def test_matern52_is_its_formula(r):
    expected = [(1 + math.sqrt(5) * x + 5 / 3 * x * x) * math.exp(-math.sqrt(5) * x) for x in r]
    before = r**2
    after = before.copy()
    np.testing.assert_allclose(kernels.matern52(after), expected, rtol=1e-13)
    np.testing.assert_array_equal(after, before)  # works in place on nothing of the caller's


@pytest.mark.parametrize("r", [0.01, 0.3, 1.0, 4.0])
def test_matern52_is_the_matern_class_of_order_five_halves(r):
    z = math.sqrt(5) * r
    expected = 2 ** (1 - 2.5) / gamma(2.5) * z**2.5 * kv(2.5, z)
    assert kernels.matern52(np.array([r * r]))[0] == pytest.approx(expected, rel=1e-10)


@given(epochs, positive)
def test_smooth_in_log_time_is_matern_of_the_ratio_of_epochs(t, length):
    K = kernels.smooth_in_log_time(t, t, length)
    assert smallest_eigenvalue(K) > -10
    np.testing.assert_allclose(kernels.smooth_in_log_time(3 * t, 3 * t, length), K, rtol=0, atol=1e-12)
    ratio = np.abs(np.log(t[:, None] / t[None, :])) / length
    np.testing.assert_allclose(K, kernels.matern52(ratio**2), rtol=0, atol=1e-12)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=10).map(np.array), positive, positive)
def test_the_warp_is_the_distribution_function_of_a_beta(x, a, b):
    w = kernels.warp(x, a, b)
    np.testing.assert_allclose(w, beta_distribution(a, b).cdf(x), rtol=1e-9, atol=1e-12)
    order = np.argsort(x)
    assert np.all(np.diff(w[order]) >= 0)
    assert kernels.warp(np.array([0.0, 1.0]), a, b).tolist() == [0.0, 1.0]
    np.testing.assert_allclose(kernels.warp(x, 1.0, 1.0), x, rtol=0, atol=4 * EPS)


@given(st.integers(0, 10_000))
def test_the_correlation_of_configurations(seed):
    """Both ways to compute it agree, with columns that share a length and columns that are not warped."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, 6))
    geometry = Geometry(
        tuple(sorted(int(g) % columns for g in rng.integers(0, 2, columns).cumsum())),
        tuple(bool(w) for w in rng.integers(0, 2, columns)),
    )
    geometry = Geometry(tuple(sorted(set(geometry.lengths)).index(g) for g in geometry.lengths), geometry.warped)
    x = rng.random((int(rng.integers(1, 15)), columns))
    values = {f"length.{g}": rng.uniform(0.2, 3.0) for g in range(geometry.count)}
    for column, is_warped in enumerate(geometry.warped):
        if is_warped:
            values |= {f"warp.{ab}.{column}": rng.uniform(0.3, 3.0) for ab in "ab"}
    inputs = scaled(x, geometry, values)
    stacked = {name: np.array([v, 1.5 * v]) for name, v in values.items()}
    by_column = [scaled_column(x[:, c], c, geometry, stacked)[0] for c in range(columns)]
    K = kernels.matern52(sum((c[:, None] - c[None, :]) ** 2 for c in by_column))
    assert smallest_eigenvalue(K) > -10
    # |x|^2 + |z|^2 - 2 x.z cancels: an error of eps |x|^2 in r^2, and the correlation falls by at most 5/6 r^2
    tolerance = 20 * EPS * max(1.0, np.max(inputs**2) * columns)
    np.testing.assert_allclose(correlation(inputs, inputs), K, rtol=0, atol=tolerance)
    for column, is_warped in enumerate(geometry.warped):
        if not is_warped:
            np.testing.assert_array_equal(warped(x, values)[:, column], x[:, column])


def test_samples_are_an_axis_of_the_correlation():
    """One call for several samples gives what a call for each of them gives."""
    rng = np.random.default_rng(0)
    geometry = Geometry((0, 0, 1), (True, False, True))
    x, z, runs = rng.random((6, 3)), rng.random((4, 3)), np.arange(6)
    names = ["length.0", "length.1", "warp.a.0", "warp.b.0", "warp.a.2", "warp.b.2", "luck"]
    values = {name: rng.uniform(0.3, 3.0, 5) for name in names}
    inputs, others = scaled(x, geometry, values), scaled(z, geometry, values)
    K = run_correlation(inputs, runs, others, np.array([2, 7, 8, 0]), values)
    for i in range(5):
        one = {name: v[i] for name, v in values.items()}
        np.testing.assert_array_equal(inputs[i], scaled(x, geometry, one))
        np.testing.assert_array_equal(K[i], run_correlation(inputs[i], runs, others[i], np.array([2, 7, 8, 0]), one))
    assert (K[:, 2, 0] == 1.0).all()
