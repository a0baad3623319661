"""Tune a Keras network on scikit-learn's digits. One line makes it freeze and thaw: the callback, given to `fit`."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import freezethaw as ft
from freezethaw.trainers.keras import FreezeThaw

MAX_EPOCHS, EPOCHS = 15, 30
SPACE = ft.Space(
    learning_rate=ft.Float(1e-4, 0.1, log=True),
    hidden=ft.Int(8, 128, log=True),
    dropout=ft.Float(0.0, 0.6),
    batch_size=ft.Choice(32, 64, 128, ordered=True),
)

images, labels = load_digits(return_X_y=True)
TRAIN_X, VALID_X, TRAIN_Y, VALID_Y = train_test_split(images / 16.0, labels, test_size=0.3, random_state=0)


def train(run):
    keras.utils.set_random_seed(run.seed)
    config = run.config
    model = keras.Sequential(
        [
            keras.layers.Dense(config["hidden"], activation="relu"),
            keras.layers.Dropout(config["dropout"]),
            keras.layers.Dense(10),
        ]
    )
    measure = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(config["learning_rate"]), loss=measure, metrics=["accuracy"])
    model.fit(
        TRAIN_X,
        TRAIN_Y,
        batch_size=config["batch_size"],
        validation_data=(VALID_X, VALID_Y),
        epochs=MAX_EPOCHS,
        initial_epoch=run.from_epoch,
        callbacks=[FreezeThaw(run)],
        verbose=0,
    )


def main(epochs: int = EPOCHS) -> ft.Result:
    result = ft.tune(train, SPACE, max_epochs=MAX_EPOCHS, budget=epochs)
    best = result.best
    print(f"best: run {best.run}, epoch {best.epoch}, loss {best.loss:.4f}  {dict(best.config)}")
    return result


if __name__ == "__main__":
    main()
