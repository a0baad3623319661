"""Logistic regression on MNIST by stochastic gradient descent: five hyperparameters (the paper's section 6).

The loss is the share of held-out images that are classified wrongly. The paper does not say which images it held out,
nor whether scales were logarithmic: here 10,000 of the 60,000 for training are held out, and rates that span several
orders of magnitude, and the size of a minibatch, are searched on log scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

import freezethaw as ft
from experiments import checkpoint, data

SPACE = ft.Space(
    norm=ft.Float(0.1, 20.0),  # largest norm of the weights of a class
    l2=ft.Float(0.0, 1.0),
    minibatch=ft.Int(20, 2000, log=True),
    dropout=ft.Float(0.0, 0.75),  # of inputs
    learning_rate=ft.Float(1e-6, 1e-1, log=True),
)
CLASSES = 10
LEVELS = 2**16  # dropout is decided by 16 random bits for each pixel
TOGETHER = 2000  # images that are gathered at a time


class LogisticRegression:
    """Softmax regression. Minimises the mean cross-entropy plus l2 |W|^2; |w_k| <= norm for each class k."""

    images: int | None = None  # to train on in an epoch; None: all

    def __init__(self, config: Mapping[str, float], seed: int) -> None:
        self.config, self.rng, self.data = config, np.random.default_rng(seed), data.images()
        self.weights = np.zeros((self.data.pixels.shape[1], CLASSES), dtype=np.float32)
        self.bias = np.zeros(CLASSES, dtype=np.float32)

    def train_epoch(self) -> float:
        """One pass over the images in a fresh random order; the held-out error."""
        size = int(self.config["minibatch"])
        order = self.rng.permutation(len(self.data.pixels))[: self.images]
        together = size * max(TOGETHER // size, 1)
        for first in range(0, len(order), together):
            rows = order[first : first + together]
            x, labels = self._inputs(rows), self.data.labels[rows]
            for start in range(0, len(rows), size):
                self._step(x[start : start + size], labels[start : start + size])
        return self.error()

    def error(self) -> float:
        """Share of held-out images classified wrongly; NaN where the weights are not finite."""
        if not np.isfinite(self.weights).all():
            return float("nan")
        x = self.data.held_out_pixels.astype(np.float32) / np.float32(255)
        return float(np.mean((x @ self.weights + self.bias).argmax(axis=1) != self.data.held_out_labels))

    def save(self, folder: Path) -> None:
        """All that the next epoch needs."""
        checkpoint.write(folder, {"weights": self.weights, "bias": self.bias}, self.rng)

    def load(self, folder: Path) -> None:
        """Load the state that `save` wrote."""
        found = checkpoint.read(folder, self.rng)
        self.weights, self.bias = found["weights"], found["bias"]

    def _inputs(self, rows: np.ndarray) -> np.ndarray:
        """Pixels of these images from 0 to 1, some dropped and the others scaled up, so that their mean stays."""
        x = self.data.pixels[rows].astype(np.float32)
        dropped = round(self.config["dropout"] * LEVELS)
        if dropped:
            x *= self.rng.integers(0, LEVELS, size=x.shape, dtype=np.uint16) >= dropped
        x *= np.float32(1 / (255 * (1 - dropped / LEVELS)))
        return np.asarray(x)

    def _step(self, x: np.ndarray, labels: np.ndarray) -> None:
        scores = x @ self.weights + self.bias
        scores -= scores.max(axis=1, keepdims=True)
        p = np.exp(scores)
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(labels)), labels] -= 1
        p *= np.float32(self.config["learning_rate"] / len(labels))
        self.weights *= np.float32(1 - 2 * self.config["learning_rate"] * self.config["l2"])
        self.weights -= x.T @ p
        self.bias -= p.sum(axis=0)
        norms = np.sqrt(np.einsum("ik,ik->k", self.weights, self.weights))
        if norms.max() > self.config["norm"]:
            self.weights *= np.minimum(1, np.float32(self.config["norm"]) / np.maximum(norms, np.float32(1e-30)))
