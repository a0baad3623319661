"""Two related problems: tune a network on the digits 0 to 4, then on 5 to 9 with and without what was learnt."""

import tempfile
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import freezethaw as ft
from freezethaw.trainers.sklearn import thawed

MAX_EPOCHS = 20
SPACE = ft.Space(
    learning_rate=ft.Float(1e-5, 1.0, log=True),
    momentum=ft.Float(0.0, 0.99),
    alpha=ft.Float(1e-6, 10.0, log=True),
    batch_size=ft.Int(8, 512, log=True),
)
IMAGES, LABELS = load_digits(return_X_y=True)


def trainer(digits):
    """The function that trains one run on these digits."""
    chosen = [label in digits for label in LABELS]
    x, x_valid, y, y_valid = train_test_split(IMAGES[chosen] / 16, LABELS[chosen], test_size=0.3, random_state=0)

    def train(run):
        config = run.config
        model = MLPClassifier(
            (32,),
            solver="sgd",
            learning_rate_init=config["learning_rate"],
            momentum=config["momentum"],
            alpha=config["alpha"],
            batch_size=config["batch_size"],
            random_state=run.seed % 2**32,
        )
        state = thawed(run, model)
        for _ in run.epochs():
            model.partial_fit(x, y, classes=digits)
            run.report(log_loss(y_valid, model.predict_proba(x_valid), labels=digits), save=state.save)

    return train


def main(old_epochs=80, epochs=20, seed=0):
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "digits.db"

        def search(digits, budget, name, learn_from=()):
            return ft.tune(
                trainer(digits),
                SPACE,
                max_epochs=MAX_EPOCHS,
                budget=budget,
                name=name,
                seed=seed,
                store=store,
                bounds=(0, None),
                learn_from=learn_from,
            )

        old = search([0, 1, 2, 3, 4], old_epochs, "digits 0 to 4")
        print(f"digits 0 to 4, {old.epochs} epochs: best loss {old.best.loss:.4f}")
        for learn_from in ([], [f"{store}#digits 0 to 4"]):
            name = "learnt" if learn_from else "alone"
            found = search([5, 6, 7, 8, 9], epochs, name, learn_from)
            print(f"digits 5 to 9, {name:6}, {found.epochs} epochs: best loss {found.best.loss:.4f}")
        with ft.Study.open(store, "learnt") as study:
            print(f"decision 1: {study.explain(1).decision.reason}")


if __name__ == "__main__":
    main()
