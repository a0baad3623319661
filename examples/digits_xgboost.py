"""Tune XGBoost on scikit-learn's digits: a boosting round is an epoch. `boost` takes the place of `xgboost.train`."""

from __future__ import annotations

import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import freezethaw as ft
from freezethaw.trainers.xgboost import boost

MAX_EPOCHS, EPOCHS = 40, 60
SPACE = ft.Space(
    learning_rate=ft.Float(0.01, 1.0, log=True),
    max_depth=ft.Int(2, 8),
    subsample=ft.Float(0.4, 1.0),
    min_child_weight=ft.Float(0.1, 10.0, log=True),
)

images, labels = load_digits(return_X_y=True)
TRAIN_X, VALID_X, TRAIN_Y, VALID_Y = train_test_split(images, labels % 2, test_size=0.3, random_state=0)


def train(run):
    fixed = {"objective": "binary:logistic", "eval_metric": ["error", "logloss"], "nthread": 1}
    dtrain, dvalid = xgboost.DMatrix(TRAIN_X, TRAIN_Y), xgboost.DMatrix(VALID_X, VALID_Y)
    boost(run, {**fixed, **run.config}, dtrain, evals=[(dvalid, "valid")])


def main(epochs: int = EPOCHS) -> ft.Result:
    result = ft.tune(train, SPACE, max_epochs=MAX_EPOCHS, budget=epochs)
    best = result.best
    print(f"best: run {best.run}, epoch {best.epoch}, loss {best.loss:.4f}  {dict(best.config)}")
    return result


if __name__ == "__main__":
    main()
