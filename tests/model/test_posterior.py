"""The fast algebra equals a dense Gaussian process of all observations."""

from __future__ import annotations

import numpy as np
import pytest

from freezethaw.model.curves import Curves
from freezethaw.model.factor_updates import recondition
from freezethaw.model.posterior import condition
from freezethaw.model.predictions import coefficient_bounds, coefficients, correlations
from freezethaw.model.specification import Geometry, drift, luck

from .problems import Problem, draw_values

EPS = np.finfo(float).eps


def assert_close(got, expected, condition_number, scale):
    """Within 100 eps times the condition number of the dense covariance, relative to `scale`."""
    tolerance = 100 * EPS * max(condition_number, 1.0) * scale
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)


def compare(problem):
    fast, dense = problem.fast(), problem.dense()
    seen, y = problem.points()
    if not len(y):
        assert fast.log_evidence == 0.0
        return
    log_evidence = dense.condition(seen, y)
    cond = dense.condition_number
    assert_close(fast.log_evidence, log_evidence, cond, scale=len(y) + abs(log_evidence))

    rng, N = problem.rng, len(problem.curves)
    runs = [int(r) for r in rng.permutation(N)[:5]]
    new = rng.random((2, problem.dimensions))
    end = problem.horizon
    joint = fast.asymptotes(runs, new)
    points = [(problem.curves.configs[r], end, r) for r in runs] + [(x, end, -1 - i) for i, x in enumerate(new)]
    mean, covariance = dense.predict(points)
    spread = np.abs(y).max() + 1
    assert_close(joint.mean, mean, cond, scale=spread)
    assert_close(joint.covariance, covariance, cond, scale=np.abs(dense.covariance(points, points)).max())

    later = rng.uniform(1, 100, 4)
    for run in runs[:2]:
        losses = fast.losses(run, later)
        points = [(problem.curves.configs[run], e, run) for e in later]
        mean, covariance = dense.predict(points, noise=True)
        assert_close(losses.mean, mean, cond, scale=spread)
        assert_close(losses.covariance, covariance, cond, scale=np.abs(dense.covariance(points, points)).max())
    losses = fast.new_losses(new[0], later)
    points = [(new[0], e, -1) for e in later]
    mean, covariance = dense.predict(points, noise=True)
    assert_close(losses.mean, mean, cond, scale=spread)
    assert_close(losses.covariance, covariance, cond, scale=np.abs(dense.covariance(points, points)).max())


@pytest.mark.parametrize("block", range(10))
def test_equals_the_dense_twin(block):
    for seed in range(30):
        compare(Problem(seed=(block, seed), q=1 + seed % 4))


@pytest.mark.parametrize("block", range(3))
def test_equals_the_dense_twin_with_gaps(block):
    for seed in range(10):
        compare(Problem(seed=(block, seed, 1), gaps=True))


@pytest.mark.parametrize("block", range(3))
def test_equals_the_dense_twin_on_thinned_curves(block):
    for seed in range(10):
        compare(Problem(seed=(block, seed, 2), thinned=True))


@pytest.mark.parametrize("seed", range(20))
def test_a_renewed_posterior_equals_one_from_the_start(seed):
    """Curves grow, several at once now and then, runs come in between and go: what is kept of the factor is right."""
    rng = np.random.default_rng(seed)
    runs, dimensions, horizon = 9, 3, 30.0
    geometry = Geometry.plain(dimensions)
    spec = (luck if seed % 2 else drift)(dimensions, horizon)
    values = draw_values(spec.parameters(geometry), rng) | {"noise": 0.01}
    configs = rng.random((runs, dimensions))
    configs[5] = configs[2]  # two runs of one configuration
    losses = rng.standard_normal((runs, 30))
    lengths = rng.integers(1, 6, size=runs)
    here, found = sorted(rng.permutation(runs)[:4]), None
    for _ in range(25):
        away = [run for run in range(runs) if run not in here]
        if away and rng.random() < 0.3:
            here = sorted([*here, rng.choice(away)])
        if len(here) > 3 and rng.random() < 0.15:
            here.remove(rng.choice(here))
        grown = rng.choice(here, size=rng.integers(1, 3), replace=False)
        lengths[grown] = np.minimum(lengths[grown] + rng.integers(1, 4), 30)
        curves = Curves.of(configs[here], [losses[i, : lengths[i]] for i in here])
        found = recondition(found, curves, spec, values, geometry)
        fresh = condition(curves, spec, values, geometry)
        tolerance = 100 * EPS * np.linalg.cond(fresh.factor.lower) ** 2
        assert abs(found.log_evidence - fresh.log_evidence) <= tolerance * (abs(fresh.log_evidence) + lengths.sum())
        new = rng.random((2, dimensions))
        got, expected = found.asymptotes([0, 1], new), fresh.asymptotes([0, 1], new)
        np.testing.assert_allclose(got.mean, expected.mean, rtol=0, atol=tolerance * 10)
        np.testing.assert_allclose(got.covariance, expected.covariance, rtol=0, atol=tolerance * 10)


