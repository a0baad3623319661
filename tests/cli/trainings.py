"""Trainings for the check: one that is right, and its twins with one planted mistake each."""

from __future__ import annotations

import json
import pickle
import random
import time

DATA = [((7 * i) % 13 / 13.0, (5 * i) % 11 / 11.0) for i in range(40)]


class Line:
    """Fits a line by gradient descent with momentum, a falling rate and shuffled data."""

    split_seed = shuffle_seed = True

    def __init__(self, config, seed):
        self.rate, self.momentum = config["rate"], config["momentum"]
        self.rng = random.Random(seed)
        split = random.Random(seed) if self.split_seed else random.Random()
        points = list(DATA)
        self.held = [points.pop(split.randrange(len(points))) for _ in range(10)]
        self.points = points
        self.a, self.b, self.speed, self.epoch = self.rng.random(), 0.0, [0.0, 0.0], 0

    def train_epoch(self):
        self.epoch += 1
        rate = self.rate / self.epoch**0.5
        self.rng.shuffle(self.points)
        for x, y in self.training_points():
            error = self.a * x + self.b - y
            self.speed = [self.momentum * v - rate * error * g for v, g in zip(self.speed, (x, 1.0), strict=True)]
            self.a, self.b = self.a + self.speed[0], self.b + self.speed[1]
        return self.loss()

    def training_points(self):
        return sorted(self.points) if not self.shuffle_seed else self.points

    def loss(self):
        return sum((self.a * x + self.b - y) ** 2 for x, y in self.held) / len(self.held)

    def state(self):
        return {
            "weights": [self.a, self.b],
            "speed": self.speed,
            "epoch": self.epoch,
            "points": self.points,
            "random": self.rng.getstate(),
        }

    def save(self, folder):
        for name, value in self.state().items():
            (folder / f"{name}.json").write_text(json.dumps(value))

    def load(self, folder):
        state = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
        self.a, self.b = state["weights"]
        self.speed = state.get("speed", [0.0, 0.0])
        self.epoch = state["epoch"]
        self.points = [tuple(point) for point in state["points"]]
        version, numbers, rest = state["random"]
        self.rng.setstate((version, tuple(numbers), rest))


class OptimiserForgotten(Line):
    """The momentum is not saved."""

    def state(self):
        return {key: value for key, value in super().state().items() if key != "speed"}


class OffByOne(Line):
    """Epochs are counted from 0 when saved, from 1 when loaded."""

    def load(self, folder):
        super().load(folder)
        self.epoch -= 1


class OneEpochBack(Line):
    """What is saved is the state before the last epoch."""

    def train_epoch(self):
        self.before = json.loads(json.dumps(self.state()))
        return super().train_epoch()

    def save(self, folder):
        for name, value in self.before.items():
            (folder / f"{name}.json").write_text(json.dumps(value))


class UnseededSplit(Line):
    """Other data are held out in each process; the training itself is seeded."""

    split_seed = False

    def __init__(self, config, seed):
        super().__init__(config, seed)
        self.points = sorted(DATA)


class UnseededTraining(Line):
    """Other data are trained on in each process."""

    split_seed = False


class UnseededAfterThaw(Line):
    """A fresh random generator after each thaw."""

    def load(self, folder):
        super().load(folder)
        self.rng = random.Random()


class NeverLoaded(Line):
    """Whoever thaws starts from scratch."""

    def load(self, folder):
        pass


class Stamped(Line):
    """Right, but its files hold the time."""

    def save(self, folder):
        super().save(folder)
        (folder / "time.txt").write_text(repr(time.time_ns()))


class Wobbles(Line):
    """Its losses differ in the sixth digit in each process."""

    def __init__(self, config, seed):
        super().__init__(config, seed)
        self.wobble = 1 + 1e-5 * random.random()

    def loss(self):
        return self.wobble * super().loss()


class CounterForgotten(Line):
    """A counter that matters to no loss comes back wrong."""

    seen = 0

    def train_epoch(self):
        self.seen += 100
        return super().train_epoch()

    def state(self):
        return super().state() | {"seen": self.seen}


class CannotLoad(Line):
    """Loading fails."""

    def load(self, folder):
        raise KeyError("velocity")


class SavesNothing(Line):
    """Saving does nothing."""

    def save(self, folder):
        pass


def shifted(run):
    """A schedule that reads run.from_epoch, and is one off after a thaw."""
    weight = 4.0
    if run.checkpoint:
        weight = float((run.checkpoint / "w").read_text())
    for epoch in run.epochs():
        weight *= 1 - run.config["rate"] / (epoch - (run.from_epoch > 0))
        run.report(weight, save=lambda folder: (folder / "w").write_text(repr(weight)))


def never_loads(run):
    """A function that forgets to look at run.checkpoint; its schedule follows the epochs."""
    weight = 4.0
    for epoch in run.epochs():
        weight *= 1 - run.config["rate"] / epoch
        run.report(weight, save=lambda folder: (folder / "w").write_text(repr(weight)))


def stops_early(run):
    for epoch in run.epochs():
        run.report(1.0 / epoch, save=lambda folder: (folder / "w").write_text("w"))
        if epoch == 3:
            return


def fails(run):
    raise ValueError("no data in /data")


def diverges(run):
    for _ in run.epochs():
        run.report(float("nan"))


def without_save(run):
    for epoch in run.epochs():
        run.report(1.0 / epoch)


def pickled(run):
    """A model in a pickle whose bytes change when it is loaded and saved again, as those of scikit-learn do."""
    state = pickle.loads((run.checkpoint / "model.pkl").read_bytes()) if run.checkpoint else {"w": 4.0, "loaded": False}
    loaded = run.checkpoint is not None
    for _ in run.epochs():
        state["w"] *= 1 - run.config["rate"]
        state["loaded"] = state["loaded"] or loaded  # stands for what a library keeps, which changes no loss
        run.report(state["w"] ** 2, save=lambda folder: (folder / "model.pkl").write_bytes(pickle.dumps(state)))


def pickled_and_forgotten(run):
    """The same, but the speed is lost, which shows in losses only after the next epoch."""
    state = {"w": 4.0, "speeds": [0.0, 0.0]}
    if run.checkpoint:
        state = pickle.loads((run.checkpoint / "model.pkl").read_bytes()) | {"speeds": [0.0, 0.0]}
    for _ in run.epochs():
        speeds = state["speeds"]
        state["w"] -= 0.1 * speeds[0]
        state["speeds"] = [speeds[1], run.config["rate"] * state["w"]]
        run.report(state["w"] ** 2, save=lambda folder: (folder / "model.pkl").write_bytes(pickle.dumps(state)))
