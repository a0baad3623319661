"""Probabilistic matrix factorisation on MovieLens 100K: rank, learning rate and l2 penalty (the paper's section 6).

A rating is predicted as mean + b_user + b_item + U_user . V_item; rank 0 is the mean and the biases alone. The loss is
the root mean squared error on 10 % of the ratings, held out. The objective, in which a factor is penalised once for
each rating it takes part in, and the clipping of predictions to [1, 5] are those of Salakhutdinov's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.sparse import csc_matrix

import freezethaw as ft
from experiments import checkpoint, data

SPACE = ft.Space(
    rank=ft.Int(0, 50),
    learning_rate=ft.Float(1e-4, 1e-1, log=True),
    l2=ft.Float(0.0, 1.0),
)
MINIBATCH = 500  # ratings whose gradients are summed: so small that few of a user or an item meet
START = 0.1  # standard deviation of the first factors


class MatrixFactorisation:
    """Minimises the sum of error^2 + l2 / 2 |parameters of the rating|^2 by stochastic gradient descent.

    The biases are two more columns of the factors: those of users are met by ones among the items', and vice versa.
    """

    def __init__(self, config: Mapping[str, float], seed: int) -> None:
        self.config, self.rng = config, np.random.default_rng(seed)
        self.train, self.held_out = data.ratings()
        self.mean = self.train.rating.mean()
        rank = int(config["rank"])
        self.users = np.zeros((data.USERS, rank + 2))
        self.items = np.zeros((data.ITEMS, rank + 2))
        self.users[:, :rank] = START * self.rng.standard_normal((data.USERS, rank))
        self.items[:, :rank] = START * self.rng.standard_normal((data.ITEMS, rank))
        self.users[:, rank + 1] = self.items[:, rank] = 1.0

    def train_epoch(self) -> float:
        """One pass over the ratings in a fresh random order; the held-out error."""
        found = self.train.rows(self.rng.permutation(len(self.train)))
        with np.errstate(all="ignore"):  # a run that diverges ends with a loss that is not finite
            for start in range(0, len(found), MINIBATCH):
                rows = slice(start, start + MINIBATCH)
                self._step(found.user[rows], found.item[rows], found.rating[rows])
            return self.error()

    def error(self) -> float:
        """Root mean squared error on held-out ratings; NaN where a factor is not finite."""
        if not (np.isfinite(self.users).all() and np.isfinite(self.items).all()):
            return float("nan")
        h = self.held_out
        predicted = self.mean + np.einsum("nk,nk->n", self.users[h.user], self.items[h.item])
        return float(np.sqrt(np.mean((np.clip(predicted, 1.0, 5.0) - h.rating) ** 2)))

    def save(self, folder: Path) -> None:
        """All that the next epoch needs."""
        checkpoint.write(folder, {"users": self.users, "items": self.items}, self.rng)

    def load(self, folder: Path) -> None:
        """Load the state that `save` wrote."""
        found = checkpoint.read(folder, self.rng)
        self.users, self.items = found["users"], found["items"]

    def _step(self, user: np.ndarray, item: np.ndarray, rating: np.ndarray) -> None:
        rate, l2, rank = self.config["learning_rate"], self.config["l2"], int(self.config["rank"])
        P, Q = self.users[user], self.items[item]
        error = (rating - self.mean - np.einsum("nk,nk->n", P, Q))[:, None]
        up, uq = 2 * error * Q - l2 * P, 2 * error * P - l2 * Q
        up[:, rank + 1] = uq[:, rank] = 0.0  # the ones stay
        self.users += rate * _summed(up, user, data.USERS)
        self.items += rate * _summed(uq, item, data.ITEMS)


def _summed(values: np.ndarray, at: np.ndarray, size: int) -> np.ndarray:
    """(size, columns) sums of the rows of `values` that belong to each place: a sparse matrix of ones does it."""
    n = len(at)
    return np.asarray(csc_matrix((np.ones(n), at, np.arange(n + 1)), shape=(size, n)) @ values)