def test_a_posterior_of_other_curves_is_not_renewed():
    """A curve that was changed in place, other values, other configurations: nothing is kept that is wrong."""
    rng = np.random.default_rng(0)
    geometry, spec = Geometry.plain(2), drift(2, 20.0)
    values = draw_values(spec.parameters(geometry), rng) | {"noise": 0.01}
    configs, losses = rng.random((3, 2)), rng.standard_normal((3, 5))
    before = condition(Curves.of(configs, losses), spec, values, geometry)
    changed = losses + np.array([[0.0], [0.3], [0.0]])
    for curves, at in [
        (Curves.of(configs, changed), values),
        (Curves.of(configs, losses), {**values, "alpha": 2.0}),
        (Curves.of(1 - configs, losses), values),
    ]:
        fresh = condition(curves, spec, at, geometry)
        assert recondition(before, curves, spec, at, geometry).log_evidence == pytest.approx(fresh.log_evidence)
        assert fresh.log_evidence != pytest.approx(before.log_evidence)


@pytest.mark.parametrize("seed", range(10))
def test_coefficient_bounds_have_the_exact_mean_and_the_covariance_given_one_curve(seed):
    rng = np.random.default_rng(seed)
    geometry, spec = Geometry.plain(2), (luck if seed % 2 else drift)(2, 20.0)
    values = draw_values(spec.parameters(geometry), rng) | {"noise": 0.01}
    configs, losses = rng.random((6, 2)), [rng.standard_normal(n) for n in (1, 2, 3, 5, 8, 13)]
    found = condition(Curves.of(configs, losses), spec, values, geometry)
    runs, new = np.array([4, 0, 2]), rng.random((3, 2))
    correlation = correlations(found, runs, new)
    mean, bounds = coefficient_bounds(found, runs, correlation)
    exact_mean, exact = coefficients(found, correlation)
    np.testing.assert_allclose(mean, exact_mean, rtol=1e-7, atol=1e-8)
    nearest = [*runs, *correlation[3:].argmax(axis=1)]  # the run whose curve is used
    for p, (run, bound, smaller) in enumerate(zip(nearest, bounds, exact, strict=True)):
        alone = condition(Curves.of(configs[[run]], [losses[run]]), spec, values, geometry)
        of_one = coefficients(alone, correlations(alone, np.arange(1), new))[1]
        np.testing.assert_allclose(bound, of_one[max(p - 2, 0)], atol=1e-9)
        assert np.linalg.eigvalsh(bound - smaller).min() > -1e-9


@pytest.mark.parametrize("seed", range(10))
def test_coefficients_of_many_runs_are_those_of_each_by_itself(seed):
    """Many at once are computed another way than few."""
    rng = np.random.default_rng(seed)
    geometry, spec = Geometry.plain(2), (luck if seed % 2 else drift)(2, 20.0)
    values = draw_values(spec.parameters(geometry), rng) | {"noise": 0.01}
    losses = [rng.standard_normal(n) for n in (1, 0, 2, 3, 5, 8, 13)]
    before = condition(Curves.of(rng.random((7, 2)), losses), spec, values, geometry)
    losses[2] = np.append(losses[2], 0.3)  # the rows of run 2 are at the end from now on
    found = recondition(before, Curves.of(before.curves.configs, losses), spec, values, geometry)
    correlation = correlations(found, np.arange(7), rng.random((20, 2)))
    mean, covariance = coefficients(found, correlation)
    for p in range(len(correlation)):
        alone_mean, alone_covariance = coefficients(found, correlation[p : p + 1])
        np.testing.assert_allclose(mean[p], alone_mean[0], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(covariance[p], alone_covariance[0], rtol=1e-8, atol=1e-9)
