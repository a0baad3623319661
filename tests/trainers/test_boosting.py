"""XGBoost and LightGBM: rounds are epochs, and a thawed booster draws what it would have drawn."""

from __future__ import annotations

import numpy as np
import pytest

from freezethaw.errors import TrainingError
from tests.trainers.bench import Bench
from tests.trainers.libraries import exploit, needs

needs("xgboost", "lightgbm")
import lightgbm  # noqa: E402
import xgboost  # noqa: E402

from freezethaw.trainers.lightgbm import boost as boost_lightgbm  # noqa: E402
from freezethaw.trainers.xgboost import boost as boost_xgboost  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 6))
Y = (X[:, 0] * X[:, 1] + X[:, 2] + RNG.normal(size=400) > 0).astype(int)


def with_xgboost(run, rounds=1, **params):
    fixed = {"objective": "binary:logistic", "eval_metric": ["error", "logloss"], "nthread": 1}
    evals = [(xgboost.DMatrix(X[:300], Y[:300]), "train"), (xgboost.DMatrix(X[300:], Y[300:]), "valid")]
    boost_xgboost(run, fixed | params, evals[0][0], evals, rounds)


def with_lightgbm(run, rounds=1, **params):
    fixed = {"objective": "binary", "metric": ["binary_logloss", "binary_error"], "num_threads": 1, "verbose": -1}
    train_set = lightgbm.Dataset(X[:300], Y[:300], free_raw_data=False)
    valid_set = lightgbm.Dataset(X[300:], Y[300:], reference=train_set, free_raw_data=False)
    boost_lightgbm(run, fixed | params, train_set, [valid_set], rounds)


TRAININGS = {
    "xgboost": (with_xgboost, {}),
    "xgboost, rows": (with_xgboost, {"subsample": 0.5}),
    "xgboost, columns": (with_xgboost, {"colsample_bytree": 0.5, "colsample_bynode": 0.5}),
    "xgboost, dart": (with_xgboost, {"booster": "dart", "rate_drop": 0.5}),
    "xgboost, two rounds": (with_xgboost, {"rounds": 2, "subsample": 0.5}),
    "lightgbm": (with_lightgbm, {}),
    "lightgbm, rows": (with_lightgbm, {"bagging_fraction": 0.5, "bagging_freq": 1}),
    "lightgbm, columns": (with_lightgbm, {"colsample_bytree": 0.5, "extra_trees": True}),
    "lightgbm, goss": (with_lightgbm, {"data_sample_strategy": "goss", "top_rate": 0.2, "learning_rate": 1.0}),
    "lightgbm, two rounds": (with_lightgbm, {"rounds": 2, "bagging_fraction": 0.5, "bagging_freq": 1}),
}


def sat(folder, ends, train, options):
    folder.mkdir()
    bench = Bench(folder, seed=5)
    for end in ends:
        bench.train(lambda run: train(run, **options), [end])
    return bench


@pytest.mark.parametrize("name", TRAININGS)
def test_thawed_equals_uninterrupted(tmp_path, name):
    whole, parts = (sat(tmp_path / str(len(ends)), ends, *TRAININGS[name]) for ends in ([6], [1, 3, 4, 6]))
    assert parts.reported == whole.reported
    assert len(set(whole.reported)) == 6
    [saved] = whole.saved.iterdir()
    assert saved.read_bytes() == (parts.saved / saved.name).read_bytes()


def test_the_loss_and_the_metrics(tmp_path):
    one = sat(tmp_path / "one", [1], *TRAININGS["xgboost"])
    assert set(one.metrics[0]) == {"train-error", "train-logloss", "valid-error"}  # the loss: valid-logloss
    other = sat(tmp_path / "other", [1], *TRAININGS["lightgbm"])
    assert set(other.metrics[0]) == {"valid_0-binary_error"}
    assert 0.3 < one.reported[0] < 0.7
    assert 0.3 < other.reported[0] < 0.7


def test_the_seed_is_that_of_the_run(tmp_path):
    losses = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        losses += Bench(tmp_path / str(seed), seed=seed).train(lambda run: with_xgboost(run, subsample=0.5), [1])
    assert losses[0] != losses[1]


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_checkpoint_is_never_executed(tmp_path, library):
    train, _ = TRAININGS[library]
    bench = Bench(tmp_path)
    bench.train(train, [1])
    [file] = bench.saved.iterdir()
    file.write_bytes(exploit(tmp_path / "executed"))
    with pytest.raises((UnicodeDecodeError, lightgbm.basic.LightGBMError)):  # XGBoost quotes what it cannot read
        bench.train(train, [2])
    assert not (tmp_path / "executed").exists()


def test_what_cannot_be_done(tmp_path):
    with pytest.raises(TrainingError, match="LightGBM cannot continue a 'dart' booster"):
        Bench(tmp_path).train(lambda run: with_lightgbm(run, boosting="dart"), [1])
    with pytest.raises(TrainingError, match=r"evals=.* is required"):
        Bench(tmp_path).train(lambda run: boost_xgboost(run, {}, None, []), [1])
    with pytest.raises(TrainingError, match=r"valid_sets=.* is required"):
        Bench(tmp_path).train(lambda run: boost_lightgbm(run, {}, None, []), [1])
