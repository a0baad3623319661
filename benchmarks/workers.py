"""What a second worker brings: epochs per hour of one and of two worker processes, as ratios within one run.

python -m benchmarks.workers                    three rounds, some minutes; benchmarks/results/workers.json
python -m benchmarks.workers --rounds 1

Kinds of epochs, one after the other in each round, so that whatever else the machine does hits all alike:
- sleep: an epoch that needs no core, short or long. What is lost here is our own: recording, saving, and above all
  deciding, which one process does at a time, so that it counts the more the shorter epochs are.
- bare: a network without freezethaw, in one process and in two. No tuner can have more than this ratio.
- network: a small network on scikit-learn's digits, tuned; compute-bound, the same work in every epoch.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import freezethaw as ft
from benchmarks import records
from freezethaw.trainers import TrainingRun

RESULTS = Path(__file__).parent / "results" / "workers.json"
SPACE = ft.Space(rate=ft.Float(1e-3, 0.5, log=True), momentum=ft.Float(0.0, 0.95))
TIMES = "FREEZETHAW_TIMES"  # environment: a file for the ends of epochs
MAX_EPOCHS = 20
EACH = 12  # epochs for each worker
PASSES = 400  # over the data in an epoch: about two seconds of one core
SLEEPS = {"sleep 0.5 s": 0.5, "sleep 3 s": 3.0}
KINDS = (*SLEEPS, "bare", "network")
HIDDEN = 64


class Network:
    """One hidden layer on digits, by gradient descent with momentum."""

    def __init__(self, rate: float, momentum: float, seed: int) -> None:
        from sklearn.datasets import load_digits

        rng = np.random.default_rng(seed)
        images, labels = load_digits(return_X_y=True)
        self.images, self.labels = images / 16.0, np.eye(10)[labels]
        self.rate, self.momentum = rate, momentum
        self.weights = [rng.normal(size=(64, HIDDEN)) / 8.0, rng.normal(size=(HIDDEN, 10)) / 8.0]
        self.speeds = [np.zeros_like(w) for w in self.weights]

    def epoch(self) -> float:
        """Some passes over the data; gives the loss."""
        losses = []
        for _ in range(PASSES):
            for at in range(0, len(self.images), 64):
                losses.append(self._step(self.images[at : at + 64], self.labels[at : at + 64]))  # noqa: PERF401
        return float(np.mean(losses[-len(self.images) // 64 :]))

    def _step(self, images: np.ndarray, labels: np.ndarray) -> float:
        hidden = np.tanh(images @ self.weights[0])
        scores = hidden @ self.weights[1]
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        wrong = (chances - labels) / len(images)
        slopes = [images.T @ ((wrong @ self.weights[1].T) * (1.0 - hidden**2)), hidden.T @ wrong]
        for weight, speed, slope in zip(self.weights, self.speeds, slopes, strict=True):
            speed *= self.momentum
            speed -= self.rate * slope
            weight += speed
        return float(-np.log((chances * labels).sum(axis=1) + 1e-12).mean())

    def save(self, folder: Path) -> None:
        """All that changes."""
        np.savez(folder / "state.npz", *self.weights, *self.speeds)

    def load(self, folder: Path) -> None:
        """As saved."""
        with np.load(folder / "state.npz") as found:
            arrays = [found[f"arr_{place}"] for place in range(4)]
        self.weights, self.speeds = arrays[:2], arrays[2:]


def network(run: TrainingRun) -> None:
    """Tune the network."""
    model = Network(run.config["rate"], run.config["momentum"], run.seed)
    if run.checkpoint:
        model.load(run.checkpoint)
    for _ in run.epochs():
        begin, cpu = time.monotonic(), time.process_time()
        loss = model.epoch()
        _note(begin, cpu)
        run.report(loss, save=model.save)


def sleep(run: TrainingRun, seconds: float) -> None:
    """Tune something that needs no core."""
    weight = float((run.checkpoint / "weight").read_text()) if run.checkpoint else 1.0
    for _ in run.epochs():
        begin, cpu = time.monotonic(), time.process_time()
        time.sleep(seconds)
        weight *= 1.0 - run.config["rate"]
        _note(begin, cpu)
        run.report(weight + run.config["momentum"], save=partial(_save, weight))


def _save(weight: float, folder: Path) -> None:
    (folder / "weight").write_text(repr(weight))


def bare(epochs: int) -> None:
    """Train the network with no tuner."""
    model = Network(0.05, 0.9, 0)
    for _ in range(epochs):
        begin, cpu = time.monotonic(), time.process_time()
        model.epoch()
        _note(begin, cpu)


def _note(begin: float, cpu: float) -> None:
    with Path(os.environ[TIMES]).open("a") as log:
        log.write(f"{os.getpid()} {begin} {time.monotonic()} {time.process_time() - cpu}\n")


def measured(kind: str, workers: int, each: int, seed: int) -> dict[str, float]:
    """Epochs per hour while all workers are at work, and what an epoch took of a core and of the clock."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[TIMES] = f"{folder}/times.txt"
        if kind == "bare":
            _bare(workers, each)
        else:
            train = network if kind == "network" else partial(sleep, seconds=SLEEPS[kind])
            store = f"sqlite:///{folder}/study.db"
            ft.tune(
                train,
                SPACE,
                MAX_EPOCHS,
                each * workers,
                store=store,
                workers=workers,
                engine="processes",
                seed=seed,
                progress=False,
            )
        return _rates(Path(os.environ[TIMES]).read_text(), workers)


