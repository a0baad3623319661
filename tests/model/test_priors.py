"""Each prior is a normalised density, its sampler draws from it, and the horseshoe is the exact one."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import cumulative_simpson, quad
from scipy.stats import kstest, norm

from freezethaw.model.priors import Horseshoe, LogNormal, Normal, Uniform

KEPT, CAUGHT = 1e-3, 1e-6
DRAWS = 50_000

# prior, range of u = log x (of x itself for the uniform) that holds all but 1e-11 of the mass
POSITIVE = {
    "standard": (LogNormal(0.0, 1.0), -9.0, 9.0),
    "shifted": (LogNormal(-3.0, 0.4), -6.0, 0.0),
    "floored": (LogNormal(2 * math.log(0.03), 3.0, 1e-6), math.log(1e-6), 17.0),
    "floored high": (LogNormal(0.0, 1.0, 2.0), math.log(2.0), 9.0),
    "paper noise": (Horseshoe(0.1), math.log(1e-8), 28.0),
    "wide horseshoe": (Horseshoe(2.0, 1e-4), math.log(1e-4), 30.0),
}


def in_log(prior):
    """Density of u = log x."""
    return lambda u: math.exp(prior.log_density(math.exp(u)) + u)


def cdf_of_log(density, low, high, points=4001):
    """Distribution function of u = log x, by Simpson's rule."""
    inside = low + 1e-12 * abs(low)
    grid = np.linspace(inside, high, points)
    mass = cumulative_simpson([density(u) for u in grid], x=grid, initial=0.0)
    return lambda u: np.interp(u, grid, mass / mass[-1])


@pytest.mark.parametrize("name", POSITIVE)
def test_integrates_to_one(name):
    prior, low, high = POSITIVE[name]
    breaks = np.linspace(low, high, 8)
    mass = sum(quad(in_log(prior), a, b, epsabs=1e-12)[0] for a, b in pairwise(breaks))
    assert mass == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("name", POSITIVE)
def test_samples_follow_the_density(name):
    prior, low, high = POSITIVE[name]
    rng = np.random.default_rng(1)
    draws = np.log(prior.sample(rng, DRAWS))
    assert kstest(draws, cdf_of_log(in_log(prior), low, high)).pvalue > KEPT
    assert draws.min() > low


@pytest.mark.parametrize("name", POSITIVE)
def test_outside_the_support_there_is_nothing(name):
    prior, _, _ = POSITIVE[name]
    for x in (prior.floor, 0.5 * prior.floor, 0.0, -1.0, -math.inf):
        assert prior.log_density(x) == -math.inf
    assert math.isfinite(prior.log_density(prior.floor * 1.001 + 1e-12))


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("x", [-1.0, 0.0, 1e-12, 0.5, 10.0])
def test_the_nearest_value_has_positive_density(name, x):
    prior, _, _ = POSITIVE[name]
    near = prior.nearest(x)
    assert math.isfinite(prior.log_density(near))
    if x > prior.floor:
        assert near == x
    else:
        assert near == pytest.approx(prior.floor, abs=1e-8 * prior.floor + 1e-299)


# --- the horseshoe ---------------------------------------------------------------------------------------------------


def by_mixture(s, tau):
    """2 N(s; 0, (lambda tau)^2), lambda half-Cauchy integrated out; with lambda = e^v."""

    def integrand(v):
        w = math.exp(v)
        normal = math.exp(-0.5 * (s / (w * tau)) ** 2) / (w * tau * math.sqrt(2 * math.pi))
        return 2 * normal * (2 / math.pi) / (1 + w * w) * w

    centre = math.log(s / tau)
    breaks = [-60.0 + centre, centre - 3, centre, centre + 3, centre + 60.0]
    return sum(quad(integrand, a, b, epsabs=0, epsrel=1e-11, limit=200)[0] for a, b in pairwise(breaks))


