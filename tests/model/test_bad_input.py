"""What the model cannot use is refused with a message that says what it was."""

from __future__ import annotations

import math

import numpy as np
import pytest

from freezethaw.errors import ModelError, SingularCovarianceError
from freezethaw.losses import Forecast, Transform
from freezethaw.model.curves import Curves
from freezethaw.model.inference import Target
from freezethaw.model.loss_units import LossUnits, Observations, specify
from freezethaw.model.posterior import condition
from freezethaw.model.priors import LogNormal
from freezethaw.model.sequential import initialise
from freezethaw.model.specification import Geometry, Specification, drift, paper

from .problems import draw_values, evidence_at

CONFIGS = [[0.1, 0.2], [0.3, 0.9]]
LOSSES = [[1.0, 0.5], [0.7]]
GEOMETRY = Geometry.plain(2)
PAPER = paper((-1.0, 1.0))


def values(specification=PAPER):
    return draw_values(specification.parameters(GEOMETRY), np.random.default_rng(0)) | {"noise": 0.01}


def posterior():
    return condition(Curves.of(CONFIGS, LOSSES), PAPER, values(), GEOMETRY)


BAD_CURVES = {
    "flat configurations": ({"configs": [0.1, 0.2]}, r"table of runs by hyperparameters, not of shape \(2,\)"),
    "cube of configurations": ({"configs": np.zeros((2, 2, 2))}, r"not of shape \(2, 2, 2\)"),
    "a NaN configuration": (
        {"configs": [[0.1, 0.2], [0.3, math.nan]]},
        "configuration of run 1 has nan in dimension 1",
    ),
    "an infinite configuration": ({"configs": [[math.inf, 0.2], [0.3, 0.1]]}, "run 0 has inf in dimension 0"),
    "above the cube": ({"configs": [[0.1, 0.2], [1.5, 0.1]]}, "run 1 has 1.5 in dimension 0, outside the unit cube"),
    "below the cube": ({"configs": [[0.1, -0.2], [0.5, 0.1]]}, "run 0 has -0.2 in dimension 1, outside the unit cube"),
    "too few curves": ({"losses": [[1.0]]}, "2 configurations but 1 curves"),
    "too many curves": ({"losses": [[1.0], [1.0], [1.0]]}, "2 configurations but 3 curves"),
    "a curve that is a number": (
        {"losses": [[1.0], 3.0]},
        r"curve of run 1 must be a list of losses, not of shape \(\)",
    ),
    "a curve that is a table": ({"losses": [[[1.0]], [3.0]]}, r"curve of run 0 must be a list of losses"),
    "a NaN loss": ({"losses": [[1.0, math.nan], [3.0]]}, "loss 2 of run 0 is nan; a diverged run is cut"),
    "an infinite loss": ({"losses": [[1.0], [math.inf]]}, "loss 1 of run 1 is inf; a diverged run is cut"),
    "too few sequences of epochs": ({"epochs": [[1.0, 2.0]]}, "2 curves but 1 sequences of epochs"),
    "too few epochs": ({"epochs": [[1.0], [1.0]]}, r"run 0 has 2 losses but epochs of shape \(1,\)"),
    "epochs that go backwards": ({"epochs": [[2.0, 1.0], [1.0]]}, r"epochs of run 0 must be positive and increase"),
    "an epoch twice": ({"epochs": [[2.0, 2.0], [1.0]]}, r"epochs of run 0 must be positive and increase"),
    "epoch zero": ({"epochs": [[1.0, 2.0], [0.0]]}, r"epochs of run 1 must be positive and increase: \[0.0\]"),
    "a NaN epoch": ({"epochs": [[1.0, math.nan], [1.0]]}, r"epochs of run 0 must be positive and increase"),
    "thinning to nothing": ({"dense_epochs": 1}, "dense_epochs must be at least 2, not 1"),
}


@pytest.mark.parametrize("name", BAD_CURVES)
def test_bad_curves(name):
    change, message = BAD_CURVES[name]
    with pytest.raises(ModelError, match=message):
        Curves.of(**{"configs": CONFIGS, "losses": LOSSES} | change)


def specification(**change):
    names = ("level.variance", "alpha", "beta", "noise")
    given = {
        "name": "mine",
        "basis": ("level",),
        "residual": "decay",
        "priors": dict.fromkeys(names, LogNormal(0.0, 1.0)),
        "length_prior": LogNormal(0.0, 1.0),
        "warp_prior": None,
    }
    return Specification(**given | change)


def test_the_specification_these_tests_spoil_is_good():
    assert specification().level_names() == ("level.variance",)