def _bare(workers: int, each: int) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=bare, args=(each,)) for _ in range(workers)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()


def _rates(text: str, workers: int) -> dict[str, float]:
    rows = [[float(word) for word in line.split()] for line in text.splitlines()]
    ends: dict[float, list[float]] = defaultdict(list)
    for process, _, end, _ in rows:
        ends[process].append(end)
    if len(ends) < workers:
        raise RuntimeError(f"{len(ends)} of {workers} workers trained an epoch: give them more epochs")
    first, last = max(min(times) for times in ends.values()), min(max(times) for times in ends.values())
    count = sum(first < end <= last for times in ends.values() for end in times)
    inside = [(end - begin, cpu) for _, begin, end, cpu in rows if first <= begin and end <= last]
    return {
        "per_hour": 3600.0 * count / (last - first),
        "epoch_seconds": statistics.mean(wall for wall, _ in inside),
        "epoch_cpu_seconds": statistics.mean(cpu for _, cpu in inside),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--each", type=int, default=EACH, help="epochs for each worker")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    for number in range(given.rounds):
        load = os.getloadavg()[0]
        for kind in KINDS:
            one, two = (measured(kind, workers, given.each, given.seed + number) for workers in (1, 2))
            ratio = two["per_hour"] / one["per_hour"]
            found.append({"round": number + 1, "kind": kind, "load": load, "ratio": ratio, "one": one, "two": two})
            print(f"round {number + 1}  {kind:12s} {ratio:.2f} times the epochs of one worker", flush=True)
    records.write(given.output, _summary(found, given.each))
    _show(found)
    return 0


def _summary(found: list[dict[str, Any]], each: int) -> dict[str, Any]:
    ratios = {kind: [r["ratio"] for r in found if r["kind"] == kind] for kind in KINDS}
    of_bare = [n / b for n, b in zip(ratios["network"], ratios["bare"], strict=True)]
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "epochs_each": each,
        "median_ratio": {kind: round(statistics.median(values), 2) for kind, values in ratios.items()},
        "network_of_bare": round(statistics.median(of_bare), 2),
        "rounds": found,
    }


def _show(found: list[dict[str, Any]]) -> None:
    """Medians over the rounds. What an epoch costs besides training is mostly its decision, and waiting for it."""
    print(
        f"\n{'epochs':12s} {'epochs per hour':>18s}  ratio {'spread':>14s} {'of a core':>13s} {'besides training':>17s}"
    )
    print(f"{'':12s} {'one':>9s}{'two':>9s} {'':22s} {'one':>7s}{'two':>6s} {'one':>9s}{'two':>8s}")
    for kind in KINDS:
        rows = [r for r in found if r["kind"] == kind]
        ratios = [r["ratio"] for r in rows]
        rate, core, besides = (
            [statistics.median(figure(r[k], workers) for r in rows) for workers, k in ((1, "one"), (2, "two"))]
            for figure in (_rate, _core, _besides)
        )
        print(
            f"{kind:12s} {rate[0]:9.0f}{rate[1]:9.0f} {statistics.median(ratios):6.2f}"
            f"  {min(ratios):.2f} to {max(ratios):.2f} {100 * core[0]:7.0f} %{100 * core[1]:4.0f} %"
            f" {besides[0]:7.2f} s{besides[1]:6.2f} s"
        )


def _rate(measured: dict[str, float], _workers: int) -> float:
    return measured["per_hour"]


def _core(measured: dict[str, float], _workers: int) -> float:
    """Of a core, what a worker got while it trained."""
    return measured["epoch_cpu_seconds"] / measured["epoch_seconds"]


def _besides(measured: dict[str, float], workers: int) -> float:
    """Seconds of a worker for each epoch in which it did not train."""
    return 3600.0 * workers / measured["per_hour"] - measured["epoch_seconds"]


if __name__ == "__main__":
    sys.exit(main())
