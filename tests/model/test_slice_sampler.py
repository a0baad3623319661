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
from scipy.special import erfc
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
        return np.logaddexp(left, right)

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
        return -0.5 * x * x + np.log(np.maximum(erfc(-4.0 * x / math.sqrt(2)), 1e-300))

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
        inside = (x > 0) & (x < 1)
        y = np.where(inside, x, 0.5)
        return np.where(inside, 0.5 * np.log(y) + 2.0 * np.log1p(-y), -np.inf)

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
    x1, _ = slice_sample(lambda x, chains: target.log_density(x), x0, target.width, source)
    return x0, x1


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
    assert np.mean(x0 != x1) > 0.9  # and it moves, unless all candidates were rejected


# --- the mutants -----------------------------------------------------------------------------------------------------


def placed(position):
    """`place_interval` with another position of the point in the interval."""

    def place_interval(points, width, rng):
        left = points - width * position(rng, len(points))
        return left, left + width

    return place_interval


def shrink_without_check(log_density, points, here, level, left, right, rng):
    """Takes the first candidate."""
    x = left + (right - left) * rng.random(len(points))
    return x, log_density(x, np.arange(len(points)))


def shrink_onto_the_point(log_density, points, here, level, left, right, rng):
    """Gives up the whole side on which a candidate was rejected."""
    found = points.copy()
    for i in range(len(points)):
        while left[i] < right[i]:
            x = left[i] + (right[i] - left[i]) * rng.random()
            if log_density(np.array([x]), np.array([i]))[0] > level[i]:
                found[i] = x
                break
            left[i], right[i] = (points[i], right[i]) if x < points[i] else (left[i], points[i])
    return found, log_density(found, np.arange(len(points)))


def shrink_with_levels_exchanged(log_density, points, here, level, left, right, rng):
    """Uses the levels of other chains."""
    return right_shrink(log_density, points, here, np.roll(level, 1), left, right, rng)


right_shrink = slice_sampler.shrink


PLACE_MUTANTS = {
    "interval starts at the point": placed(lambda rng, n: np.zeros(n)),
    "interval centred on the point": placed(lambda rng, n: np.full(n, 0.5)),
    "point near the left end": placed(lambda rng, n: rng.random(n) ** 2),
}
SHRINK_MUTANTS = {
    "no level check": shrink_without_check,
    "onto the point": shrink_onto_the_point,
    "levels of other chains": shrink_with_levels_exchanged,
}


class WrongLevel:
    """A generator whose exponential draws are uniform: the level is drawn in the wrong scale."""

    def __init__(self, rng):
        self.random, self.exponential = rng.random, rng.random


class HighLevel(WrongLevel):
    """The level of twice the logarithm of the density."""

    def __init__(self, rng):
        super().__init__(rng)
        self.exponential = lambda size: 0.5 * rng.exponential(size=size)


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
    monkeypatch.setattr(slice_sampler, "place_interval", placed(lambda rng, n: rng.random(n)))
    assert smallest() > KEPT / (2 * len(HARD))


# --- what it reports, and what it refuses ----------------------------------------------------------------------------


@pytest.mark.parametrize("here", [None, -math.inf, math.nan])
def test_standing_where_the_density_is_zero_is_refused(here):
    here = None if here is None else np.array([0.0, here])
    with pytest.raises(ValueError, match="at a point of zero density"):
        slice_sample(
            lambda x, chains: Bounded().log_density(x), np.array([0.5, 1.5]), 1.0, np.random.default_rng(0), here
        )


def test_stays_in_the_interval_and_reports_the_density_of_the_draw():
    rng, target = np.random.default_rng(3), Bimodal()
    x = target.sample(rng, 200)
    calls = {chain: [] for chain in range(200)}

    def counted(candidates, chains):
        for chain, candidate in zip(chains, candidates, strict=True):
            calls[int(chain)].append(candidate)
        return target.log_density(candidates)

    points, log_densities = slice_sample(counted, x, 1.0, rng, target.log_density(x))
    for chain, tried in calls.items():
        assert x[chain] not in tried  # the density here was given
        assert len(tried) <= slice_sampler.TRIES
        # the first candidate in the slice is taken; the point stays if there was none
        assert points[chain] == tried[-1] or (len(tried) == slice_sampler.TRIES and points[chain] == x[chain])
        assert abs(points[chain] - x[chain]) <= 1.0
    np.testing.assert_array_equal(log_densities, target.log_density(points))


