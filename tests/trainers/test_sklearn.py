"""scikit-learn: estimators of both kinds continue where they were frozen, and nothing in a checkpoint is executed."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from freezethaw.errors import TrainingError
from tests.trainers.bench import Bench
from tests.trainers.libraries import exploit, needs

needs("sklearn", "skops")
from sklearn import cluster, ensemble, linear_model, naive_bayes, neural_network, svm  # noqa: E402
from sklearn.base import BaseEstimator, is_classifier  # noqa: E402
from sklearn.datasets import make_classification  # noqa: E402

from freezethaw.trainers.sklearn import EstimatorState, thawed, train_epoch  # noqa: E402

X, Y = make_classification(120, n_features=6, n_informative=4, n_classes=3, random_state=0)
ESTIMATORS = {
    "sgd": (linear_model.SGDClassifier, {"loss": "log_loss", "average": True}),
    "sgd regression": (linear_model.SGDRegressor, {"learning_rate": "adaptive"}),
    "perceptron": (linear_model.Perceptron, {}),
    "network, adam": (neural_network.MLPClassifier, {"hidden_layer_sizes": (5,)}),
    "network, sgd": (neural_network.MLPRegressor, {"hidden_layer_sizes": (5,), "solver": "sgd"}),
    "clusters": (cluster.MiniBatchKMeans, {"n_clusters": 3, "n_init": 1}),
    "bayes": (naive_bayes.GaussianNB, {}),
    "forest": (ensemble.RandomForestClassifier, {}),
    "forest of the shared generator": (ensemble.ExtraTreesRegressor, {"random_state": None, "max_depth": 3}),
    "boosting": (ensemble.GradientBoostingClassifier, {"subsample": 0.7}),
    "histogram boosting": (ensemble.HistGradientBoostingRegressor, {"min_samples_leaf": 5}),
    "logistic regression": (linear_model.LogisticRegression, {}),
}
# nodes of scikit-learn's trees have padding, and leaves a flag, that nobody sets: equal trees may differ in such bytes
OF_TREES = {"forest", "forest of the shared generator", "boosting"}
MEASURED = ("decision_function", "predict_proba", "transform", "predict")


def losses(folder, ends, kind, options):
    folder.mkdir()
    bench = Bench(folder, seed=5)

    def train(run):
        seeded = {} if kind is naive_bayes.GaussianNB else {"random_state": run.seed}
        model = kind(**seeded | options)
        state = thawed(run, model)
        classes = np.unique(Y) if is_classifier(model) else None
        for epoch in run.epochs():
            train_epoch(model, epoch, X, Y, classes)
            found = next(getattr(model, name)(X) for name in MEASURED if hasattr(model, name))
            run.report(float(np.sum(found.ravel() * np.arange(found.size))), save=state.save)

    for end in ends:
        bench.train(train, [end])
    return bench


@pytest.mark.parametrize("name", ESTIMATORS)
def test_thawed_equals_uninterrupted(tmp_path, name):
    whole = losses(tmp_path / "whole", [5], *ESTIMATORS[name])
    parts = losses(tmp_path / "parts", [1, 3, 5], *ESTIMATORS[name])
    assert parts.reported == whole.reported
    assert len(set(whole.reported)) >= (1 if name == "bayes" else 3)
    saved = [(bench.saved / "estimators.skops").read_bytes() for bench in (whole, parts)]
    if name not in OF_TREES:
        assert saved[0] == saved[1]


def test_several_estimators_at_once(tmp_path):
    made = [linear_model.SGDRegressor(random_state=seed) for seed in range(2)]
    for one in made:
        one.partial_fit(X, Y)
    EstimatorState(*made).save(tmp_path)
    fresh = [linear_model.SGDRegressor(), linear_model.SGDRegressor()]
    EstimatorState(*fresh).load(tmp_path)
    assert [one.predict(X).tolist() for one in fresh] == [one.predict(X).tolist() for one in made]


def test_an_estimator_that_trains_in_one_go():
    with pytest.raises(TrainingError, match="SVC has neither partial_fit nor warm_start"):
        train_epoch(svm.SVC(), 1, X, Y)


def test_another_estimator_than_the_one_that_was_saved(tmp_path):
    EstimatorState(linear_model.SGDRegressor()).save(tmp_path)
    with pytest.raises(TrainingError, match=r"the checkpoint contains \[SGDRegressor"):
        EstimatorState(linear_model.SGDClassifier()).load(tmp_path)


class Mine(BaseEstimator):
    """Of a type that nobody has heard of."""


def test_types_of_the_user_are_named(tmp_path):
    with pytest.raises(TrainingError, match=r"unknown types tests\.trainers\.test_sklearn\.Mine; allow"):
        EstimatorState(Mine()).save(tmp_path)
    EstimatorState(Mine(), trusted=["tests.trainers.test_sklearn.Mine"]).save(tmp_path)
    with pytest.raises(Exception, match=r"[Uu]ntrusted.*Mine"):
        EstimatorState(Mine()).load(tmp_path)


def test_a_checkpoint_is_never_executed(tmp_path):
    (tmp_path / "estimators.skops").write_bytes(exploit(tmp_path / "executed"))
    with pytest.raises(zipfile.BadZipFile):
        EstimatorState(linear_model.SGDRegressor()).load(tmp_path)
    EstimatorState(linear_model.SGDRegressor()).save(tmp_path)
    with zipfile.ZipFile(tmp_path / "estimators.skops") as file:
        schema = file.read("schema.json").decode()
    assert '"SGDRegressor"' in schema
    changed = schema.replace('"SGDRegressor"', '"Popen"').replace(
        "sklearn.linear_model._stochastic_gradient", "subprocess"
    )
    with zipfile.ZipFile(tmp_path / "estimators.skops", "w") as file:
        file.writestr("schema.json", changed)
    with pytest.raises(Exception, match=r"[Uu]ntrusted"):
        EstimatorState(linear_model.SGDRegressor()).load(tmp_path)
    assert not (tmp_path / "executed").exists()
