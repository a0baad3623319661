"""The strongest single test of the model: the evidence is the product of one-step-ahead predictive densities.

Evidence and prediction take different roads through the algebra; here they must meet. Then what must hold of any model:
the order of the runs does not matter, a run with no epoch changes nothing, and shifting losses shifts forecasts.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freezethaw.model import specification
from freezethaw.model.curves import Curves
from freezethaw.model.inference import Target
from freezethaw.model.posterior import condition
from freezethaw.model.specification import Geometry

from .dense import Dense
from .problems import BASES, Problem, dense_basis, draw_values, evidence_at

EPS = np.finfo(float).eps


class Small:
    """The first few epochs of a few runs of a random problem: every loss can be revealed on its own."""

    def __init__(self, seed, q=None, gaps=False, runs=5, epochs=6):
        problem = Problem(seed, q=q, gaps=gaps)
        self.specification, self.values, self.rng = problem.specification, problem.values, problem.rng
        self.geometry = Geometry.plain(problem.dimensions)
        self.configs = problem.curves.configs[:runs]
        observed = [problem.curves.observed(run) for run in range(len(self.configs))]
        counts = self.rng.integers(0, epochs + 1, len(observed))
        counts[0] = epochs
        self.epochs = [t[:n] for (t, _), n in zip(observed, counts, strict=True)]
        self.losses = [y[:n] for (_, y), n in zip(observed, counts, strict=True)]
        self.losses = [y + 0.1 * self.rng.standard_normal(len(y)) for y in self.losses]
        dense = problem.dense()
        points = [(x, e, run) for run, x in enumerate(self.configs) for e in self.epochs[run]]
        self.y = np.concatenate(self.losses)
        if points:
            dense.condition(points, self.y)
        self.condition_number = dense.condition_number if points else 1.0
        self.spread = 1.0 + np.abs(self.y).max(initial=0.0)

    def posterior(self, counts=None, order=None, values=None, losses=None):
        """Conditioned on the first `counts` losses of each of the runs in this order."""
        order = range(len(self.configs)) if order is None else order
        counts = [len(y) for y in self.losses] if counts is None else counts
        losses = self.losses if losses is None else losses
        curves = Curves.of(
            self.configs[np.array(order, dtype=int)],
            [losses[r][: counts[r]] for r in order],
            [self.epochs[r][: counts[r]] for r in order],
        )
        return condition(curves, self.specification, values or self.values, self.geometry)

    def close(self, got, expected, scale=None):
        """Within 100 eps times the condition number, relative to the spread of the losses or to `scale`."""
        tolerance = 100 * EPS * self.condition_number * (self.spread if scale is None else scale)
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)


def log_normal(y, mean, variance):
    return -0.5 * ((y - mean) ** 2 / variance + math.log(2 * math.pi * variance))


def one_step_ahead(small):
    """Sum of the log predictive densities, the losses revealed one at a time; runs interleaved at random."""
    rng = small.rng
    total = 0.0
    left = rng.permutation(np.repeat(np.arange(len(small.losses)), [len(y) for y in small.losses]))
    counts = [0] * len(small.losses)
    for run in left.tolist():
        at = small.epochs[run][counts[run]]
        if counts[run] == 0 and rng.random() < 0.5:
            others = [r for r in range(len(counts)) if r != run]  # this run is not among the curves at all
            prediction = small.posterior(counts, others).new_losses(small.configs[run], [at])
        else:
            prediction = small.posterior(counts).losses(run, [at])
        total += log_normal(small.losses[run][counts[run]], prediction.mean[0], prediction.variance[0])
        counts[run] += 1
    return total


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("q", [1, 2, 3])
def test_the_evidence_is_the_product_of_one_step_ahead_densities(q, gaps):
    for seed in range(10):
        small = Small((q, seed), q=q, gaps=gaps)
        total = one_step_ahead(small)
        small.close(small.posterior().log_evidence, total, len(small.y) + abs(total))


def test_the_chain_rule_holds_for_the_paper_at_draws_from_its_prior():
    rng = np.random.default_rng(0)
    paper, geometry = specification.paper((-1.0, 1.0)), Geometry.plain(2)
    for _ in range(20):
        small = Small(int(rng.integers(1000)), q=1)
        small.specification, small.geometry = paper, geometry
        small.configs = rng.random((len(small.configs), 2))
        small.values = draw_values(paper.parameters(geometry), rng) | {"noise": 10 ** rng.uniform(-4, 0)}
        small.condition_number = len(small.y) * (1 + small.values["level.variance"]) / small.values["noise"]
        total = one_step_ahead(small)
        log_evidence = small.posterior().log_evidence
        small.close(log_evidence, total, len(small.y) + abs(total))
        curves = Curves.of(small.configs, small.losses, small.epochs)
        small.close(evidence_at(Target(curves, paper, geometry), small.values), log_evidence, abs(log_evidence))


class Silent:
    """A posterior that forgets the noise of what is measured."""

    def __init__(self, posterior):
        self.posterior = posterior

    def losses(self, run, epochs):
        return self.posterior.losses(run, epochs, noise=False)

    def new_losses(self, config, epochs):
        return self.posterior.new_losses(config, epochs, noise=False)


def test_predictions_without_the_noise_would_break_the_chain():
    small = Small((1, 0), q=1)
    honest, small.posterior = small.posterior, lambda *args: Silent(honest(*args))
    total = one_step_ahead(small)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        small.close(honest().log_evidence, total, len(small.y) + abs(total))


# --- what must always hold -------------------------------------------------------------------------------------------

seeds = st.integers(0, 10_000)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_permuting_runs_permutes_answers(seed):
    small = Small(seed)
    order = small.rng.permutation(len(small.configs)).tolist()
    straight, permuted = small.posterior(), small.posterior(order=order)
    small.close(permuted.log_evidence, straight.log_evidence, len(small.y) + abs(straight.log_evidence))
    new = small.rng.random(small.configs.shape[1])
    a, b = straight.asymptotes(order, new), permuted.asymptotes(range(len(order)), new)
    small.close(b.mean, a.mean)
    small.close(b.covariance, a.covariance)
    for place, run in enumerate(order):
        a, b = straight.losses(run, [3.0, 40.0]), permuted.losses(place, [3.0, 40.0])
        small.close(b.mean, a.mean)
        small.close(b.covariance, a.covariance)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_a_run_with_no_epoch_changes_nothing(seed):
    small = Small(seed)
    without = small.posterior()
    new = small.rng.random(small.configs.shape[1])
    curves = Curves.of(np.vstack([new, small.configs]), [[], *small.losses], [[], *small.epochs])
    extended = condition(curves, small.specification, small.values, small.geometry)
    assert extended.log_evidence == pytest.approx(without.log_evidence, rel=1e-12)
    runs = range(len(small.configs))
    a, b = without.asymptotes(runs), extended.asymptotes([r + 1 for r in runs])
    small.close(b.mean, a.mean)
    small.close(b.covariance, a.covariance)
    a, b = without.new_losses(new, [1.0, 9.0]), extended.losses(0, [1.0, 9.0])
    small.close(b.mean, a.mean)
    small.close(b.covariance, a.covariance)


@settings(max_examples=25, deadline=None)
@given(seeds, st.floats(-5.0, 5.0))
def test_shifting_losses_and_mean_shifts_forecasts(seed, shift):
    """By the same amount at every epoch; with a tilt, by as much as the basis function of the level says."""
    small = Small(seed)
    v, horizon = small.values, small.specification.horizon
    basis = dense_basis(1, v["alpha"], v["beta"], horizon, v.get("tilt", 0.0))

    def shifted(t):
        return shift * basis(t)[:, 0]

    here = small.posterior()
    losses = [y + shifted(t[: len(y)]) for t, y in zip(small.epochs, small.losses, strict=True)]
    moved = small.posterior(values={**v, "mean": v["mean"] + shift}, losses=losses)
    scale = small.spread + abs(shift)
    small.close(moved.log_evidence, here.log_evidence, (len(small.y) + abs(here.log_evidence)) * scale)
    a, b = here.losses(0, [2.0, 30.0]), moved.losses(0, [2.0, 30.0])
    small.close(b.mean, a.mean + shifted([2.0, 30.0]), scale)
    small.close(b.covariance, a.covariance, scale)
    new = small.rng.random(small.configs.shape[1])
    expected = here.asymptotes(configs=new).mean + shifted([horizon])
    small.close(moved.asymptotes(configs=new).mean, expected, scale)


def test_observing_where_it_was_predicted_does_not_move_the_mean_and_narrows_the_variance():
    for seed in range(10):
        small = Small(seed)
        before = small.posterior()
        at = np.array([10.0, 20.0])
        prediction = before.losses(0, [7.5, *at])
        small.losses[0] = np.append(small.losses[0], prediction.mean[0])
        small.epochs[0] = np.append(small.epochs[0], 7.5)
        if small.epochs[0][-2] >= 7.5:
            continue
        after = small.posterior().losses(0, at)
        small.close(after.mean, prediction.mean[1:])
        assert np.all(after.variance <= prediction.variance[1:] + 100 * EPS * small.condition_number)


@pytest.mark.parametrize("q", [1, 2, 3])
@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_an_out_of_sample_prediction_equals_that_with_the_run_among_the_curves(q, length):
    for seed in range(5):
        small = Small((q, seed), q=q)
        config = small.rng.random(small.configs.shape[1])
        t = np.arange(1.0, length + 1.0)
        y = small.rng.standard_normal() + 0.3 * small.rng.standard_normal(length)
        later = np.array([1.5, 6.0, 7.0, 50.0])
        found = small.posterior().out_of_sample(config, t, y, later)
        curves = Curves.of(np.vstack([small.configs, config]), [*small.losses, y], [*small.epochs, t])
        included = condition(curves, small.specification, small.values, small.geometry)
        expected = included.losses(len(small.configs), later)
        # the losses of that run may make the joint covariance worse than the curves' alone
        scale = small.spread * (1 + np.abs(y).max(initial=0.0)) / min(small.values["noise"] * 1e3, 1.0)
        small.close(found.mean, expected.mean, scale)
        small.close(found.covariance, expected.covariance, scale)


# --- scales of runs --------------------------------------------------------------------------------------------------


def drift_problem(seed):
    """Curves under the default model, one of them constant; and its dense twin at given scales."""
    rng = np.random.default_rng(seed)
    horizon, dimensions, runs = 30.0, 2, 6
    model = specification.luck if seed % 2 else specification.drift
    spec, geometry = model(dimensions, horizon), Geometry.plain(dimensions)
    values = draw_values(spec.parameters(geometry), rng)
    values["noise"] = 10 ** rng.uniform(-4, -1)
    configs = rng.random((runs, dimensions))
    losses = [rng.standard_normal() + (0.3 * rng.standard_normal(n)).cumsum() for n in rng.integers(0, 10, runs)]
    losses[0] = np.full(8, 0.4)
    curves = Curves.of(configs, losses)

    def smooth(t, u):
        r2 = ((np.log(t)[:, None] - np.log(u)[None, :]) / values["smooth.length"]) ** 2
        matern = (1 + np.sqrt(5 * r2) + 5 / 3 * r2) * np.exp(-np.sqrt(5 * r2))
        return values["smooth.variance"] * matern

    def dense(scales):
        return Dense(
            basis=dense_basis(4, values["alpha"], values["beta"], horizon, values["tilt"]),
            residual=smooth,
            noise=values["noise"],
            means=np.zeros(4),
            variances=np.array([values[f"{name}.variance"] for name in BASES[4]]),
            mean_variances=np.array([1.0, 1.0, 0.1, 0.02]),
            lengths=[values[f"length.{d}"] for d in range(dimensions)],
            warps=[(values[f"warp.a.{d}"], values[f"warp.b.{d}"]) for d in range(dimensions)],
            scales=scales,
            luck=values.get("luck", 0.0),
        )

    return condition(curves, spec, values, geometry), dense, rng


@pytest.mark.parametrize("seed", range(12))
def test_with_scales_of_runs_predictions_are_those_of_the_dense_twin_at_the_plug_in_scales(seed):
    posterior, dense, rng = drift_problem(seed)
    curves, found = posterior.curves, posterior.pseudo_observations.scales
    plug_in = {run: float(found.plug_in[run]) for run in range(len(curves)) if curves.counts[run]}
    twin = dense(plug_in)
    seen = [(curves.configs[run], e, run) for run in range(len(curves)) for e in curves.observed(run)[0]]
    y = np.concatenate([curves.observed(run)[1] for run in range(len(curves))])
    evidence = twin.condition(seen, y)
    tolerance = 100 * EPS * twin.condition_number * (1 + np.abs(y).max())

    at = np.array([1.0, 4.5, 12.0, 30.0])
    for run in range(len(curves)):
        got = posterior.losses(run, at)
        mean, covariance = twin.predict([(curves.configs[run], e, run) for e in at], noise=True)
        np.testing.assert_allclose(got.mean, mean, rtol=0, atol=tolerance)
        scaled = got.shared + plug_in.get(run, 1.0) * got.residual
        np.testing.assert_allclose(scaled, covariance, rtol=0, atol=tolerance * (1 + np.abs(covariance).max()))
    new = rng.random(2)
    got = posterior.new_losses(new, at)
    mean, covariance = twin.predict([(new, e, -1) for e in at], noise=True)
    np.testing.assert_allclose(got.mean, mean, rtol=0, atol=tolerance)
    scaled = got.shared + got.residual
    np.testing.assert_allclose(scaled, covariance, rtol=0, atol=tolerance * (1 + np.abs(covariance).max()))

    # the evidence: what residuals say of themselves at the plug-in scales is exchanged for the mixture's density
    rss, k = posterior.summary.residuals, posterior.summary.freedoms
    gaussian = -0.5 * (k * np.log(2 * np.pi * found.plug_in) + rss / found.plug_in)
    expected = evidence - gaussian.sum() + found.log_density.sum()
    scale = len(y) + abs(evidence) + np.abs(gaussian).sum() + np.abs(found.log_density).sum()
    np.testing.assert_allclose(posterior.log_evidence, expected, rtol=0, atol=tolerance * scale)


def test_a_constant_curve_is_stalled_and_the_others_are_not():
    for seed in range(12):
        posterior, _, _ = drift_problem(seed)
        stalled = posterior.pseudo_observations.scales.stalled
        assert stalled[0] > 0.9
        assert np.all(stalled[posterior.curves.counts >= 6][1:] < 0.1)
        assert posterior.losses(0, [9.0]).scales.weights[1, 0] > 0.8  # still stalled at the next epoch
