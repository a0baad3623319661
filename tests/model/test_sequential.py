"""Sequentially updated samples: as good as samples from scratch, and mapped when the loss units change."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks import tables
from benchmarks.sequential import compare, prefix, stream

from freezethaw.errors import ModelError
from freezethaw.losses import Transform
from freezethaw.model import sequential
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.model.inference import moves
from freezethaw.model.loss_units import LossUnits, Observations, gather, specify
from freezethaw.model.posterior import condition
from freezethaw.model.sequential import from_scratch, initialise, update
from freezethaw.model.specification import Geometry

needs_data = pytest.mark.skipif(tables.data_folder() is None, reason="no folder of real curves: set FREEZETHAW_DATA")


def falling(runs=6, epochs=8, seed=0, scale=1.0):
    """Curves that fall towards a level that depends on the configuration."""
    rng = np.random.default_rng(seed)
    configs = rng.random((runs, 2))
    t = np.arange(1, epochs + 1)
    curves = [scale * (x[0] + (0.5 + x[1]) / t + 0.01 * rng.standard_normal(epochs)) for x in configs]
    return Observations(configs, tuple(tuple(c) for c in curves), Geometry.plain(2), float(epochs))


@needs_data
@pytest.mark.slow
def test_updated_samples_agree_with_samples_from_scratch(monkeypatch):
    """On one table of real curves. For many: `python -m benchmarks.sequential`. Samples that are reweighted
    but never updated, the mutant here, are far outside.
    """
    name = "taskset/FixedTextRNNClassification_imdb_patch32_GRU64_avg_bs128"
    apart, among = compare(name, runs=8)
    monkeypatch.setattr(sequential, "_schedule", lambda samples, target, count, rng: (np.empty(0, dtype=int), []))
    stale, _ = compare(name, runs=8)
    print(f"updated / scratch: {apart / among:.2f}; samples that are never updated: {stale / among:.2f}")
    assert apart < 2.0 * among < stale


@pytest.mark.parametrize("model", ["paper", "drift"])
def test_weights_are_the_predictive_densities_while_the_units_stay(model, monkeypatch):
    observations = falling()
    before, after = prefix(observations, [6] * 6), prefix(observations, [6, 6, 6, 6, 6, 7])
    samples = initialise(before, model, np.random.default_rng(0))
    assert samples.units.cover(after.all_losses())
    spec = specify(model, samples.units, observations.geometry, observations.horizon)

    def evidence(seen, values):
        return condition(gather(seen, samples.units.transform), spec, values, seen.geometry).log_evidence

    gains = np.array([evidence(after, s) - evidence(before, s) for s in samples.values])
    monkeypatch.setattr(sequential, "_schedule", lambda samples, target, count, rng: (np.empty(0, dtype=int), []))
    updated, _ = update(samples, after, np.random.default_rng(1))
    np.testing.assert_allclose(updated.weights, np.exp(sequential.tempered(gains)), rtol=1e-6)


def affine(slope, shift, lowest=-9.0, highest=9.0):
    """Units in which the loss y is slope * y + shift."""
    transform = Transform(1.0, (0.0, 1.0), (shift, shift + slope), (slope, slope), cap=1e9)
    return LossUnits(transform, lowest, highest, 100)


MAPPED = dict.fromkeys([f"{name}.variance" for name in ("level", "drop", "drift", "late", "smooth")] + ["noise"], 4)


@pytest.mark.parametrize("model", ["paper", "drift", "luck"])
def test_in_new_units_variances_have_the_squared_slope_and_the_mean_also_the_shift(model):
    """From y to 2 y - 3: a value of 0.25 becomes 1, a mean of 0.25 becomes -2.5, and all else stays."""
    observations, old, new = falling(), affine(1.0, 0.0), affine(2.0, -3.0)
    target = sequential._target(observations, model, new)
    values = {p.name: np.array([0.25, 0.5]) for p in target.parameters}
    mapped = sequential._in_new_units(values, old, new, observations, target)
    assert mapped.keys() == values.keys()
    if model == "paper":
        np.testing.assert_allclose(mapped.pop("mean"), [-2.5, -2.0])
    for name, value in mapped.items():
        np.testing.assert_allclose(value, MAPPED.get(name, 1) * values[name], err_msg=name)


def test_a_mean_outside_the_range_of_the_new_units_is_moved_to_its_end():
    observations, old, new = falling(), affine(1.0, 0.0), affine(2.0, -3.0, lowest=-1.0, highest=1.0)
    target = sequential._target(observations, "paper", new)
    values = {p.name: np.array([0.25]) for p in target.parameters}
    assert sequential._in_new_units(values, old, new, observations, target)["mean"].tolist() == [-1.0]


def moving(monkeypatch, moved, share=1.0):
    """The next update moves these samples, by this share of the moves of a sweep."""

    def schedule(samples, target, count, rng):
        every = moves(target.parameters)
        return np.array(moved, dtype=int), every[: round(share * len(every))]

    monkeypatch.setattr(sequential, "_schedule", schedule)


def updated_share(before, after):
    """The mean share of a sweep that each sample gets when the losses grow from `before` to `after` epochs of a run."""
    samples = initialise(prefix(falling(epochs=40), [before] * 6), "drift", np.random.default_rng(0))
    target = sequential._target(prefix(falling(epochs=40), [after] * 6), "drift", samples.units)
    every, shares = len(moves(target.parameters)), []
    for seed in range(200):
        moved, chosen = sequential._schedule(samples, target, 10, np.random.default_rng(seed))
        shares.append(len(moved) / 10 * len(chosen) / every)
    return np.mean(shares)


def test_the_sampler_works_in_proportion_to_the_new_losses():
    """As much for many losses at once as for one at a time, up to a whole sweep: a study of a few decisions with many
    epochs each would otherwise keep hyperparameters that are almost draws from the prior.
    """
    assert updated_share(19, 20) == pytest.approx(20 * 6 / 120, abs=0.02)
    assert updated_share(39, 40) == pytest.approx(20 * 6 / 240, abs=0.02)
    assert updated_share(40, 40) == pytest.approx(20 * 1 / 240, abs=0.02)
    assert updated_share(10, 40) == 1.0


def weighted(model, logs):
    """Samples of as many losses as `falling` has, with these log weights."""
    samples = initialise(falling(), model, np.random.default_rng(0), count=len(logs))
    return replace(samples, log_weights=tuple(logs))


@pytest.mark.parametrize("model", ["paper", "drift"])
def test_a_sample_that_was_moved_by_a_whole_sweep_has_the_average_weight(model, monkeypatch):
    monkeypatch.setattr(sequential, "sample_count", lambda model, losses: 4)
    logs = np.log([0.4, 0.3, 0.2, 0.1])
    moving(monkeypatch, [0, 3])
    updated, _ = update(weighted(model, logs), falling(), np.random.default_rng(1))
    np.testing.assert_allclose(updated.weights, [0.25, 0.3, 0.2, 0.25], rtol=1e-6)  # these add up to one


def test_a_sample_that_was_moved_by_half_a_sweep_is_half_way_there_in_log_weight(monkeypatch):
    monkeypatch.setattr(sequential, "sample_count", lambda model, losses: 4)
    samples = weighted("drift", np.log([0.4, 0.3, 0.2, 0.1]))
    moving(monkeypatch, [3], share=0.5)
    updated, _ = update(samples, falling(), np.random.default_rng(1))
    count = len(moves(sequential._target(falling(), "drift", samples.units).parameters))
    share = round(0.5 * count) / count
    expected = np.array([0.4, 0.3, 0.2, 0.1 ** (1 - share) * 0.25**share])
    np.testing.assert_allclose(updated.weights, expected / expected.sum(), rtol=1e-6)


@pytest.mark.parametrize("model", ["paper", "drift"])
@pytest.mark.parametrize("moved", [[], [1], [0, 1, 2, 3]])
def test_the_stored_evidence_is_that_of_the_stored_values(model, moved, monkeypatch):
    """The next weights are relative to it."""
    monkeypatch.setattr(sequential, "sample_count", lambda model, losses: 4)
    samples = weighted(model, np.log([0.4, 0.3, 0.2, 0.1]))
    longer = replace(falling(), losses=(*falling().losses[:-1], (*falling().losses[-1], 0.5)))
    moving(monkeypatch, moved)
    for observations in (falling(), longer):
        samples, forecaster = update(samples, observations, np.random.default_rng(1))
        fresh = sequential._target(observations, model, samples.units).log_evidence(samples.stacked())
        np.testing.assert_allclose(samples.log_evidences, fresh, rtol=1e-8)
        np.testing.assert_allclose(forecaster.posterior.log_evidence, fresh, rtol=1e-8)


def test_the_first_samples_have_equal_weights_and_the_evidence_of_their_values():
    samples = initialise(falling(), "drift", np.random.default_rng(0))
    np.testing.assert_allclose(samples.weights, 1 / 20)
    fresh = sequential._target(falling(), "drift", samples.units).log_evidence(samples.stacked())
    np.testing.assert_allclose(samples.log_evidences, fresh)


def test_the_weights_stay_in_new_units(monkeypatch):
    """Evidences in different units cannot be compared, so the losses that came with the new units do not reweight."""
    monkeypatch.setattr(sequential, "sample_count", lambda model, losses: 4)
    samples = weighted("drift", np.log([0.4, 0.3, 0.2, 0.1]))
    moving(monkeypatch, [])
    far = replace(falling(), losses=(*falling().losses[:-1], (*falling().losses[-1], -5.0)))
    updated, _ = update(samples, far, np.random.default_rng(1))
    assert updated.units != samples.units
    np.testing.assert_allclose(updated.weights, [0.4, 0.3, 0.2, 0.1])


def test_the_power_of_tempering_is_the_largest_that_keeps_half():
    """Weights 1, a, a, a have an effective size of two if 3 a^2 + 6 a = 1, and then the first is 0.683 of the sum."""
    a = (math.sqrt(48) - 6) / 6
    found = np.exp(sequential.tempered(np.array([0.0, -50.0, -50.0, -50.0])))
    np.testing.assert_allclose(found, np.array([1.0, a, a, a]) / (1 + 3 * a), rtol=1e-4)


def test_tempering_leaves_good_weights_alone_and_keeps_half_of_the_samples():
    even = np.log(np.array([0.3, 0.25, 0.25, 0.2]))
    np.testing.assert_allclose(sequential.tempered(even + 7.0), even)
    lopsided = sequential.tempered(np.array([0.0, -100.0, -200.0, -300.0, -np.inf]))
    weights = np.exp(lopsided)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[4] == 0.0
    assert 1 / np.sum(weights**2) >= 2.0 - 1e-6
    assert (np.diff(weights) <= 0).all()


def test_samples_are_many_at_first_and_few_later_and_those_that_go_are_drawn_at_random():
    wanted = sequential.sample_count
    assert [wanted("drift", n) for n in (0, 1, 100, 150, 200, 500, 700, 1000, 10_000)] == [
        20,
        20,
        20,
        13,
        10,
        10,
        7,
        5,
        5,
    ]
    assert {wanted("paper", n) for n in (1, 300, 10_000)} == {10}
    stayed = np.zeros(20)
    for seed in range(300):
        kept = sequential._kept(np.log(np.linspace(1.0, 2.0, 20) / 30), 10, np.random.default_rng(seed))
        assert len(set(kept.tolist())) == 10
        stayed[kept] += 1
    assert (np.abs(stayed / 300 - 0.5) < 0.15).all()
    dead = np.log([0.5, 0.5, 1e-300])
    dead[2] = -np.inf
    kept = sequential._kept(dead, 3, np.random.default_rng(0))
    assert kept[:2].tolist() == [0, 1]
    assert kept[2] in (0, 1)


def test_a_loss_outside_the_range_fits_new_units():
    observations = falling()
    samples = initialise(observations, "drift", np.random.default_rng(0))
    low = min(min(c) for c in observations.losses)
    wider = Observations(
        observations.configs,
        (*observations.losses[:-1], (*observations.losses[-1], low - 5.0)),
        observations.geometry,
        9.0,
    )
    assert not samples.units.cover(wider.all_losses())
    updated, forecaster = update(samples, wider, np.random.default_rng(1))
    assert updated.units == LossUnits.fit(wider, "drift")
    assert np.isfinite(forecaster.run(0, [9.0]).mean).all()
    assert updated.weights.sum() == pytest.approx(1.0)


def test_forecasts_do_not_depend_on_the_users_units():
    """A thousand times the loss gives a thousand times the forecast: the same draws, the same decisions."""
    small, large = (stream(falling(scale=s), "drift", np.random.default_rng(5)) for s in (1.0, 1000.0))
    one = Forecaster.condition(small, falling()).run(2, [20.0])
    other = Forecaster.condition(large, falling(scale=1000.0)).run(2, [20.0])
    np.testing.assert_allclose(other.mean, 1000 * one.mean, rtol=1e-3)


def test_maximising_mirrors_minimising():
    up = falling()
    down = Observations(
        up.configs, tuple(tuple(-y for y in c) for c in up.losses), up.geometry, up.horizon, maximize=True
    )
    one = Forecaster.condition(from_scratch(up, "drift", np.random.default_rng(0)), up)
    other = Forecaster.condition(from_scratch(down, "drift", np.random.default_rng(0)), down)
    np.testing.assert_allclose(one.run(0, [12.0]).mean, -other.run(0, [12.0]).mean, rtol=1e-6)
    np.testing.assert_allclose(one.run(0, [12.0]).quantile(0.1), -other.run(0, [12.0]).quantile(0.9), rtol=1e-6)


def test_extreme_losses_do_not_break_the_samples():
    rng = np.random.default_rng(0)
    for curves in (
        ((1e34, 0.1, 0.09), (0.2,)),
        ((1.0,) * 5, (1.0,) * 5),
        ((0.3,),),
        ((0.0,) * 3, (1e-30,)),
        ((1.0, 2.0, 4.0, 8.0), (1.0, 3.0, 9.0, 27.0)),
    ):
        observations = Observations(rng.random((len(curves), 2)), curves, Geometry.plain(2), 10.0)
        for model in ("paper", "drift"):
            samples = initialise(observations, model, rng)
            for _ in range(3):
                samples, forecaster = update(samples, observations, rng)
            found = forecaster.run(0, [8.0, 9.0])
            assert np.isfinite(found.quantile([0.05, 0.5, 0.95])).all()
            assert np.isfinite(found.log_density(curves[0][-1])).all()


def test_pending_runs_are_imagined_at_their_mean():
    observations = falling()
    forecaster = Forecaster.condition(initialise(observations, "drift", np.random.default_rng(0)), observations)
    new = np.array([0.9, 0.1])
    old, fresh = forecaster.pending_losses([0, new], [2, 1])
    imagined = forecaster.with_fantasies([(0, old), (new, fresh)])
    before, after = forecaster.posterior, imagined.posterior
    expected = forecaster.weights @ before.losses(0, [9.0, 10.0], noise=False).mean
    assert len(after.curves) == len(before.curves) + 1
    np.testing.assert_allclose(after.curves.observed(0)[1][-2:], expected)
    assert (after.losses(0, [11.0]).shared[:, 0, 0] <= before.losses(0, [11.0]).shared[:, 0, 0] * 1.01).all()
    assert forecaster.with_fantasies([]) is forecaster


def test_an_unknown_model_is_named():
    with pytest.raises(ModelError, match="unknown model 'cubic'; known: paper, drift, luck"):
        initialise(falling(), "cubic", np.random.default_rng(0))


@pytest.mark.parametrize("model", ["paper", "drift"])
def test_samples_survive_being_stored(model):
    observations = falling()
    samples, _ = update(
        initialise(observations, model, np.random.default_rng(0)), observations, np.random.default_rng(1)
    )
    written = json.loads(json.dumps(samples.to_dict()))
    assert HyperparameterSamples.from_dict(written) == samples
