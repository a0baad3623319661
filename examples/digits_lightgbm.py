"""Tune LightGBM on scikit-learn's digits: a boosting round is an epoch. `boost` takes the place of `lightgbm.train`."""

from __future__ import annotations

import lightgbm
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import freezethaw as ft
from freezethaw.trainers.lightgbm import boost

MAX_EPOCHS, EPOCHS = 40, 60
SPACE = ft.Space(
    learning_rate=ft.Float(0.01, 1.0, log=True),
    max_depth=ft.Int(2, 8),
    feature_fraction=ft.Float(0.4, 1.0),
    min_sum_hessian_in_leaf=ft.Float(0.1, 10.0, log=True),
)

images, labels = load_digits(return_X_y=True)
TRAIN_X, VALID_X, TRAIN_Y, VALID_Y = train_test_split(images, labels % 2, test_size=0.3, random_state=0)


def train(run):
    fixed = {"objective": "binary", "metric": ["binary_logloss", "binary_error"], "num_threads": 1, "verbose": -1}
    train_set = lightgbm.Dataset(TRAIN_X, TRAIN_Y, free_raw_data=False)
    valid_set = lightgbm.Dataset(VALID_X, VALID_Y, reference=train_set, free_raw_data=False)
    boost(run, {**fixed, **run.config}, train_set, valid_sets=[valid_set])


def main(epochs: int = EPOCHS) -> ft.Result:
    result = ft.tune(train, SPACE, max_epochs=MAX_EPOCHS, budget=epochs)
    best = result.best
    print(f"best: run {best.run}, epoch {best.epoch}, loss {best.loss:.4f}  {dict(best.config)}")
    return result


if __name__ == "__main__":
    main()
