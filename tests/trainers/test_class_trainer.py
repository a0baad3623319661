"""A class as a training function."""

from __future__ import annotations

import math

import cloudpickle
import pytest

import freezethaw as ft
from freezethaw.errors import TrainingError
from freezethaw.trainers import function_of
from tests.trainers.bench import Bench


class Descent:
    """Gradient descent on a parabola with momentum."""

    def __init__(self, config, seed):
        self.rate, self.weight, self.speed = config["rate"], 1.0 + seed % 8, 0.0

    def train_epoch(self):
        self.speed = 0.5 * self.speed - self.rate * self.weight
        self.weight += self.speed
        return self.weight**2

    def save(self, folder):
        (folder / "state").write_text(f"{self.weight!r} {self.speed!r}")

    def load(self, folder):
        self.weight, self.speed = map(float, (folder / "state").read_text().split())


def test_thawed_equals_uninterrupted(tmp_path):
    (tmp_path / "a").mkdir()
    whole = Bench(tmp_path / "a")
    whole.train(function_of(Descent), [6])
    parts = Bench(tmp_path)
    parts.train(function_of(Descent), [2, 3])
    parts.train(function_of(Descent), [6])
    assert parts.reported == whole.reported
    assert len(set(whole.reported)) == 6


def test_tuned():
    space = ft.Space(rate=ft.Float(0.01, 0.9))
    result = ft.tune(function_of(Descent), space, max_epochs=5, budget=15)
    assert result.best.loss < 8.0**2


@pytest.mark.parametrize(
    ("returned", "loss", "metrics"),
    [
        (0.5, 0.5, {}),
        ((0.5, {"accuracy": 0.9}), 0.5, {"accuracy": 0.9}),
        ({"loss": 0.5, "accuracy": 0.9}, 0.5, {"accuracy": 0.9}),
        (math.nan, math.nan, {}),
    ],
)
def test_what_an_epoch_may_return(tmp_path, returned, loss, metrics):
    class Other(Descent):
        def train_epoch(self):
            return returned

    bench = Bench(tmp_path)
    bench.train(function_of(Other), [1])
    assert bench.reported == pytest.approx([loss], nan_ok=True)
    assert bench.metrics == [metrics]


@pytest.mark.parametrize("returned", [None, "0.5", True, {"accuracy": 1.0}, [0.1, 0.2], ("a", {}), (1.0, {"save": 1})])
def test_what_it_may_not_return(tmp_path, returned):
    class Other(Descent):
        def train_epoch(self):
            return returned

    with pytest.raises(TrainingError, match=r"Other\.train_epoch"):
        Bench(tmp_path).train(function_of(Other), [1])


def test_a_class_method_builds_it(tmp_path):
    class Built(Descent):
        def __init__(self):
            self.weight = self.speed = 0.0

        @classmethod
        def build(cls, config, seed):
            made = cls()
            made.rate, made.weight = config["rate"], 1.0 + seed % 8
            return made

    one, other = Bench(tmp_path), Bench(tmp_path / "x")
    (tmp_path / "x").mkdir()
    assert one.train(function_of(Built), [3]) == other.train(function_of(Descent), [3])


def test_a_missing_method_is_named():
    class Half:
        def train_epoch(self):
            return 1.0

    with pytest.raises(TrainingError, match="Half cannot be trained: it has no method save and no method load"):
        function_of(Half)
    with pytest.raises(TrainingError, match="needs a class"):
        function_of(print)


def test_it_is_sent_to_another_process(tmp_path):
    copy = cloudpickle.loads(cloudpickle.dumps(function_of(Descent)))
    assert copy == function_of(Descent)
