"""Every example of an adapter runs with its real library, and a thawed run of it equals one that was never frozen."""

from __future__ import annotations

import importlib.util
import os
import runpy

import pytest

from freezethaw.runtime.check import check
from freezethaw.trainers import named
from tests.trainers.libraries import EXAMPLES

# example -> libraries, a configuration, whether the library allows "bit for bit"
EXAMPLE = {
    "digits_pytorch": (
        ("torch", "sklearn"),
        {"learning_rate": 0.05, "hidden": 32, "dropout": 0.3, "batch_size": 64},
        True,
    ),
    "cnn_amp": (("torch",), {"learning_rate": 0.05, "channels": 8, "dropout": 0.2}, True),
    "digits_sklearn": (
        ("sklearn", "skops"),
        {"learning_rate_init": 0.005, "hidden": 32, "alpha": 1e-4, "batch_size": 64},
        True,
    ),
    "digits_xgboost": (
        ("xgboost", "sklearn"),
        {"learning_rate": 0.3, "max_depth": 4, "subsample": 0.7, "min_child_weight": 1.0},
        True,
    ),
    "digits_lightgbm": (
        ("lightgbm", "sklearn"),
        {"learning_rate": 0.3, "max_depth": 4, "feature_fraction": 0.7, "min_sum_hessian_in_leaf": 1.0},
        True,
    ),
    "digits_keras": (
        ("keras", "torch", "sklearn"),
        {"learning_rate": 0.01, "hidden": 32, "dropout": 0.3, "batch_size": 64},
        True,
    ),
    "digits_lightning": (
        ("lightning", "torch", "sklearn"),
        {"learning_rate": 0.05, "hidden": 32, "dropout": 0.3, "batch_size": 64},
        True,
    ),
    "tiny_transformers": (
        ("transformers", "accelerate", "torch"),
        {"learning_rate": 0.003, "hidden": 32, "dropout": 0.1, "warmup_steps": 5},
        True,
    ),
    "ddp": (("torch",), {"learning_rate": 0.05, "hidden": 16}, True),
}


def present(name):
    absent = [library for library in EXAMPLE[name][0] if importlib.util.find_spec(library) is None]
    if absent and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip(f"{', '.join(absent)} is not installed")
    return EXAMPLES / f"{name}.py"


@pytest.mark.parametrize("name", EXAMPLE)
def test_frozen_and_thawed_equals_uninterrupted(name):
    _, config, exact = EXAMPLE[name]
    report = check(named(f"{present(name)}:train"), config, epochs=4)
    assert report.passed, report.findings
    assert not report.notes
    assert len(set(report.uninterrupted)) == 4
    if exact:
        assert report.thawed == report.uninterrupted


@pytest.mark.parametrize("name", EXAMPLE)
@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_the_example_finds_something(name, tmp_path, monkeypatch, capfd):
    """In this process: importing the libraries takes longer than training. The check above has processes of its own."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(present(name)))["main"](epochs=2 if name == "ddp" else 6)  # ranks are processes
    said = capfd.readouterr()
    assert "freezethaw: of " not in said.err, "a run of the example failed"
    assert "best: run" in said.out
