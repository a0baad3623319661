"""One transition from an exact draw: the new point has the same distribution, and pairs may be read either way.

A chain that is compared with its target after many steps forgives a slightly wrong transition. One exact draw followed
by one transition does not: `x1` must have the law of `x0`, and `(x0, x1)` that of `(x1, x0)`. The mutants below are the
mistakes these tests are for; each of them is caught.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import beta, chi2, kstest, norm, skewnorm

from freezethaw.model import slice_sampler
from freezethaw.model.slice_sampler import slice_sample

DRAWS = 10_000
KEPT = 1e-3  # p-value below which a correct sampler would be doubted
CAUGHT = 1e-6  # p-value below which a mutant counts as caught


@dataclass(frozen=True)
class Bimodal:
    """0.3 N(-2, 0.6^2) + 0.7 N(1.5, 0.5^2): slices are often two intervals."""

    width: float = 2.0

    def log_density(self, x):
        left = math.log(0.3 / 0.6) - 0.5 * ((x + 2.0) / 0.6) ** 2
        right = math.log(0.7 / 0.5) - 0.5 * ((x - 1.5) / 0.5) ** 2
        high, low = max(left, right), min(left, right)
        return high + math.log1p(math.exp(low - high))

    def sample(self, rng, size):
        left = rng.random(size) < 0.3
        return np.where(left, -2.0, 1.5) + np.where(left, 0.6, 0.5) * rng.standard_normal(size)

    def cdf(self, x):
        return 0.3 * norm.cdf(x, -2.0, 0.6) + 0.7 * norm.cdf(x, 1.5, 0.5)


@dataclass(frozen=True)
class Skewed:
    """A skew normal, with an interval that is nearly always inside the slice."""

    width: float = 0.4

    def log_density(self, x):
        return -0.5 * x * x + math.log(max(math.erfc(-4.0 * x / math.sqrt(2)), 1e-300))

    def sample(self, rng, size):
        a, b = rng.standard_normal((2, size))
        d = 4.0 / math.sqrt(17.0)
        return d * np.abs(a) + math.sqrt(1 - d * d) * b

    def cdf(self, x):
        return skewnorm.cdf(x, 4.0)


@dataclass(frozen=True)
class Bounded:
    """beta(3/2, 3) on (0, 1) and nothing outside, with an interval as long as the support."""

    width: float = 1.0

    def log_density(self, x):
        return 0.5 * math.log(x) + 2.0 * math.log1p(-x) if 0 < x < 1 else -math.inf

    def sample(self, rng, size):
        return rng.beta(1.5, 3.0, size)

    def cdf(self, x):
        return beta.cdf(x, 1.5, 3.0)


# an interval that sometimes or often holds both modes; one inside the slice; one as wide as the slice
HARD = [Bimodal(), Bimodal(width=6.0), Skewed(), Skewed(width=2.0)]
EASY = [Bimodal(width=12.0), Bounded(width=0.8), Bounded()]


def pairs(target, seed, rng_type=None):
    """Exact draws and what one transition makes of them."""
    rng = np.random.default_rng(seed)
    x0 = target.sample(rng, DRAWS)
    source = rng if rng_type is None else rng_type(rng)
    x1 = [slice_sample(target.log_density, x, target.width, source)[0] for x in x0.tolist()]
    return x0, np.array(x1)


def invariance(target, x1):
    """p-value of Kolmogorov and Smirnov's test against the exact distribution."""
    return kstest(x1, target.cdf).pvalue


def symmetry(target, x0, x1, bins=8):
    """p-value of Bowker's test that as many pairs go from bin i to bin j as from j to i."""
    i, j = (np.minimum((target.cdf(x) * bins).astype(int), bins - 1) for x in (x0, x1))
    counts = np.zeros((bins, bins))
    np.add.at(counts, (i, j), 1)
    there, back = counts[np.triu_indices(bins, 1)], counts.T[np.triu_indices(bins, 1)]
    enough = there + back >= 10
    statistic = ((there - back) ** 2 / np.maximum(there + back, 1))[enough].sum()
    return chi2.sf(statistic, enough.sum())


@pytest.mark.parametrize("target", HARD + EASY, ids=repr)
def test_one_transition_leaves_the_target_invariant_and_is_reversible(target):
    x0, x1 = pairs(target, seed=1)
    assert invariance(target, x0) > KEPT  # the draws themselves are exact
    assert invariance(target, x1) > KEPT
    assert symmetry(target, x0, x1) > KEPT
    assert np.mean(x0 != x1) > 0.99  # and it moves


# --- the mutants -----------------------------------------------------------------------------------------------------


def placed(position):
    """`place_interval` with another position of the point in the interval."""

    def place_interval(point, width, rng):
        left = point - width * position(rng)
        return left, left + width

    return place_interval


def shrink_without_check(log_density, point, level, left, right, rng):
    """Takes the first candidate."""
    x = left + (right - left) * rng.random()
    return x, log_density(x)


def shrink_onto_the_point(log_density, point, level, left, right, rng):
    """Gives up the whole side on which a candidate was rejected."""
    while left < right:
        x = left + (right - left) * rng.random()
        if log_density(x) > level:
            return x, log_density(x)
        left, right = (point, right) if x < point else (left, point)
    return point, log_density(point)


PLACE_MUTANTS = {
    "interval starts at the point": placed(lambda rng: 0.0),
    "interval centred on the point": placed(lambda rng: 0.5),
    "point near the left end": placed(lambda rng: rng.random() ** 2),
}
SHRINK_MUTANTS = {
    "no level check": shrink_without_check,
    "onto the point": shrink_onto_the_point,
}


