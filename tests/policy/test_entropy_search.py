"""The paper's entropy search against brute force: a dense Gaussian process and quadrature over outcomes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from freezethaw.model.forecaster import Forecaster
from freezethaw.model.loss_units import Observations
from freezethaw.model.sequential import initialise
from freezethaw.model.specification import Geometry
from freezethaw.policy import entropy_search, improvement_rate
from freezethaw.policy.acquisition import Options
from freezethaw.policy.entropy_search import (
    NEW,
    Joint,
    distinct_maxima,
    entropy,
    entropy_reductions,
    fill_basket,
    joint_of,
    p_min,
)
from tests.model.dense import Dense


def forecaster(seed=0, runs=4, model="paper"):
    rng = np.random.default_rng(seed)
    configs = rng.random((runs, 2))
    curves = tuple(
        tuple(x[0] + 1.0 / np.arange(2, 4 + i) + 0.05 * rng.standard_normal(2 + i)) for i, x in enumerate(configs)
    )
    observations = Observations(configs, curves, Geometry.plain(2), 20.0)
    return Forecaster.condition(initialise(observations, model, rng), observations)


def options(found, candidates=3, seed=1):
    count = len(found.posterior.curves)
    fresh = np.random.default_rng(seed).random((candidates, 2))
    one, other = np.ones(count), np.ones(candidates)
    return Options(np.arange(count), fresh, 20, one, other, 0 * one, 0 * other)


def dense_joint(posterior, old, new):
    """Asymptotes and next losses of old runs and new configurations from the dense twin."""
    v = posterior.values
    dense = Dense(
        basis=lambda t: np.ones((len(t), 1)),
        residual=lambda t, u: (v["beta"] / (t[:, None] + u[None, :] + v["beta"])) ** v["alpha"],
        noise=v["noise"],
        means=np.array([v["mean"]]),
        variances=np.array([v["level.variance"]]),
        mean_variances=np.zeros(1),
        lengths=[v["length.0"], v["length.1"]],
        warps=[(v["warp.a.0"], v["warp.b.0"]), (v["warp.a.1"], v["warp.b.1"])],
        scales={},
    )
    seen, y = [], []
    for run in range(len(posterior.curves)):
        t, losses = posterior.curves.observed(run)
        seen += [(posterior.curves.configs[run], e, run) for e in t]
        y += list(losses)
    dense.condition(seen, np.array(y))
    ends, nexts = [], []
    for run in old:
        x = posterior.curves.configs[run]
        ends.append((x, np.inf, run))
        nexts.append((x, posterior.curves.last_epochs[run] + 1.0, run))
    for place, config in enumerate(new):
        ends.append((config, np.inf, -1 - place))
        nexts.append((config, 1.0, -1 - place))
    mean, covariance = dense.predict([*ends, *nexts])
    return mean, covariance, dense.condition_number


@pytest.mark.parametrize("seed", range(6))
def test_the_joint_of_asymptotes_and_next_losses_equals_the_dense_twin(seed):
    found = forecaster(seed)
    old, new = np.array([2, 0]), options(found).candidates[[1]]
    posterior = found.posterior.sample(0)
    mean, covariance, cond = dense_joint(posterior, old, new)
    joint = joint_of(posterior, old, new)
    tolerance = 100 * np.finfo(float).eps * cond * np.abs(covariance).max()
    np.testing.assert_allclose(joint.mean, mean[:3], atol=tolerance + 1e-12)
    np.testing.assert_allclose(joint.covariance, covariance[:3, :3], atol=tolerance + 1e-12)
    np.testing.assert_allclose(joint.cross, covariance[:3, 3:], atol=tolerance + 1e-12)
    noise = posterior.values["noise"]
    np.testing.assert_allclose(joint.loss_variance, np.diag(covariance)[3:] + noise, atol=tolerance + 1e-12)


def two_members(rng):
    A = rng.standard_normal((4, 4))
    full = A @ A.T + 0.1 * np.eye(4)  # (f_1, f_2, y_1, y_2)
    return Joint(rng.standard_normal(2), full[:2, :2], full[:2, 2:], np.diag(full)[2:])


def brute_force(joint):
    """For two members P_min is one normal integral; outcomes by a fine rule."""

    def entropy_at(mean, covariance):
        spread = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
        p = norm.cdf((mean[1] - mean[0]) / spread)
        return float(entropy(np.array([p, 1 - p])))

    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    now = entropy_at(joint.mean, joint.covariance)
    found = []
    for k in range(2):
        step = joint.cross[:, k] / np.sqrt(joint.loss_variance[k])
        after = joint.covariance - np.outer(step, step)
        found.append(
            now - sum(w * entropy_at(joint.mean + x * step, after) for x, w in zip(nodes, weights, strict=True))
        )
    return np.array(found)


@pytest.mark.parametrize("seed", range(8))
def test_reductions_equal_brute_force(seed):
    rng = np.random.default_rng(seed)
    joint = two_members(rng)
    draws = rng.standard_normal((200_000, 2))
    np.testing.assert_allclose(entropy_reductions(joint, draws), brute_force(joint), atol=0.02)


def test_the_wrong_sign_would_be_caught():
    """As printed, the criterion is an increase: its winner would differ from brute force's."""
    differs = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        joint = two_members(rng)
        found = entropy_reductions(joint, rng.standard_normal((20_000, 2)))
        differs += int(np.argmin(found) != np.argmax(brute_force(joint)))
    assert differs >= 6


