"""The three problems: what is trained, over which space, for how many epochs; and each in a small version for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import freezethaw as ft
from experiments import data, logistic_regression, matrix_factorisation, online_lda
from experiments.logistic_regression import LogisticRegression
from experiments.matrix_factorisation import MatrixFactorisation
from experiments.online_lda import OnlineLda

MAX_EPOCHS = 100  # as many as the paper's baseline may choose


class Training(Protocol):
    """One run of a problem."""

    def train_epoch(self) -> float:
        """Train; the held-out loss."""

    def save(self, folder: Path) -> None:
        """All that the next epoch needs."""

    def load(self, folder: Path) -> None:
        """Load a saved state."""


@dataclass(frozen=True)
class Problem:
    """What the methods are compared on."""

    name: str
    title: str
    loss: str  # what the loss is, in words
    space: ft.Space
    build: Callable[[Mapping[str, Any], int], Training]
    load_data: Callable[[], object]  # raises DataError
    budget: int  # epochs of one study
    max_epochs: int = MAX_EPOCHS


class FewImages(LogisticRegression):
    """An epoch of a tenth of the images."""

    images = 5_000


class FewArticles(OnlineLda):
    """An epoch of one minibatch."""

    articles = 500
    held_out_articles = 300


LOGISTIC = Problem(
    "logistic",
    "Logistic regression on MNIST",
    "held-out error rate",
    logistic_regression.SPACE,
    LogisticRegression,
    data.images,
    budget=600,
)
LDA = Problem(
    "lda",
    "Online LDA on Wikipedia",
    "held-out perplexity per word",
    online_lda.SPACE,
    OnlineLda,
    data.articles,
    budget=300,
)
PMF = Problem(
    "pmf",
    "Matrix factorisation on MovieLens 100K",
    "held-out root mean squared error",
    matrix_factorisation.SPACE,
    MatrixFactorisation,
    data.ratings,
    budget=800,
)
PROBLEMS = {problem.name: problem for problem in (LOGISTIC, LDA, PMF)}


def _small(problem: Problem, build: Callable[[Mapping[str, Any], int], Training]) -> Problem:
    return Problem(
        problem.name, problem.title, problem.loss, problem.space, build, problem.load_data, budget=40, max_epochs=10
    )


QUICK = {
    "logistic": _small(LOGISTIC, FewImages),
    "lda": _small(LDA, FewArticles),
    "pmf": _small(PMF, MatrixFactorisation),
}