class WrongLevel:
    """A generator whose exponential draws are uniform: the level is drawn in the wrong scale."""

    def __init__(self, rng):
        self.random, self.exponential = rng.random, rng.random


class HighLevel(WrongLevel):
    """The level of twice the logarithm of the density."""

    def __init__(self, rng):
        super().__init__(rng)
        self.exponential = lambda: 0.5 * rng.exponential()


def smallest(seed=2, rng_type=None):
    """The smallest p-value over the hard targets and both tests."""
    found = []
    for target in HARD:
        x0, x1 = pairs(target, seed, rng_type)
        found += [invariance(target, x1), symmetry(target, x0, x1)]
    return min(found)


@pytest.mark.parametrize("name", PLACE_MUTANTS)
def test_a_wrongly_placed_interval_is_caught(name, monkeypatch):
    monkeypatch.setattr(slice_sampler, "place_interval", PLACE_MUTANTS[name])
    assert smallest() < CAUGHT


@pytest.mark.parametrize("name", SHRINK_MUTANTS)
def test_a_wrong_shrinkage_is_caught(name, monkeypatch):
    monkeypatch.setattr(slice_sampler, "shrink", SHRINK_MUTANTS[name])
    assert smallest() < CAUGHT


@pytest.mark.parametrize("rng_type", [WrongLevel, HighLevel])
def test_a_wrong_level_is_caught(rng_type):
    assert smallest(rng_type=rng_type) < CAUGHT


def test_the_copies_are_mutants_only_by_what_they_change(monkeypatch):
    monkeypatch.setattr(slice_sampler, "place_interval", placed(lambda rng: rng.random()))
    assert smallest() > KEPT / (2 * len(HARD))


# --- what it reports, and what it refuses ----------------------------------------------------------------------------


@pytest.mark.parametrize("here", [None, -math.inf, math.nan])
def test_standing_where_the_density_is_zero_is_refused(here):
    with pytest.raises(ValueError, match="at a point of zero density"):
        slice_sample(Bounded().log_density, 1.5, 1.0, np.random.default_rng(0), here)


def test_stays_in_the_interval_and_reports_the_density_of_the_draw():
    rng = np.random.default_rng(3)
    target, calls = Bimodal(), []

    def counted(x):
        calls.append(x)
        return target.log_density(x)

    for x in target.sample(rng, 200).tolist():
        calls.clear()
        point, log_density = slice_sample(counted, x, 1.0, rng, target.log_density(x))
        assert x not in calls  # the density here was given
        assert point == calls[-1]  # the first candidate in the slice is taken
        assert abs(point - x) <= 1.0
        assert log_density == target.log_density(point)


def test_one_evaluation_is_enough_where_the_density_is_flat():
    rng, calls = np.random.default_rng(4), []
    for count in range(1, 100):
        point, _ = slice_sample(lambda x: calls.append(x) or 0.0, 0.0, 0.7, rng, 0.0)
        assert len(calls) == count
        assert abs(point) <= 0.7


def test_a_density_positive_at_one_point_only_leaves_the_chain_there():
    point, _ = slice_sample(lambda x: 0.0 if x == 1.0 else -math.inf, 1.0, 1.0, np.random.default_rng(5))
    assert point == 1.0


def elliptical_pairs(move, seed, count=4000):
    """Exact draws of a normal posterior and where one elliptical move takes them: both have the same distribution."""
    rng = np.random.default_rng(seed)
    prior, noise, seen = np.array([1.0, 2.0, 0.5]), np.array([0.7, 0.5, 2.0]), np.array([0.8, -1.5, 0.3])
    variance = 1 / (1 / prior**2 + 1 / noise**2)
    mean = variance * seen / noise**2

    def log_likelihood(x):
        return float(-0.5 * np.sum(((x - seen) / noise) ** 2))

    ends = []
    for _ in range(count):
        start = mean + np.sqrt(variance) * rng.standard_normal(3)
        end, value = move(log_likelihood, start, prior * rng.standard_normal(3), rng)
        assert value == pytest.approx(log_likelihood(end))
        ends.append((end - mean) / np.sqrt(variance))
    return np.array(ends)


def smallest_p(ends):
    from scipy.stats import kstest

    return min(kstest(ends[:, j], "norm").pvalue for j in range(ends.shape[1]))


def test_an_elliptical_move_keeps_the_posterior():
    assert smallest_p(elliptical_pairs(slice_sampler.elliptical_slice, seed=3)) > 1e-3


def test_elliptical_moves_that_are_wrong_are_caught():
    def half_circle(log_likelihood, point, draw, rng):
        """Looks only on one side of the point: the angle is never negative, and never shrinks from there."""
        level = log_likelihood(point) - rng.exponential()
        angle = rng.uniform(0, np.pi / 2)
        while True:
            candidate = point * np.cos(angle) + draw * np.sin(angle)
            if log_likelihood(candidate) > level:
                return candidate, log_likelihood(candidate)
            angle *= rng.random()

    def wide_prior(log_likelihood, point, draw, rng):
        return slice_sampler.elliptical_slice(log_likelihood, point, 2 * draw, rng)

    def no_level(log_likelihood, point, draw, rng):
        angle = rng.uniform(0, 2 * np.pi)
        candidate = point * np.cos(angle) + draw * np.sin(angle)
        return candidate, log_likelihood(candidate)

    for mutant in (half_circle, wide_prior, no_level):
        assert smallest_p(elliptical_pairs(mutant, seed=3)) < 1e-4, mutant.__name__


def test_an_elliptical_chain_may_not_stand_where_the_likelihood_is_zero():
    with pytest.raises(ValueError, match="likelihood is zero"):
        slice_sampler.elliptical_slice(lambda x: -np.inf, np.zeros(1), np.ones(1), np.random.default_rng(0))
