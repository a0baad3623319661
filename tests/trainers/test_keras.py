"""Keras: the callback reports, saves, loads and ends the fit; nothing in a checkpoint is executed."""

from __future__ import annotations

import os

import numpy as np
import pytest

from freezethaw.errors import TrainingError
from tests.trainers.bench import Bench
from tests.trainers.libraries import exploit, needs

os.environ.setdefault("KERAS_BACKEND", "torch")
needs("keras", "torch")
import keras  # noqa: E402

from freezethaw.trainers.keras import FreezeThaw, load  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of the library itself
RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 3))
Y = X[:, 0] * X[:, 1] + 0.1 * RNG.normal(size=48)
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.05),
    "sgd, schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 30), momentum=0.9),
}


def train(run, optimizer="adam", units=4, policy="float32", start=None, **options):
    keras.utils.set_random_seed(run.seed)
    layers = [
        keras.layers.Dense(units, activation="relu", dtype=policy),
        keras.layers.BatchNormalization(dtype=policy),
        keras.layers.GaussianNoise(0.1, dtype=policy),
        keras.layers.Dropout(0.3, dtype=policy),
        keras.layers.Dense(1, dtype=policy),
    ]
    model = keras.Sequential(layers)
    model.compile(OPTIMIZERS[optimizer](), loss="mse", metrics=["mae"])
    model.fit(
        X, Y, batch_size=16, validation_split=0.25, epochs=9, initial_epoch=run.from_epoch if start is None else start,
        callbacks=[FreezeThaw(run, **options)], verbose=0,
    )  # fmt: skip


def sat(folder, ends, **options):
    folder.mkdir()
    bench = Bench(folder, seed=5)
    for end in ends:
        bench.train(lambda run: train(run, **options), [end])
    return bench


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("policy", ["float32", "bfloat16"])
def test_thawed_equals_uninterrupted(tmp_path, optimizer, policy):
    options = {"optimizer": optimizer, "policy": policy}
    whole, parts = (sat(tmp_path / str(len(ends)), ends, **options) for ends in ([5], [1, 3, 5]))
    assert parts.reported == whole.reported
    assert len(set(whole.reported)) == 5
    assert set(whole.metrics[0]) == {"training_loss", "mae", "val_mae"}
    for file in whole.saved.iterdir():
        assert file.read_bytes() == (parts.saved / file.name).read_bytes()


def test_another_loss(tmp_path):
    bench = sat(tmp_path / "mae", [2], loss="val_mae")
    assert set(bench.metrics[0]) == {"training_loss", "mae", "val_loss"}
    with pytest.raises(
        TrainingError, match="there is no 'auc' in the logs, only loss, mae, val_loss, val_mae; set loss="
    ):
        sat(tmp_path / "auc", [2], loss="auc")


def test_mistakes(tmp_path):
    bench = sat(tmp_path / "one", [2])
    with pytest.raises(TrainingError, match="expected epoch 3, not 1: fit"):
        bench.train(lambda run: train(run, start=0), [4])
    with pytest.raises(TrainingError, match="of another model"):
        bench.train(lambda run: train(run, units=5), [4])


def test_a_checkpoint_is_never_executed(tmp_path):
    bench = sat(tmp_path / "one", [1])
    (bench.saved / "variables.npz").write_bytes(exploit(tmp_path / "executed"))
    with pytest.raises(ValueError, match="contains pickled"):
        bench.train(train, [2])
    assert not (tmp_path / "executed").exists()


def test_the_weights_of_a_checkpoint_are_loaded_alone(tmp_path):
    def build(units):
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(units)])
        model.compile("adam", loss="mse")
        return model

    model, other, larger = build(1), build(1), build(2)

    def train(run):
        model.fit(X, Y, validation_split=0.25, epochs=9, callbacks=[FreezeThaw(run)], verbose=0)

    bench = Bench(tmp_path)
    bench.train(train, [2])
    load(bench.saved, other)
    assert np.array_equal(model.predict(X, verbose=0), other.predict(X, verbose=0))
    with pytest.raises(TrainingError, match="of another model"):
        load(bench.saved, larger)