@pytest.mark.parametrize("model", ["paper", "drift"])
def test_an_observation_never_adds_entropy(model):
    for seed in range(5):
        found = forecaster(seed, runs=6, model=model)
        may = options(found)
        basket = fill_basket(found, may, np.random.default_rng(0))
        draws = np.random.default_rng(0).standard_normal((20_000, len(basket.allowed)))
        for posterior in map(found.posterior.sample, range(3)):
            reductions = entropy_reductions(joint_of(posterior, basket.old, may.candidates[basket.new]), draws)
            assert reductions.min() > -0.03  # Monte-Carlo error


def test_p_min_is_a_distribution_and_prefers_the_lower():
    p = p_min(np.array([0.0, 1.0, 5.0]), np.diag([0.5, 0.5, 0.5]), np.random.default_rng(0).standard_normal((5000, 3)))
    assert p.sum() == pytest.approx(1.0)
    assert p[0] > p[1] > p[2]


def test_finished_and_leased_runs_compete_but_are_not_chosen():
    found = forecaster(runs=5)
    everyone = options(found)
    limited = replace(everyone, runs=np.array([3]), score_factor_old=np.ones(1), switch_cost_old=np.zeros(1))
    basket = fill_basket(found, limited, np.random.default_rng(0))
    assert set(basket.old) == set(range(5))
    decided = entropy_search.choose(found, limited, np.random.default_rng(0))
    assert decided.winner.run in (3, None)
    refused = [e for e in decided.basket if e.run not in (3, None)]
    assert len(refused) == 4
    assert all(e.score == -np.inf for e in refused)


def test_with_switch_costs_the_reduction_is_divided_by_the_epochs_paid():
    """Continuing the current run costs nothing; any other is granted several epochs and pays the switch cost."""
    found = forecaster(runs=5)
    free = options(found)
    cost = np.where(np.arange(5) == 2, 0.0, 8.0)
    expensive = replace(free, switch_cost_old=cost, switch_cost_new=np.full(3, 8.0))
    cheap, paid = (entropy_search.choose(found, may, np.random.default_rng(0)) for may in (free, expensive))
    free_entries = {(e.run, e.candidate): e for e in cheap.basket}
    assert {e.granted for e in cheap.basket} == {1}
    for entry in paid.basket:
        same = free_entries[entry.run, entry.candidate]
        if entry.run == 2:
            assert entry == same
        else:
            assert entry.granted == 4  # sqrt(2 * 8)
            assert entry.score == pytest.approx(same.score / (4 + 8))