@pytest.mark.parametrize("tau", [0.1, 1.5])
@pytest.mark.parametrize("s", [2e-8, 1e-5, 1e-2, 0.1, 0.5, 1.3, 1.42, 5.0, 25.0])
def test_the_horseshoe_is_the_mixture_over_half_cauchy_scales(s, tau):
    prior = Horseshoe(tau, 1e-8)
    floor_mass = quad(lambda u: by_mixture(math.exp(u), tau) * math.exp(u), -60.0, math.log(1e-8))[0]
    expected = math.log(by_mixture(s, tau)) - math.log1p(-floor_mass)
    assert prior.log_density(s) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("s", [1e3, 1e8, 1e100])
def test_the_far_tail_of_the_horseshoe_does_not_overflow(s):
    # e^z E1(z) -> 1/z, so that the density tends to 2 sqrt(2) tau / (pi^(3/2) s^2)
    expected = math.log(2 * math.sqrt(2) * 0.1) - 1.5 * math.log(math.pi) - 2 * math.log(s)
    assert Horseshoe(0.1).log_density(s) == pytest.approx(expected, abs=2e-6)


def test_the_series_of_the_far_tail_joins_the_exact_form():
    prior = Horseshoe(0.1)
    join = 0.1 * math.sqrt(2 * 100.0)
    below, above = prior.log_density(join * (1 - 1e-9)), prior.log_density(join * (1 + 1e-9))
    assert above - below == pytest.approx(-4e-9, abs=1e-10)  # the slope of a 1/s^2 tail, and no step


def test_the_logarithmic_approximation_of_the_horseshoe_is_another_density():
    """log(1 + 2 tau^2 / s^2), which circulates as "the horseshoe", is told from it by its own samples."""
    tau, floor = 0.1, 1e-8
    rng = np.random.default_rng(1)
    draws = np.log(Horseshoe(tau, floor).sample(rng, DRAWS))

    def approximate(u):
        return math.log1p(2 * (tau / math.exp(u)) ** 2) * math.exp(u)

    assert kstest(draws, cdf_of_log(approximate, math.log(floor), 28.0)).pvalue < CAUGHT


def test_a_floor_that_is_forgotten_in_the_sampler_is_caught():
    draws = np.log(np.exp(np.random.default_rng(1).standard_normal(DRAWS)))
    prior, low, high = POSITIVE["floored high"]
    assert kstest(draws, cdf_of_log(in_log(prior), low, high)).pvalue < CAUGHT


# --- the uniform -----------------------------------------------------------------------------------------------------


def test_the_uniform_is_flat_and_normalised():
    prior = Uniform(-1.5, 4.0)
    assert quad(lambda x: math.exp(prior.log_density(x)), -1.5, 4.0)[0] == pytest.approx(1.0)
    assert prior.log_density(-1.5001) == prior.log_density(4.0001) == -math.inf
    rng = np.random.default_rng(1)
    assert kstest(prior.sample(rng, DRAWS), "uniform", (-1.5, 5.5)).pvalue > KEPT
    assert [prior.nearest(x) for x in (-9.0, 0.3, 9.0)] == [-1.5, 0.3, 4.0]


def test_an_empty_uniform_fixes_the_value():
    prior = Uniform(0.7, 0.7)
    assert prior.sample(np.random.default_rng(0), 3).tolist() == [0.7] * 3
    assert prior.log_density(0.7) == 0.0
    assert prior.log_density(0.7001) == -math.inf
    assert prior.nearest(5.0) == 0.7


def test_the_normal_is_the_one_of_scipy():
    prior = Normal(0.3, 0.5)
    x = np.linspace(-3.0, 3.0, 13)
    np.testing.assert_allclose(prior.log_density(x), norm.logpdf(x, 0.3, 0.5), rtol=1e-12)
    assert kstest(prior.sample(np.random.default_rng(3), DRAWS), norm(0.3, 0.5).cdf).pvalue > KEPT
    np.testing.assert_array_equal(prior.nearest(x), x)
