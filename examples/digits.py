"""Tune a small neural network on scikit-learn's digits: 200 epochs shared out among many runs, by two workers."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import freezethaw as ft

MAX_EPOCHS, EPOCHS = 30, 200
FOLDER = Path("freezethaw-demo")
SPACE = ft.Space(
    learning_rate=ft.Float(1e-4, 1.0, log=True),
    hidden=ft.Int(8, 256, log=True),
    batch_size=ft.Int(16, 512, log=True),
    l2=ft.Float(1e-5, 1e-1, log=True),
    momentum=ft.Float(0.0, 0.99),
)
# what one would try first: SGD with momentum, small batches, a little weight decay
DEFAULT = {"learning_rate": 0.05, "hidden": 64, "batch_size": 32, "l2": 1e-4, "momentum": 0.9}

images, labels = load_digits(return_X_y=True)
TRAIN_X, VALID_X, TRAIN_Y, VALID_Y = train_test_split(images / 16.0, labels, test_size=0.3, random_state=0)


class Network:
    """One hidden layer, softmax, SGD with momentum: everything that must survive a freeze is in `state`."""

    def __init__(self, config, seed):
        self.config, self.rng = config, np.random.default_rng(seed)
        h = config["hidden"]
        self.weights = {
            "w1": self.rng.normal(0, math.sqrt(2 / 64), (64, h)),
            "b1": np.zeros(h),
            "w2": self.rng.normal(0, math.sqrt(1 / h), (h, 10)),
            "b2": np.zeros(10),
        }
        self.velocity = {name: np.zeros_like(w) for name, w in self.weights.items()}

    def forward(self, x):
        hidden = np.maximum(x @ self.weights["w1"] + self.weights["b1"], 0)
        scores = hidden @ self.weights["w2"] + self.weights["b2"]
        scores = scores - scores.max(axis=1, keepdims=True)
        return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

    def train_one_epoch(self):
        order, c = self.rng.permutation(len(TRAIN_X)), self.config
        for start in range(0, len(order), c["batch_size"]):
            batch = order[start : start + c["batch_size"]]
            x, y = TRAIN_X[batch], TRAIN_Y[batch]
            hidden, log_p = self.forward(x)
            error = np.exp(log_p)
            error[np.arange(len(y)), y] -= 1
            error /= len(y)
            back = (error @ self.weights["w2"].T) * (hidden > 0)
            gradients = {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ error, "b2": error.sum(0)}
            for name, gradient in gradients.items():
                step = gradient + c["l2"] * self.weights[name]
                self.velocity[name] = c["momentum"] * self.velocity[name] - c["learning_rate"] * step
                self.weights[name] += self.velocity[name]

    def loss(self):
        log_p = self.forward(VALID_X)[1]
        return float(-log_p[np.arange(len(VALID_Y)), VALID_Y].mean())

    def save(self, folder):
        arrays = {f"weight.{k}": v for k, v in self.weights.items()}
        arrays |= {f"velocity.{k}": v for k, v in self.velocity.items()}
        np.savez(folder / "arrays.npz", **arrays)
        (folder / "rng.json").write_text(json.dumps(self.rng.bit_generator.state))

    def load(self, folder):
        with np.load(folder / "arrays.npz") as arrays:
            for name in self.weights:
                self.weights[name], self.velocity[name] = arrays[f"weight.{name}"], arrays[f"velocity.{name}"]
        self.rng.bit_generator.state = json.loads((folder / "rng.json").read_text())


def train(run):
    network = Network(run.config, run.seed)
    if run.checkpoint:
        network.load(run.checkpoint)
    for _ in run.epochs():
        with np.errstate(all="ignore"):  # a run that diverges reports a loss that is not finite
            network.train_one_epoch()
            loss = network.loss()
        run.report(loss, save=network.save)


class Thaws:
    """A callback that remembers which frozen runs were thawed, and after which epoch."""

    def __init__(self):
        self.frozen, self.thawed = set(), []

    def __call__(self, notice):
        if notice.kind == "frozen":
            self.frozen.add(notice.run)
        elif notice.kind == "decided" and notice.run in self.frozen:
            self.frozen.remove(notice.run)
            self.thawed.append((notice.run, notice.epoch))


def main(epochs: int = EPOCHS, workers: int = 2) -> ft.Result:
    console = Console(highlight=False)
    shutil.rmtree(FOLDER, ignore_errors=True)  # of the demo before
    FOLDER.mkdir()
    store = f"sqlite:///{FOLDER}/study.db"
    console.print(
        f"Tuning {len(SPACE)} hyperparameters of a small network on digits: {epochs} epochs, {workers} workers.\n"
    )
    thaws = Thaws()
    result = ft.tune(
        train,
        SPACE,
        max_epochs=MAX_EPOCHS,
        budget=ft.Budget(epochs=epochs),
        name="digits",
        workers=workers,
        store=store,
        bounds=(0, None),  # a cross-entropy is never negative
        callbacks=[thaws],
        progress=True,
    )
    default = Network(DEFAULT, seed=0)
    losses = []
    for _ in range(MAX_EPOCHS):
        default.train_one_epoch()
        losses.append(default.loss())
    best = result.best
    config = ", ".join(f"{k}={v:.3g}" for k, v in best.config.items())
    console.print(f"\nbest: run {best.run}, epoch {best.epoch}, loss {best.loss:.4f}  ({config})")
    console.print(f"its checkpoint: {best.checkpoint}", soft_wrap=True)
    console.print(f"the default configuration, trained to the end: {min(losses):.4f}")
    full = MAX_EPOCHS * len(result.runs)
    console.print(f"{result.epochs} epochs over {len(result.runs)} runs; training all to the end would cost {full}.")
    deciding, training = result.deciding_seconds, result.training_seconds
    if thaws.thawed:
        run, epoch = max(thaws.thawed, key=lambda thaw: (result.runs[thaw[0] - 1].epoch, -thaw[1]))
        story = f"run {run} was frozen at epoch {epoch} and reached epoch {result.runs[run - 1].epoch} later"
        console.print(f"{len(thaws.thawed)} times a frozen run was thawed: {story}.")
    console.print(f"{training:.1f} s of training, {deciding:.1f} s of deciding.")
    command, where = f"{os.path.relpath(sys.executable)} -m freezethaw", f"{FOLDER}/study.db"
    console.print(
        f"\nnext:  {command} status {where}\n       {command} explain {where} {len(result.runs)}", soft_wrap=True
    )
    console.print("       read examples/digits.py, it is yours to change; `make test` runs the test suite")
    return result


if __name__ == "__main__":
    main(epochs=EPOCHS)
