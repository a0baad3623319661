"""The sampler of every model: without losses it keeps the prior, and with losses it knows the evidence of its values.

Without losses the posterior is the prior. Chains begin with exact draws, so no warm-up is needed: after one sweep they
must have the same distribution. The moves are those that studies use, elliptical ones included. What losses add to the
density of a move is the evidence that the sampler holds, which must be that of its values after every move. The mutants
below are the mistakes these tests are for.

The priors are on both sides of the first test, so they are compared with numbers written out here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import kstest, norm

from freezethaw.model import inference
from freezethaw.model.curves import Curves
from freezethaw.model.inference import Sampler, Target, draw_prior, moves
from freezethaw.model.loss_units import LossUnits, Observations, specify
from freezethaw.model.priors import Horseshoe, LogNormal, Normal, Uniform
from freezethaw.model.specification import Geometry, drift, luck, paper

KEPT, CAUGHT = 1e-3, 1e-6
GEOMETRY = Geometry((0, 1, 1), (True, True, False))  # two columns of one choice share a length scale
MODELS = {"paper": paper((-1.0, 2.0)), "drift": drift(2, 20.0), "luck": luck(2, 20.0)}
CONFIGS = np.array([[0.1, 0.8, 0.0], [0.9, 0.3, 1.0], [0.15, 0.7, 0.0]])
LOSSES = ([1.5, 0.5, 0.2], [-1.0, -1.2], [])
CHAINS = 3000
RIGHT, RIGHT_ELLIPSE = Sampler, inference.elliptical_slice


# --- the priors, written out -----------------------------------------------------------------------------------------


def test_the_priors_of_the_paper_are_those_of_its_appendix():
    """Log-normal(0, 1) for theta_0, alpha, beta and the warps; uniform(0, 10) for length scales; a horseshoe of 0.1."""
    found = {p.name: p.prior for p in paper((-0.7, 1.9)).parameters(Geometry.plain(1))}
    assert found == {
        "level.variance": LogNormal(0.0, 1.0, 0.0),
        "mean": Uniform(-0.7, 1.9),
        "alpha": LogNormal(0.0, 1.0, 0.0),
        "beta": LogNormal(0.0, 1.0, 0.0),
        "noise": Horseshoe(0.1, 1e-8),
        "length.0": Uniform(0.0, 10.0),
        "warp.a.0": LogNormal(0.0, 1.0, 0.0),
        "warp.b.0": LogNormal(0.0, 1.0, 0.0),
    }


def test_the_mean_of_the_papers_model_lies_within_the_losses():
    """Losses 1, 2 and 3 are -sqrt(1.5), 0 and sqrt(1.5) in model units; no value outside has any density."""
    observations = Observations(np.array([[0.5]]), ((3.0, 2.0, 1.0),), Geometry.plain(1), 10.0)
    prior = specify("paper", LossUnits.fit(observations, "paper"), Geometry.plain(1), 10.0).priors["mean"]
    assert [prior.lower, prior.upper] == pytest.approx([-math.sqrt(1.5), math.sqrt(1.5)])


def test_the_priors_of_the_default_model_are_these():
    found = {p.name: p.prior for p in luck(5, 50.0).parameters(Geometry.plain(5))}
    assert found["tilt"] == Normal(0.0, 0.5)
    log_normal = {  # location and scale of the logarithm, and the floor
        "level.variance": (-0.2107210313, 0.8, 0.0),
        "drop.variance": (-0.4462871026, 1.0, 0.0),
        "drift.variance": (-3.2188758249, 1.4, 0.0),
        "late.variance": (-5.0514572886, 3.0, 0.0),
        "freedom": (1.3862943611, 0.7, 0.0),
        "alpha": (0.0, 0.7, 0.0),
        "beta": (0.6931471806, 1.0, 0.0),
        "smooth.variance": (-3.2188758249, 2.0, 0.0),
        "smooth.length": (0.4054651081, 0.7, 0.0),
        "noise": (-7.0131157946, 3.0, 1e-6),
        "luck": (-2.3025850930, 1.5, 0.0),
        "length.0": (-0.1012621319, 1.0, 0.0),
        "warp.a.0": (0.0, 0.5, 0.0),
        "warp.b.0": (0.0, 0.5, 0.0),
    }
    for name, numbers in log_normal.items():
        prior = found.pop(name)
        assert isinstance(prior, LogNormal)
        assert (prior.location, prior.scale, prior.floor) == pytest.approx(numbers, abs=1e-9), name
    assert {name.rstrip("01234") for name in found} == {"tilt", "length.", "warp.a.", "warp.b."}
    specification = drift(5, 50.0)
    assert specification.mean_variance == {"level": 1.0, "drop": 1.0, "drift": 0.1, "late": 0.02}
    assert {p.name for p in specification.parameters(Geometry.plain(5))} == {
        p.name for p in luck(5, 50.0).parameters(Geometry.plain(5))
    } - {"luck"}
    assert specification.scale_model({"noise": 0.1, "freedom": 3.0}).freedom == 5.0


# --- one sweep without losses, and the evidence with them -------------------------------------------------------------


def score(prior, x):
    """The distribution function of a prior; of the horseshoe, which has none in closed form, that of many draws."""
    if isinstance(prior, Normal):
        return norm.cdf(x, prior.location, prior.scale)
    if isinstance(prior, Uniform):
        return (x - prior.lower) / (prior.upper - prior.lower)
    if isinstance(prior, Horseshoe):
        draws = np.sort(prior.sample(np.random.default_rng(99), 400_000))
        return np.searchsorted(draws, x) / len(draws)
    below = norm.cdf((math.log(prior.floor) - prior.location) / prior.scale) if prior.floor else 0.0
    return (norm.cdf((np.log(x) - prior.location) / prior.scale) - below) / (1 - below)


def swept_prior(model, seed=1):
    """p-values, by hyperparameter, that one sweep without losses keeps draws from the prior what they are."""
    rng = np.random.default_rng(seed)
    target = Target(Curves.of(CONFIGS, [[], [], []]), MODELS[model], GEOMETRY)
    sampler = inference.Sampler(target, draw_prior(target.parameters, rng, CHAINS))
    before = dict(sampler.values)
    sampler.advance(moves(target.parameters), rng)
    assert all((sampler.values[name] != before[name]).mean() > 0.9 for name in before)
    return {p.name: kstest(score(p.prior, sampler.values[p.name]), "uniform").pvalue for p in target.parameters}


def worst(p_values):
    """The smallest p-value, times how many there are."""
    return min(p_values.values()) * len(p_values)


@pytest.mark.parametrize("model", MODELS)
def test_without_losses_samples_remain_draws_from_the_prior(model):
    found = swept_prior(model)
    assert worst(found) > KEPT, found


def held_evidence(model, seed=3):
    """After each move: the log evidence that the sampler holds, and that of its values from scratch."""
    rng = np.random.default_rng(seed)
    target = Target(Curves.of(CONFIGS, LOSSES), MODELS[model], GEOMETRY)
    sampler = inference.Sampler(target, draw_prior(target.parameters, rng, 20))
    every = moves(target.parameters)
    for i in rng.permutation(2 * len(every)):
        sampler.advance([every[i % len(every)]], rng)
        yield sampler.log_evidence, target.log_evidence(sampler.values)


@pytest.mark.parametrize("model", MODELS)
def test_the_evidence_that_a_sampler_holds_is_that_of_its_values(model):
    """Each move reuses what the last ones computed."""
    for held, fresh in held_evidence(model):
        np.testing.assert_allclose(held, fresh, rtol=1e-9, atol=1e-9)


def test_every_hyperparameter_is_moved_and_length_scales_of_the_default_model_with_their_warps():
    for model, specification in MODELS.items():
        parameters = specification.parameters(GEOMETRY)
        assert [p for move in moves(parameters) for p in move] == list(parameters)
        assert max(len(move) for move in moves(parameters)) == (1 if model == "paper" else 3)


# --- the mutants -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WithoutJacobian:
    """A prior whose density lacks the Jacobian of the logarithm."""

    prior: object

    @property
    def scale(self):
        return getattr(self.prior, "scale", 1.0)

    def log_density(self, x):
        return self.prior.log_density(x) - np.log(x)


def changed(name, change):
    """A sampler that sees another prior of one hyperparameter."""

    class Changed(RIGHT):
        def _move_one(self, move, rng):
            super()._move_one(tuple(replace(p, prior=change(p.prior)) if p.name == name else p for p in move), rng)

        def _move_block(self, move, rng):
            super()._move_block(tuple(replace(p, prior=change(p.prior)) if p.name == name else p for p in move), rng)

    return Changed


class OldEvidence(RIGHT):
    """Forgets the evidence of what it moved to, so that the next level is that of the old values."""

    def _move_one(self, move, rng):
        before = self.log_evidence
        super()._move_one(move, rng)
        self.log_evidence = before


class OldCorrelation(RIGHT):
    """Forgets that length scales and warps have moved."""

    def _refresh(self):
        if self._moved is not None and self._moved.part != "space":
            super()._refresh()


class OldSummary(RIGHT):
    """Forgets that the parameters of time have moved."""

    def _refresh(self):
        if self._moved is not None and self._moved.part == "space":
            super()._refresh()


class OtherChains(RIGHT):
    """Judges a chain by the values of another one."""

    def _at(self, chains, new):
        return {name: v[::-1][chains] for name, v in self.values.items()} | new


def not_centred(prior):
    return replace(prior, location=0.0)


def twice_as_wide(prior):
    return replace(prior, scale=2 * prior.scale)


def wide_ellipse(log_likelihood, points, draws, rng, here):
    return RIGHT_ELLIPSE(log_likelihood, points, 1.5 * draws, rng, here)


IN_THE_PRIOR = {  # model, and the sampler
    "no Jacobian for a variance": ("drift", changed("drop.variance", WithoutJacobian)),
    "no Jacobian for freedom": ("drift", changed("freedom", WithoutJacobian)),
    "no Jacobian for the noise": ("paper", changed("noise", WithoutJacobian)),
    "no Jacobian for a length scale": ("paper", changed("length.1", WithoutJacobian)),
    "no Jacobian for luck": ("luck", changed("luck", WithoutJacobian)),
    "a tilt twice as wide": ("drift", changed("tilt", twice_as_wide)),
    "a mean out of its range": ("paper", changed("mean", lambda prior: Uniform(2 * prior.lower, 2 * prior.upper))),
    "blocks that are not centred": ("drift", changed("length.0", not_centred)),
    "one length scale of a block twice as wide": ("drift", changed("length.1", twice_as_wide)),
}


@pytest.mark.parametrize("name", IN_THE_PRIOR)
def test_a_wrong_move_is_caught_without_losses(name, monkeypatch):
    model, sampler = IN_THE_PRIOR[name]
    monkeypatch.setattr(inference, "Sampler", sampler)
    assert worst(swept_prior(model)) < CAUGHT


def test_elliptical_blocks_that_are_drawn_too_wide_are_caught_without_losses(monkeypatch):
    monkeypatch.setattr(inference, "elliptical_slice", wide_ellipse)
    assert worst(swept_prior("drift")) < CAUGHT


@pytest.mark.parametrize("sampler", [OldEvidence, OldCorrelation, OldSummary, OtherChains])
def test_stale_evidence_is_caught(sampler, monkeypatch):
    monkeypatch.setattr(inference, "Sampler", sampler)
    assert max(np.abs(held - fresh).max() for held, fresh in held_evidence("drift")) > 0.01