def test_improvement_is_on_the_best_loss_in_hand_not_on_the_lowest_asymptote():
    """A run that is still improving fast has a high improvement, though no run is expected to beat its asymptote."""
    t = np.arange(1.0, 7.0)
    curves = (tuple(2.0 / t), *(tuple(5.0 + 0.01 * i + 0.0 * t) for i in range(4)))
    observations = Observations(np.random.default_rng(0).random((5, 2)), curves, Geometry.plain(2), 20.0)
    found = Forecaster.condition(initialise(observations, "drift", np.random.default_rng(0)), observations)
    may = options(found)
    finished = replace(may, runs=np.arange(1, 5), score_factor_old=np.ones(4), switch_cost_old=np.zeros(4))
    by_entropy, by_rate, over = (
        policy.choose(found, allowed, np.random.default_rng(0))
        for policy, allowed in ((entropy_search, may), (improvement_rate, may), (entropy_search, finished))
    )
    of_run_0 = [next(e for e in decided.basket if e.run == 0) for decided in (by_entropy, by_rate)]
    assert of_run_0[0].improvement > 0.5 * of_run_0[1].improvement
    assert by_entropy.incumbents == pytest.approx(by_rate.incumbents)
    assert next(e for e in over.basket if e.run == 0).improvement == 0.0


def test_where_many_are_compared_one_sample_finds_those_that_all_samples_would(monkeypatch):
    found = forecaster(runs=24, model="drift")
    many = options(found, candidates=80)
    monkeypatch.setattr(entropy_search, "COMPARED_OLD", 15)
    monkeypatch.setattr(entropy_search, "SCREENED_OLD", 20)
    quick = [fill_basket(found, many, np.random.default_rng(seed)) for seed in range(20)]
    for name in ("COMPARED_OLD", "COMPARED_NEW", "SCREENED_OLD"):
        monkeypatch.setattr(entropy_search, name, 1000)
    whole = fill_basket(found, many, np.random.default_rng(0))
    assert all(len(basket.old) == entropy_search.OLD for basket in quick)
    assert np.mean([len(set(whole.old[:5]) & set(basket.old)) for basket in quick]) >= 4
    best_new = [basket.improvements[len(basket.old) :].max() for basket in (whole, *quick)]
    assert np.mean(best_new[1:]) >= 0.8 * best_new[0]
    assert np.mean([basket.improvements.max() for basket in quick]) >= 0.9 * whole.improvements.max()


def test_of_many_runs_one_that_may_be_chosen_is_always_in_the_basket(monkeypatch):
    found = forecaster(runs=24)
    worst = int(np.argmax([min(found.posterior.curves.observed(run)[1]) for run in range(24)]))
    limited = replace(options(found), runs=np.array([worst]), score_factor_old=np.ones(1), switch_cost_old=np.zeros(1))
    monkeypatch.setattr(entropy_search, "COMPARED_OLD", 12)
    monkeypatch.setattr(entropy_search, "SCREENED_OLD", 15)
    basket = fill_basket(found, limited, np.random.default_rng(0))
    assert worst in basket.old
    assert basket.allowed.sum() == 1 + len(basket.new)


def test_new_members_are_weakly_correlated():
    found = forecaster()
    line = np.column_stack([np.linspace(0, 1, 200), np.full(200, 0.5)])
    score = np.exp(-((line[:, 0] - 0.3) ** 2) / 0.01) + 0.9 * np.exp(-((line[:, 0] - 0.8) ** 2) / 0.01)
    picked = distinct_maxima(score, found.posterior.sample(0), line, NEW)
    assert len(set(picked)) == len(picked)
    assert abs(line[picked[0], 0] - 0.3) < 0.01
    inputs = found.posterior.sample(0).new_inputs(line[picked])
    from freezethaw.model.correlation import correlation

    between = correlation(inputs, inputs)[np.triu_indices(len(picked), 1)]
    assert (between < entropy_search.NEIGHBOUR).all()


def test_the_square_root_of_a_covariance_does_not_depend_on_the_signs_of_eigenvectors():
    """Permuting the members permutes it; a factor made of eigenvectors alone has arbitrary signs and orders."""
    A = np.random.default_rng(0).standard_normal((6, 4))
    C, order = A @ A.T, np.random.default_rng(1).permutation(6)
    root = entropy_search.square_root(C)
    np.testing.assert_allclose(root @ root.T, C, atol=1e-12)
    np.testing.assert_allclose(
        entropy_search.square_root(C[np.ix_(order, order)]), root[np.ix_(order, order)], atol=1e-7
    )
