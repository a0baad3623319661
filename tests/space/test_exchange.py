"""Spaces of Optuna and ConfigSpace, there and back."""

from __future__ import annotations

import math

import numpy as np
import pytest

from freezethaw.errors import FreezeThawError, SpaceError
from freezethaw.space import Choice, Float, Int, Space
from tests.space.spaces import EXAMPLE


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("optuna", "optuna.distributions", "ConfigSpace"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(FreezeThawError, match="optuna is not installed: pip install optuna"):
        EXAMPLE.to_optuna()
    with pytest.raises(FreezeThawError, match="ConfigSpace is not installed: pip install ConfigSpace"):
        Space.from_configspace(None)


def test_optuna_and_back() -> None:
    optuna = pytest.importorskip("optuna")
    space = Space(
        a=Float(1e-3, 1, log=True), b=Float(0, 1, step=0.25), c=Int(1, 64, log=True), d=Int(0, 10, step=5),
        e=Choice("x", None, True), f=Int(0, 3), g=7, h=None,
    )  # fmt: skip
    distributions = space.to_optuna()
    assert distributions["a"] == optuna.distributions.FloatDistribution(1e-3, 1, log=True)
    assert distributions["d"] == optuna.distributions.IntDistribution(0, 10, step=5)
    back = Space.from_optuna(distributions)
    assert not space.difference(back)
    trial = optuna.trial.create_trial(params=space.config(np.full(6, 0.3)), distributions=distributions, value=0.0)
    assert space.validate(trial.params) == trial.params
    assert Space.from_optuna({"x": optuna.distributions.IntDistribution(3, 3)}) == Space(x=3)
    with pytest.raises(SpaceError, match="x: 3 is not a supported Optuna distribution"):
        Space.from_optuna({"x": 3})


def test_configspace_and_back() -> None:
    pytest.importorskip("ConfigSpace")
    space = Space(
        a=Float(1e-3, 1, log=True), b=Choice("x", "y", "z"), c=Int(1, 64, when={"b": ["x", "y"]}),
        d=Choice(1, 2, 4, ordered=True, when={"b": "x", "g": 7}), e=Choice("only", when={"d": 2, "b": "x"}), g=7,
    )  # fmt: skip
    configspace = space.to_configspace()
    configspace.seed(0)
    back = Space.from_configspace(configspace)
    assert set(back.names) == set(space.names)
    for config in configspace.sample_configuration(100):
        valid = space.validate(dict(config))
        assert back.validate(valid) == {name: valid[name] for name in back.validate(valid)}
    for seed in range(50):
        config = space.sample(np.random.default_rng(seed))
        assert back.validate(config) == config
    assert back.size == math.inf


def test_configspace_steps_guesses_and_other_conditions() -> None:
    library = pytest.importorskip("ConfigSpace")
    configspace = Space(x=Float(0, 1, step=0.5, guess=0.5), n=Int(0, 9, guess=2)).to_configspace()
    assert configspace["x"].sequence == (0.0, 0.5, 1.0)
    assert dict(configspace.get_default_configuration()) == {"x": 0.5, "n": 2}
    with pytest.raises(SpaceError, match="x: ConfigSpace has no steps, and 1000001 values are too many"):
        Space(x=Int(0, 3000000, step=3)).to_configspace()

    kind, size = (
        library.CategoricalHyperparameter("kind", ["a", "b", "c"]),
        library.UniformIntegerHyperparameter("size", 1, 5),
    )
    child, other = library.UniformFloatHyperparameter("child", 0, 1), library.UniformFloatHyperparameter("other", 0, 1)
    configspace = library.ConfigurationSpace()
    configspace.add(kind, size, child, other)
    configspace.add(
        library.NotEqualsCondition(child, kind, "a"),
        library.OrConjunction(library.LessThanCondition(other, size, 2), library.GreaterThanCondition(other, size, 4)),
    )
    assert Space.from_configspace(configspace) == Space(
        kind=Choice("a", "b", "c"), size=Int(1, 5), child=Float(0, 1, when={"kind": ["b", "c"]}),
        other=Float(0, 1, when={"size": [1, 5]}),
    )  # fmt: skip


def test_configspace_refusals() -> None:
    library = pytest.importorskip("ConfigSpace")
    configspace = library.ConfigurationSpace({"a": (0, 5), "b": (0, 5), "c": (0.0, 1.0)})
    a, b, c = (configspace[name] for name in "abc")
    configspace.add(library.OrConjunction(library.EqualsCondition(c, a, 1), library.EqualsCondition(c, b, 1)))
    with pytest.raises(SpaceError, match=r"c: the condition .* cannot be expressed with `when`"):
        Space.from_configspace(configspace)
    configspace = library.ConfigurationSpace({"a": (0, 5)})
    configspace.add(library.ForbiddenEqualsClause(configspace["a"], 5))
    with pytest.raises(SpaceError, match="forbidden clauses are not supported"):
        Space.from_configspace(configspace)
    configspace = library.ConfigurationSpace()
    configspace.add(library.NormalFloatHyperparameter("x", 0, 1, lower=-5, upper=5))
    with pytest.raises(SpaceError, match="x: NormalFloatHyperparameter is not supported"):
        Space.from_configspace(configspace)


def searched_with_branches(count=30):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial):
        trial.suggest_float("rate", 1e-4, 1.0, log=True)
        if trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "sgd":
            trial.suggest_float("momentum", 0.0, 0.9)
            if trial.suggest_categorical("nesterov", [True, False]):
                trial.suggest_int("delay", 1, 5)
        layers = trial.suggest_int("layers", 1, 3)
        for layer in range(layers):
            trial.suggest_int(f"units_{layer}", 4, 128, log=True)
        return 1.0

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=count)
    return study


def test_the_space_of_an_optuna_study_has_its_branches():
    pytest.importorskip("optuna")
    study = searched_with_branches()
    space = Space.from_optuna(study)
    parameters = space.parameters
    assert parameters["momentum"].when == {"optimizer": ("sgd",)}
    assert parameters["delay"].when == {"nesterov": (True,)}
    assert parameters["units_0"].when is None
    assert parameters["units_2"].when == {"layers": (3,)}
    assert parameters["units_1"].when == {"layers": (2, 3)}
    for trial in study.trials:
        assert space.validate(trial.params) == trial.params
    with pytest.raises(SpaceError, match="no trial that was completed"):
        Space.from_optuna(searched_with_branches(0))


def test_a_branch_that_nothing_explains_is_an_error():
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial):
        if trial.suggest_float("rate", 0.0, 1.0) > 0.5:
            trial.suggest_float("extra", 0.0, 1.0)
        return 1.0

    study.optimize(objective, n_trials=10)
    with pytest.raises(SpaceError, match=r"extra: .* of 10 trials .* write the space by hand"):
        Space.from_optuna(study)
