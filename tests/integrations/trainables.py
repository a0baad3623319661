"""Trainables of Ray Tune for the tests. Each writes down the epochs that it trains, and where."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

from ray import get_runtime_context, tune

RAISES, DIVERGES, DIES = 0.11, 0.12, 0.13  # rates at which something happens in epoch 2


def train(weight, config, epoch):
    """One epoch, written down."""
    with Path(config["log"]).open("a") as log:
        log.write(f"{config['rate']} {epoch} {get_runtime_context().get_node_id()}\n")
    time.sleep(config.get("seconds", 0))
    while config.get("together") and len(Path(config["log"]).read_text().splitlines()) < 2:
        time.sleep(0.05)  # for as long as the other actor takes to start
    if epoch == 2:
        misfortune(config)
    return float("nan") if epoch == 2 and config["rate"] == DIVERGES else weight * (1 - config["rate"])


def misfortune(config):
    if config["rate"] == RAISES:
        raise RuntimeError("as asked")
    marker = Path(config["log"]).with_suffix(".died")
    if config["rate"] == DIES and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def curve(rate, epochs):
    """What an uninterrupted training gives."""
    weight, losses = 1.0, []
    for _ in range(epochs):
        weight *= 1 - rate
        losses.append(weight)
    return tuple(losses)


def descend(config):
    """A function that saves when it reports."""
    weight, epoch = 1.0, 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            weight, epoch = _read(folder)
    while True:
        epoch += 1
        weight = train(weight, config, epoch)
        with tempfile.TemporaryDirectory() as folder:
            _write(folder, weight, epoch)
            tune.report({"loss": weight, "gain": -weight}, checkpoint=tune.Checkpoint.from_directory(folder))


def forgetful(config):
    """A function that saves nothing."""
    weight = 1.0
    for epoch in range(1, 10):
        weight = train(weight, config, epoch)
        tune.report({"loss": weight})


class Descend(tune.Trainable):
    """A class that saves when asked."""

    def setup(self, config):
        self.weight, self.epoch = 1.0, 0

    def step(self):
        self.epoch += 1
        self.weight = train(self.weight, self.config, self.epoch)
        return {"loss": self.weight}

    def save_checkpoint(self, folder):
        _write(folder, self.weight, self.epoch)

    def load_checkpoint(self, folder):
        self.weight, self.epoch = _read(folder)


class Forgetful(tune.Trainable):
    """A class that cannot save."""

    def step(self):
        train(1.0, self.config, self.iteration + 1)
        return {"loss": 1.0}


def _write(folder, weight, epoch):
    (Path(folder) / "state").write_text(f"{weight!r} {epoch}")


def _read(folder):
    weight, epoch = (Path(folder) / "state").read_text().split()
    return float(weight), int(epoch)
