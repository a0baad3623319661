"""FreezeThawSearchCV: a search as scikit-learn knows them."""

from __future__ import annotations

import numpy as np
import pytest

import freezethaw as ft
from freezethaw.errors import StudyError
from tests.trainers.libraries import needs

needs("sklearn", "skops")
from sklearn.base import clone  # noqa: E402
from sklearn.cluster import MiniBatchKMeans  # noqa: E402
from sklearn.datasets import load_digits, make_regression  # noqa: E402
from sklearn.ensemble import GradientBoostingRegressor  # noqa: E402
from sklearn.linear_model import SGDClassifier  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from freezethaw.search_cv import FreezeThawSearchCV  # noqa: E402

SPACE = ft.Space(alpha=ft.Float(1e-6, 1.0, log=True))


@parametrize_with_checks([FreezeThawSearchCV(SGDClassifier(loss="log_loss"), SPACE, max_epochs=2, budget=2, cv=2)])
@pytest.mark.filterwarnings("ignore")  # of scikit-learn's own checks
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    return images[:500] / 16, labels[:500]


def test_a_search(digits, tmp_path):
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    search = FreezeThawSearchCV(
        SGDClassifier(loss="log_loss"), SPACE, max_epochs=5, budget=20, cv=3, store=f"sqlite:///{tmp_path}/digits.db"
    ).fit(*digits)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
    results = search.cv_results_
    assert search.best_score_ > 0.8
    assert search.best_score_ <= results["mean_test_score"][search.best_index_]  # judged with the noise removed
    assert sum(results["n_epochs"]) == 20
    assert results["params"][search.best_index_] == search.best_params_ == {"alpha": search.best_estimator_.alpha}
    assert search.score(*digits) > 0.9
    assert search.best_estimator_.t_ == pytest.approx(1 + 500 * search.best_epoch_)
    more = clone(search).set_params(budget=24).fit(*digits)  # continues
    assert sum(more.cv_results_["n_epochs"]) == 24
    assert more.cv_results_["params"][:2] == results["params"][:2]


def test_one_that_is_continued_by_warm_start():
    X, y = make_regression(80, 4, random_state=0)
    space = ft.Space(learning_rate=ft.Float(0.01, 1.0, log=True), max_depth=ft.Int(1, 4))
    search = FreezeThawSearchCV(GradientBoostingRegressor(), space, max_epochs=4, budget=8, rounds=5, cv=2).fit(X, y)
    assert len(search.best_estimator_.estimators_) == 5 * search.best_epoch_


def test_in_processes(digits):
    search = FreezeThawSearchCV(SGDClassifier(), SPACE, max_epochs=2, budget=4, cv=2, n_jobs=2).fit(*digits)
    assert sum(search.cv_results_["n_epochs"]) == 4


def test_one_without_labels():
    X, _ = make_regression(60, 3, random_state=0)
    search = FreezeThawSearchCV(
        MiniBatchKMeans(n_init=1), ft.Space(n_clusters=ft.Int(2, 6)), max_epochs=2, budget=4, cv=2
    )
    assert search.fit(X).predict(X).shape == (60,)


def test_a_dict_of_parameters_is_a_space(digits):
    search = FreezeThawSearchCV(SGDClassifier(), dict(SPACE.parameters), max_epochs=2, budget=2, cv=2)
    assert set(search.fit(*digits).best_params_) == set(SPACE.names)


def test_mistakes(digits):
    with pytest.raises(StudyError, match="space is required"):
        FreezeThawSearchCV(SGDClassifier()).fit(*digits)
    with pytest.raises(StudyError, match="sample_weight: fit parameters other than"):
        FreezeThawSearchCV(SGDClassifier(), SPACE).fit(*digits, sample_weight=np.ones(500))
    with pytest.raises(ValueError, match="Invalid parameter 'beta'"):
        FreezeThawSearchCV(SGDClassifier(), ft.Space(beta=ft.Float(0.0, 1.0)), budget=3).fit(*digits)