def test_one_evaluation_is_enough_where_the_density_is_flat():
    calls = []
    points, _ = slice_sample(
        lambda x, chains: calls.append(x) or np.zeros(len(x)), np.zeros(99), 0.7, np.random.default_rng(4), np.zeros(99)
    )
    assert len(calls) == 1
    assert (np.abs(points) <= 0.7).all()


def test_a_density_positive_at_one_point_only_leaves_the_chain_there():
    points, values = slice_sample(
        lambda x, chains: np.where(x == 1.0, 0.0, -np.inf), np.ones(3), 1.0, np.random.default_rng(5)
    )
    assert points.tolist() == [1.0] * 3
    assert values.tolist() == [0.0] * 3


def elliptical_pairs(move, seed, count=4000):
    """Exact draws of a normal posterior and where one elliptical move takes them: both have the same distribution."""
    rng = np.random.default_rng(seed)
    prior, noise, seen = np.array([1.0, 2.0, 0.5]), np.array([0.7, 0.5, 2.0]), np.array([0.8, -1.5, 0.3])
    variance = 1 / (1 / prior**2 + 1 / noise**2)
    mean = variance * seen / noise**2

    def log_likelihood(x, chains):
        return -0.5 * np.sum(((x - seen) / noise) ** 2, axis=1)

    start = mean + np.sqrt(variance) * rng.standard_normal((count, 3))
    draws = prior * rng.standard_normal((count, 3))
    ends, values = move(log_likelihood, start, draws, rng, log_likelihood(start, None))
    np.testing.assert_allclose(values, log_likelihood(ends, None))
    return (ends - mean) / np.sqrt(variance)


def smallest_p(ends):
    return min(kstest(ends[:, j], "norm").pvalue for j in range(ends.shape[1]))


def test_an_elliptical_move_keeps_the_posterior():
    assert smallest_p(elliptical_pairs(slice_sampler.elliptical_slice, seed=3)) > 1e-3


def test_elliptical_moves_that_are_wrong_are_caught():
    def wide_prior(log_likelihood, points, draws, rng, here):
        return slice_sampler.elliptical_slice(log_likelihood, points, 2 * draws, rng, here)

    def no_level(log_likelihood, points, draws, rng, here):
        angle = rng.uniform(0, 2 * np.pi, (len(points), 1))
        candidates = points * np.cos(angle) + draws * np.sin(angle)
        return candidates, log_likelihood(candidates, None)

    def half_circle(log_likelihood, points, draws, rng, here):
        """Looks only on one side of the point: the angle is never negative, and never shrinks from there."""
        found, level = points.copy(), here - rng.exponential(size=len(points))
        for i in range(len(points)):
            angle = rng.uniform(0, np.pi / 2)
            while True:
                found[i] = points[i] * np.cos(angle) + draws[i] * np.sin(angle)
                if log_likelihood(found[i : i + 1], None)[0] > level[i]:
                    break
                angle *= rng.random()
        return found, log_likelihood(found, None)

    for mutant in (half_circle, wide_prior, no_level):
        assert smallest_p(elliptical_pairs(mutant, seed=3)) < 1e-4, mutant.__name__


def test_an_elliptical_chain_may_not_stand_where_the_likelihood_is_zero():
    with pytest.raises(ValueError, match="zero density"):
        slice_sampler.elliptical_slice(
            lambda x, chains: np.full(len(x), -np.inf),
            np.zeros((1, 1)),
            np.ones((1, 1)),
            np.random.default_rng(0),
            np.array([-np.inf]),
        )
