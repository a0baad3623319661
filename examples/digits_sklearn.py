"""Tune a network of scikit-learn on its digits. Two lines make it freeze and thaw: `thawed` and `save=`."""

from __future__ import annotations

from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import freezethaw as ft
from freezethaw.trainers.sklearn import thawed

MAX_EPOCHS, EPOCHS = 20, 60
SPACE = ft.Space(
    learning_rate_init=ft.Float(1e-4, 0.1, log=True),
    hidden=ft.Int(8, 128, log=True),
    alpha=ft.Float(1e-6, 1.0, log=True),
    batch_size=ft.Int(16, 256, log=True),
)

images, labels = load_digits(return_X_y=True)
TRAIN_X, VALID_X, TRAIN_Y, VALID_Y = train_test_split(images / 16.0, labels, test_size=0.3, random_state=0)


def train(run):
    config = dict(run.config)
    model = MLPClassifier(hidden_layer_sizes=(config.pop("hidden"),), random_state=run.seed, **config)

    state = thawed(run, model)
    for _ in run.epochs():
        model.partial_fit(TRAIN_X, TRAIN_Y, classes=range(10))
        loss = log_loss(VALID_Y, model.predict_proba(VALID_X))
        run.report(loss, save=state.save, accuracy=model.score(VALID_X, VALID_Y))


def main(epochs: int = EPOCHS) -> ft.Result:
    result = ft.tune(train, SPACE, max_epochs=MAX_EPOCHS, budget=epochs)
    best = result.best
    print(f"best: run {best.run}, epoch {best.epoch}, loss {best.loss:.4f}  {dict(best.config)}")
    return result


if __name__ == "__main__":
    main()