def test_an_unknown_kernel_over_epochs():
    with pytest.raises(ModelError, match="unknown kernel over epochs 'wiggle'; known: decay, smooth"):
        specification(residual="wiggle")


def test_an_unknown_basis_function():
    with pytest.raises(ModelError, match="unknown basis function 'rise'; known: level, drop, drift"):
        specification(basis=("level", "rise"))


def test_a_hyperparameter_without_a_prior():
    with pytest.raises(ModelError, match=r"model 'mine' has no prior for smooth\.variance, smooth\.length"):
        specification(residual="smooth")
    with pytest.raises(ModelError, match=r"model 'mine' has no prior for freedom"):
        specification(run_scales=True)


def test_an_unknown_model():
    observations = Observations(np.array(CONFIGS), ((1.0, 0.5), (0.7,)), GEOMETRY, horizon=10.0)
    units = LossUnits.fit(observations, "paper")
    with pytest.raises(ModelError, match="unknown model 'oracle'; known: paper, drift, luck"):
        specify("oracle", units, GEOMETRY, 10.0)
    with pytest.raises(ModelError, match="unknown model 'oracle'"):
        initialise(observations, "oracle", np.random.default_rng(0))


@pytest.mark.parametrize("spec", [PAPER, drift(2, 10.0)], ids=["paper", "drift"])
def test_a_missing_hyperparameter(spec):
    for name in values(spec):
        incomplete = {k: v for k, v in values(spec).items() if k != name}
        with pytest.raises(ModelError, match=f"no value for hyperparameter {name} of model '{spec.name}'"):
            condition(Curves.of(CONFIGS, LOSSES), spec, incomplete, GEOMETRY)


@pytest.mark.parametrize("columns", [1, 3])
def test_a_geometry_of_another_space(columns):
    with pytest.raises(ModelError, match=f"the geometry has {columns} columns, the configurations 2"):
        condition(Curves.of(CONFIGS, LOSSES), PAPER, values(), Geometry.plain(columns))


@pytest.mark.parametrize("run", [-1, 2, 100])
def test_an_unknown_run(run):
    with pytest.raises(ModelError, match=f"there is no run {run}; the curves hold runs 0 to 1"):
        posterior().losses(run, [3.0])
    with pytest.raises(ModelError, match=f"there is no run {run}"):
        posterior().asymptotes([0, run])


@pytest.mark.parametrize("config", [[0.1], [0.1, 0.2, 0.3], [0.1, math.nan], [0.1, math.inf]])
def test_a_configuration_to_predict(config):
    with pytest.raises(ModelError, match="a configuration must be 2 finite numbers, not"):
        posterior().new_losses(config, [3.0])
    with pytest.raises(ModelError, match="a configuration must be 2 finite numbers, not"):
        posterior().asymptotes(configs=[config])


@pytest.mark.parametrize("config", [[0.1, 1.5], [-0.2, 0.1]])
def test_a_configuration_to_predict_outside_the_cube(config):
    with pytest.raises(ModelError, match="outside the unit cube"):
        posterior().new_losses(config, [3.0])


@pytest.mark.parametrize("epochs", [[0.0], [-1.0], [1.0, math.nan], [[1.0, 2.0]]])
def test_epochs_to_predict(epochs):
    with pytest.raises(ModelError, match="epochs to predict must be a list of positive numbers"):
        posterior().losses(0, epochs)
    with pytest.raises(ModelError, match="epochs to predict must be a list of positive numbers"):
        posterior().new_losses([0.5, 0.5], epochs)


def test_hyperparameters_too_extreme_for_floating_point():
    """Twenty times the same residual and no noise: refused by `condition`, and of no density for the sampler."""
    extreme = {**values(), "alpha": 1e-9, "noise": 1e-30}
    curves = Curves.of(CONFIGS, [np.zeros(20), np.zeros(3)])
    with pytest.raises(SingularCovarianceError, match="noise variance 1e-30 is not positive definite"):
        condition(curves, PAPER, extreme, GEOMETRY)
    assert evidence_at(Target(curves, PAPER, GEOMETRY), extreme) == -math.inf


def test_losses_without_a_finite_one():
    for losses in ([], [math.nan], [math.inf, -math.inf]):
        with pytest.raises(ModelError, match="there is no finite loss to fit a transform to"):
            Transform.fit(losses)


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, [0.5, 1.5]])
def test_quantiles_outside_zero_and_one(q):
    one = np.ones((1, 1))
    forecast = Forecast(Transform.fit([0.0, 1.0]), one, one, one, one)
    with pytest.raises(ModelError, match="quantiles lie strictly between 0 and 1"):
        forecast.quantile(q)
