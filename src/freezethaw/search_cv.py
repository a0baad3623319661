"""A search with the interface of scikit-learn: `FreezeThawSearchCV(estimator, space).fit(X, y)`.

An epoch trains the estimator once in each split; its loss is the mean score of the splits. Unlike in halving searches
no configuration is discarded: a frozen one may be thawed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from freezethaw.errors import StudyError, extra
from freezethaw.records import Budget, Checkpoints, Result
from freezethaw.space import Space
from freezethaw.trainers.protocol import TrainingRun
from freezethaw.trainers.random_states import snapshot_random_states
from freezethaw.trainers.sklearn import thawed, train_epoch
from freezethaw.tuning import tune

with extra("sklearn"):
    from joblib import effective_n_jobs
    from sklearn.base import clone, is_classifier
    from sklearn.metrics import check_scoring
    from sklearn.model_selection import check_cv
    from sklearn.model_selection._search import BaseSearchCV  # it has no public name
    from sklearn.utils.metaestimators import _safe_split
    from sklearn.utils.validation import indexable


class FreezeThawSearchCV(BaseSearchCV):
    """Cross-validated search for an estimator with `partial_fit` or `warm_start`.

    `space` is a `Space` or a dict of parameters of the estimator. `max_epochs` is the last epoch of a configuration;
    `budget` is the total number of epochs, each over all splits. `rounds` is the number of iterations that an epoch
    adds with `warm_start`. `scoring`, `cv`, `refit` and `n_jobs` are as in `GridSearchCV`, with one score and one
    process per job. `store`, `name` and `checkpoints` select the study; the same fit continues it. `random_state` is
    the seed.
    """

    def __init__(
        self,
        estimator: Any,
        space: Space | Mapping[str, Any] | None = None,
        *,
        max_epochs: int = 20,
        budget: int | Budget = 100,
        rounds: int = 1,
        scoring: Any = None,
        cv: Any = None,
        refit: bool = True,
        n_jobs: int | None = None,
        store: str | None = None,
        name: str = "study",
        checkpoints: Checkpoints | None = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(estimator, scoring=scoring, cv=cv, refit=refit, n_jobs=n_jobs)
        self.space, self.max_epochs, self.budget, self.rounds = space, max_epochs, budget, rounds
        self.store, self.name, self.checkpoints, self.random_state = store, name, checkpoints, random_state

    def fit(self, X: Any, y: Any = None, **params: Any) -> FreezeThawSearchCV:
        """Search, then train the best configuration on all data up to its best epoch."""
        if self.space is None:
            raise StudyError("space is required: a freezethaw.Space or a dict of parameters")
        X, y = indexable(X, y)
        if params:
            raise StudyError(f"{', '.join(params)}: fit parameters other than X and y are not supported")
        self.scorer_ = check_scoring(self.estimator, self.scoring)
        splits = list(check_cv(self.cv, y, classifier=is_classifier(self.estimator)).split(X, y))
        self.n_splits_, self.multimetric_ = len(splits), False
        errors: list[Exception] = []
        put_back = snapshot_random_states()  # the random generators of the caller stay as they are
        try:
            result = tune(
                _Training(self, X, y, splits, errors), copy.deepcopy(Space.of(self.space)), self.max_epochs,
                self.budget, name=self.name, workers=effective_n_jobs(self.n_jobs), store=self.store,
                seed=self.random_state, direction="maximize", checkpoints=self.checkpoints,
            )  # fmt: skip
        except StudyError:
            if errors:  # the original error of the estimator
                raise errors[0] from None
            raise
        finally:
            put_back()
        self._conclude(result)
        if self.refit:
            begun = time.perf_counter()
            self.best_estimator_ = self._configured(self.best_params_, self.random_state)
            for epoch in range(1, self.best_epoch_ + 1):
                train_epoch(self.best_estimator_, epoch, X, y, _classes(self.estimator, y), self.rounds)
            self.refit_time_ = time.perf_counter() - begun
        return self

    def _configured(self, config: Any, seed: int) -> Any:
        """A new estimator with this configuration."""
        made = clone(self.estimator).set_params(**config)
        parameters = made.get_params(deep=False)
        return made.set_params(random_state=seed) if parameters.get("random_state", 0) is None else made

    def _conclude(self, result: Result) -> None:
        """Set the attributes that searches of scikit-learn have after fitting."""
        best = result.best
        runs = [run for run in result.runs if run.losses and not run.added]
        scores = np.array([max(run.losses) for run in runs])
        names = dict.fromkeys(name for run in runs for name in run.config)
        columns = {f"param_{name}": np.array([run.config.get(name) for run in runs], dtype=object) for name in names}
        self.cv_results_ = columns | {
            "params": [dict(run.config) for run in runs],
            "mean_test_score": scores,
            "rank_test_score": np.array([1 + np.sum(scores > score) for score in scores], dtype=np.int32),
            "n_epochs": np.array([run.epoch for run in runs]),
        }
        self.best_index_ = [run.number for run in runs].index(best.run)
        self.best_params_, self.best_score_, self.best_epoch_ = dict(best.config), best.loss, best.epoch


class _Training:
    """The training of one run: one estimator per split, trained epoch by epoch."""

    def __init__(self, search: FreezeThawSearchCV, X: Any, y: Any, splits: Any, errors: list[Exception]) -> None:
        self.search, self.X, self.y, self.splits, self.errors = search, X, y, splits, errors

    def __call__(self, run: TrainingRun) -> None:
        """Train until the run is frozen."""
        try:
            self._train(run)
        except Exception as error:
            self.errors.append(error)
            raise

    def _train(self, run: TrainingRun) -> None:
        search, classes = self.search, _classes(self.search.estimator, self.y)
        estimators = [search._configured(run.config, run.seed) for _ in self.splits]
        state = thawed(run, *estimators)
        for epoch in run.epochs():
            scores = []
            for estimator, (train, test) in zip(estimators, self.splits, strict=True):
                X, y = _safe_split(estimator, self.X, self.y, train)
                train_epoch(estimator, epoch, X, y, classes, search.rounds)
                X, y = _safe_split(estimator, self.X, self.y, test, train)
                scores.append(search.scorer_(estimator, X) if y is None else search.scorer_(estimator, X, y))
            run.report(float(np.mean(scores)), save=state.save, std=float(np.std(scores)))


def _classes(estimator: Any, y: Any) -> Any:
    return np.unique(y) if y is not None and is_classifier(estimator) else None
