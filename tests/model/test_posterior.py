"""The fast algebra equals a dense Gaussian process of all observations."""

from __future__ import annotations

import numpy as np
import pytest

from .problems import Problem

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
        compare(Problem(seed=(block, seed), q=1 + seed % 3))


@pytest.mark.parametrize("block", range(3))
def test_equals_the_dense_twin_with_gaps(block):
    for seed in range(10):
        compare(Problem(seed=(block, seed, 1), gaps=True))


@pytest.mark.parametrize("block", range(3))
def test_equals_the_dense_twin_on_thinned_curves(block):
    for seed in range(10):
        compare(Problem(seed=(block, seed, 2), thinned=True))
