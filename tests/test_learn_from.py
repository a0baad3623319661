"""Learning from earlier studies: the input that they give to the model, and what is stored of them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import freezethaw as ft
from freezethaw.cli import app
from freezethaw.decide.earlier import EarlierInputs, EarlierStudy
from freezethaw.decide.shared_parameters import SharedFeatures, shared_parameters
from freezethaw.errors import StudyError
from freezethaw.model.loss_units import Observations, gather, specify
from freezethaw.model.posterior import condition
from freezethaw.model.sequential import from_scratch, initialise
from freezethaw.model.specification import Geometry
from freezethaw.server import api, study_page
from freezethaw.server.views import StoreView
from freezethaw.study import session_of
from freezethaw.study.learn_from import SAMPLES, summarise_study
from freezethaw.study.summary import summary as recorded
from freezethaw.study.summary import weights_over_time

SPACE = ft.Space(x=ft.Float(0.0, 1.0), y=ft.Float(1e-4, 1.0, log=True), kind=ft.Choice("a", "b"))
BEST = {"x": 0.7, "y": 0.01}


def curve(config, epochs, rng=None, best=BEST):
    """A curve whose end is lowest at `best`."""
    end = 4 * (config["x"] - best["x"]) ** 2 + 0.3 * np.log10(config["y"] / best["y"]) ** 2 + (config["kind"] == "b")
    noise = 0.0 if rng is None else 0.01 * rng.standard_normal(epochs)
    return list(end + 1.0 / np.arange(1.0, epochs + 1) + noise)


def search(study, epochs, best=BEST, seed=0):
    """Ask and tell; returns the best loss after each epoch."""
    rng, found, lowest = np.random.default_rng(seed), [], np.inf
    while len(found) < epochs:
        decision = study.ask()
        losses = curve(decision.config, decision.to_epoch, rng, best)[decision.from_epoch :]
        study.tell(decision, losses)
        for loss in losses:
            lowest = min(lowest, loss)
            found.append(lowest)
    return found


def search_of(best, name):
    """A study of sixty epochs."""
    study = ft.Study(SPACE, max_epochs=10, name=name, seed=4)
    search(study, 60, best)
    return study


@pytest.fixture(scope="module")
def earlier():
    return search_of(BEST, "old")


@pytest.fixture(scope="module")
def summary(earlier):
    return summarise_study("old", earlier.runs, SPACE, SPACE, 10, maximize=False)


def test_the_input_is_the_posterior_mean_of_the_asymptote(earlier, summary):
    """Computed once more, through the predictions of the model at the same hyperparameters."""
    features = SPACE.features_of([run.config for run in earlier.runs])
    geometry = Geometry(SPACE.lengths, SPACE.warped)
    observations = Observations(features, tuple(run.losses for run in earlier.runs), geometry, 10.0)
    rng = np.random.default_rng([0, len(earlier.runs)])
    samples = from_scratch(observations, "drift", rng, SAMPLES.chains, SAMPLES)
    evidences = np.array(samples.log_evidences)
    values = samples.values[int(evidences.argmax())]
    spec = specify("drift", samples.units, geometry, 10.0)
    posterior = condition(gather(observations, samples.units.transform), spec, values, geometry)
    asked = SPACE.features_of([SPACE.sample(np.random.default_rng(n)) for n in range(20)])
    mean = posterior.asymptotes(configs=asked).mean
    ends = posterior.asymptotes(configs=features)
    assert summary.centre == pytest.approx(ends.mean.mean())
    assert summary.scale**2 == pytest.approx(ends.mean.var() + ends.variance.mean())
    expected = np.clip(0.5 + (mean - summary.centre) / summary.scale / 6.0, 0.0, 1.0)
    np.testing.assert_allclose(EarlierInputs([summary], SPACE).of(asked)[:, 0], expected, atol=1e-8)


def test_a_summary_is_stored_as_plain_numbers_without_loss(summary):
    assert EarlierStudy.from_dict(json.loads(json.dumps(summary.to_dict()))) == summary


def test_good_configurations_are_expected_to_be_good(summary):
    inputs = EarlierInputs([summary], SPACE)
    good, bad = {**BEST, "kind": "a"}, {"x": 0.05, "y": 0.9, "kind": "b"}
    low, high = inputs.of(SPACE.features_of([good, bad]))[:, 0]
    assert low < 0.4 < high
    assert summary.loss(float(low)) < summary.loss(float(high))


def test_an_input_without_effect_leaves_the_model_as_it_is(summary):
    """With a long length scale the model is exactly the one without the earlier study."""
    rng = np.random.default_rng(2)
    configs = [SPACE.sample(rng) for _ in range(12)]
    plain = SPACE.features_of(configs)
    wide = np.hstack([plain, EarlierInputs([summary], SPACE).of(plain)])
    losses = tuple(tuple(curve(config, 1 + n % 4, rng)) for n, config in enumerate(configs))
    geometry = Geometry(SPACE.lengths, SPACE.warped)
    wider = Geometry((*SPACE.lengths, geometry.count), (*SPACE.warped, False), 1)
    observations = Observations(plain, losses, geometry, 10.0)
    samples = initialise(observations, "drift", rng, count=3)
    for values in samples.values:
        spec = specify("drift", samples.units, geometry, 10.0)
        without = condition(gather(observations, samples.units.transform), spec, values, geometry)
        more = {**values, f"length.{geometry.count}": 1e9}
        curves = gather(replace(observations, configs=wide, geometry=wider), samples.units.transform)
        with_it = condition(curves, spec, more, wider)
        assert with_it.log_evidence == pytest.approx(without.log_evidence, rel=1e-12)


def test_a_related_study_finds_good_configurations_in_fewer_epochs(earlier):
    alone, learnt = [], []
    best = {"x": 0.65, "y": 0.02}  # close to the optimum of the earlier problem
    for seed in range(3):
        alone.append(search(ft.Study(SPACE, max_epochs=10, seed=seed), 12, best, seed))
        learnt.append(search(ft.Study(SPACE, max_epochs=10, seed=seed, learn_from=earlier), 12, best, seed))
    # every first loss is one above the end of its curve
    assert np.mean(learnt, axis=0)[3] - 1.0 < 0.5 * (np.mean(alone, axis=0)[3] - 1.0)
    assert np.mean(learnt, axis=0)[-1] <= np.mean(alone, axis=0)[-1]


def test_the_first_runs_are_those_expected_to_be_best_and_say_so(earlier):
    study = ft.Study(SPACE, max_epochs=10, seed=1, learn_from=[earlier])
    decision = study.ask()
    assert "study old expects the best result there" in decision.reason
    assert abs(decision.config["x"] - BEST["x"]) < 0.25
    assert decision.config["kind"] == "a"


def test_several_studies_choose_the_first_run_together_and_one_each(earlier):
    other = search_of({"x": 0.2, "y": 0.1}, "other")
    study = ft.Study(SPACE, max_epochs=10, seed=1, learn_from=[earlier, other])
    reasons, values = [], []
    for _ in range(4):
        decision = study.ask()
        study.tell(decision, curve(decision.config, decision.to_epoch)[decision.from_epoch :])
        reasons.append(decision.reason)
        values.append(decision.config["x"])
    assert "2 earlier studies together expect the best result there" in reasons[0]
    assert "study old expects the best result there" in reasons[1]
    assert "study other expects the best result there" in reasons[2]
    assert "expects the best result there" not in reasons[3]
    assert abs(values[1] - 0.7) < 0.25
    assert abs(values[2] - 0.2) < 0.25


def test_the_model_uses_a_related_study_more_than_an_unrelated_one(earlier):
    """The unrelated one has the same curves, of configurations that are reflected in every parameter."""
    unrelated = ft.Study(SPACE, max_epochs=10, name="reflected")
    for run in earlier.runs:
        config = SPACE.unit(run.config)
        unrelated.add_run(SPACE.config(1.0 - config), run.losses)
    study = ft.Study(SPACE, max_epochs=10, seed=2, learn_from=[unrelated, earlier])
    search(study, 40)
    session = session_of(study)
    rows = [row["weights"] for row in weights_over_time(session.storage, session.refresh())]
    assert rows[-1] == recorded(session.storage, 0)["learns_from"]
    assert rows[-1]["reflected"] < max(row["reflected"] for row in rows)
    assert rows[-1]["old"] > rows[-1]["reflected"]
    assert sum(rows[-1].values()) < 1


def test_other_parameters_and_bounds(earlier):
    """Shared parameters are used, runs outside the bounds too, and other parameters are no obstacle."""
    space = ft.Space(x=ft.Float(0.4, 2.0), kind=ft.Choice("a", "b", "c"), depth=ft.Int(1, 5))
    found = summarise_study("old", earlier.runs, SPACE, space, 10, maximize=False)
    assert len(found.configs) == len(earlier.runs)
    assert min(config["x"] for config in found.configs) < 0.4
    assert all(set(config) == {"x", "kind"} for config in found.configs)
    inputs = EarlierInputs([found], space)
    here = [{"x": x, "kind": kind, "depth": depth} for x, kind in ((0.7, "a"), (1.0, "b")) for depth in (1, 5)]
    good, same, bad, _ = inputs.of(space.features_of(here))[:, 0]
    assert good == same  # the new parameter makes no difference
    assert good < bad
    study = ft.Study(space, max_epochs=10, learn_from=earlier)
    decision = study.ask()
    assert abs(decision.config["x"] - BEST["x"]) < 0.25


def test_features_of_configurations_do_not_depend_on_the_way():
    """From features of the new space, or directly from configurations: for all that both spaces can hold."""
    before = ft.Space(
        rate=ft.Float(1e-6, 1e-2, log=True),
        layers=ft.Int(1, 64, log=True),
        size=ft.Choice(16, 32, 64, ordered=True),
        drop=ft.Float(0.0, 0.5),
        optimizer=ft.Choice("sgd", "adam", "lion"),
        momentum=ft.Float(0.0, 0.9, when={"optimizer": "sgd"}),
        norm=ft.Choice("batch", "layer"),
    )
    space = ft.Space(
        optimizer=ft.Choice("adam", "sgd"),
        momentum=ft.Float(0.5, 0.99, when={"optimizer": "sgd"}),
        size=ft.Int(8, 128, log=True),
        rate=ft.Float(1e-4, 1.0, log=True),
        layers=ft.Int(4, 128, log=True),
        drop=ft.Choice(0.0, 0.1),  # a choice among numbers is not the same as a range
        norm=ft.Choice("layer", "batch", "none"),
    )
    rng = np.random.default_rng(0)
    configs = [before.sample(rng) for _ in range(50)]
    parameters = shared_parameters(space, before, configs)
    assert list(parameters) == ["optimizer", "momentum", "size", "rate", "layers", "norm"]
    shared = SharedFeatures(parameters, space)
    tried = [space.sample(rng) for _ in range(200)]
    direct = shared.of_configs([{n: v for n, v in config.items() if n != "drop"} for config in tried])
    np.testing.assert_allclose(shared.of(space.features_of(tried)), direct, atol=1e-12)
    assert shared.of_configs(configs).min() == 0.0
    assert shared.of_configs(configs).max() <= 1.0


@pytest.mark.parametrize("fixed", [{}, {"kind": "b"}])
def test_parameters_of_the_earlier_study_alone_are_integrated_out_or_fixed(earlier, fixed):
    """The mean is that of the model in all parameters, averaged over the values of the others in the runs."""
    space = ft.Space({"x": SPACE.parameters["x"], "y": SPACE.parameters["y"]} | fixed)
    found = summarise_study("old", earlier.runs, SPACE, space, 10, maximize=False)
    whole = summarise_study("old", earlier.runs, SPACE, SPACE, 10, maximize=False)
    configs = [dict(run.config) for run in earlier.runs]
    kinds = [fixed["kind"]] if fixed else [config["kind"] for config in configs]
    asked = [SPACE.features_of([config | {"kind": kind} for config in configs]) for kind in kinds]
    expected = np.mean([EarlierInputs([whole], SPACE).of(features)[:, 0] for features in asked], axis=0)
    here = space.features_of([{"x": config["x"], "y": config["y"]} | fixed for config in configs])
    np.testing.assert_allclose(EarlierInputs([found], space).of(here)[:, 0], expected, atol=1e-5)


def test_a_change_of_scale_during_the_study_is_followed():
    parameters = shared_parameters(
        ft.Space(x=ft.Float(1e-3, 1.0, log=True)), ft.Space(x=ft.Float(0.0, 1.0)), [{"x": 0.5}]
    )
    shared = SharedFeatures(parameters, ft.Space(x=ft.Float(0.0, 1.0)))
    found = shared.of(np.array([[0.0], [0.1], [1.0]]))
    np.testing.assert_allclose(found[:, 0], [0.0, 2 / 3, 1.0], atol=0.02)


def test_nothing_to_learn_from_is_an_error(earlier):
    with pytest.raises(StudyError, match="nothing can be learnt from study 'empty': 0 of its 0 runs"):
        ft.Study(SPACE, max_epochs=10, learn_from=ft.Study(SPACE, max_epochs=10, name="empty"))
    with pytest.raises(StudyError, match="shares no parameter"):
        ft.Study(ft.Space(depth=ft.Int(1, 5)), max_epochs=10, learn_from=earlier)
    with pytest.raises(StudyError, match="takes studies and stores"):
        ft.Study(SPACE, max_epochs=10, learn_from=[17])
    with pytest.raises(StudyError, match="at most 10"):
        ft.Study(SPACE, max_epochs=10, learn_from=[earlier] * 11)


def test_a_stored_study_continues_and_replays_without_the_earlier_store(tmp_path, earlier):
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with ft.Study(SPACE, max_epochs=10, name="first", store=old, seed=4) as study:
        search(study, 30)
    with ft.Study(SPACE, max_epochs=10, name="next", store=new, learn_from=f"{old}#first") as study:
        search(study, 12)
        summaries = study.definition.learn_from
    for file in tmp_path.glob("old.db*"):
        file.unlink()
    with ft.Study(SPACE, max_epochs=10, name="next", store=new, learn_from=f"{old}#first") as study:  # the same call
        assert study.definition.learn_from == summaries
        search(study, 4)
    with ft.Study(SPACE, max_epochs=10, name="next", store=new) as study:  # and one that does not mention it
        assert study.definition.learn_from == summaries
        for decision in session_of(study).history().decisions:
            number = decision.decision.number
            replayed = session_of(study).replay(number)
            assert (replayed.config, replayed.to_epoch) == (decision.decision.config, decision.decision.to_epoch)
    with ft.Study(SPACE, max_epochs=10, name="plain", store=new) as study:
        search(study, 3)
    with pytest.raises(StudyError, match="does not learn from other studies"):
        ft.Study(SPACE, max_epochs=10, name="plain", store=new, learn_from=earlier)


def test_the_weights_over_time_are_shown(tmp_path, earlier):
    """By the summary, by `status` and on the page."""
    url = f"sqlite:///{tmp_path}/new.db"
    with ft.Study(SPACE, max_epochs=10, name="next", store=url, learn_from=[earlier, earlier]) as study:
        search(study, 20)
        storage, state = session_of(study).storage, session_of(study).refresh()
        rows = weights_over_time(storage, state)
        assert list(rows[-1]["weights"]) == ["old", "old (2)"]  # of the same name
        assert rows[-1]["weights"] == recorded(storage, 0)["learns_from"]
        assert [row["decision"] for row in rows] == sorted({row["decision"] for row in rows})
        assert rows[-1]["decision"] == state.decisions
        assert len(rows) <= 2 * state.decisions.bit_length() + 1
        reasons = [record.decision.reason for record in session_of(study).history().decisions]
        assert any("of this configuration (weight " in reason for reason in reasons)
    shown = CliRunner().invoke(app, ["status", url], env={"COLUMNS": "200"}).stdout
    assert "learns    from old: weight " in shown
    assert ", since decision 2: " in shown
    view = StoreView(url)
    assert api.one_study(view, {"study": "next"})["weights"] == rows
    page = study_page.page_of("")(view, {"study": "next"})
    assert "Earlier studies</h2>" in page
    assert page.count('aria-label="over ') == 2
