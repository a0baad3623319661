"""Real training by the clock, everything included: ours beside Optuna, in one run on one machine.

    python -m benchmarks.clock                                 all problems, 5 seeds, 40 s each; about 2.5 hours
    python -m benchmarks.clock --problems digits-4ms --seeds 2 --seconds 20
    python -m benchmarks.clock --methods freezethaw tpe-hyperband
    python -m benchmarks.clock --cpu                           on a busy machine: count CPU time, and pauses as they are

One process, one thread for each method, in turn. `digits` is the network of the demo, with epochs of about 4 ms, and
with pauses that make them 30 and 300 ms long; `mnist` is a larger network of the same kind with epochs of about a
second (skipped without the data); `boosting` is XGBoost, ten rounds to an epoch (skipped if it is not installed).
Prints the mean of the lowest loss after a quarter, a half and all of the time with standard errors over seeds, the time
at which the final loss of the best rival is reached, and two shares of the time: of deciding (for Optuna, of suggesting
and of asking the pruner) and of training. The rest is saving, loading and recording. --plot draws the losses against
seconds from the recorded points. Raw records stay out of the repository.

With --cpu the seconds are those of the process's own CPU time plus the pauses, for all methods alike. Other work on the
machine then disturbs no method, and pauses take no time. Waiting for the disk is not counted.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import logging
import math
import runpy
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import optuna
import sqlalchemy  # noqa: F401  (loaded before the clock starts, as Optuna loads it)

import freezethaw as ft
from benchmarks import records, tables
from freezethaw.study import session

ROOT = Path(__file__).parents[1]
OUT = records.RESULTS / "clock.json"
MAX_EPOCHS = 30
CURVE_POINTS = 80  # of a recorded curve of losses against seconds
PICTURE = ROOT / "docs" / "images" / "clock.png"
OURS = "freezethaw"


@dataclass(frozen=True)
class Problem:
    """A training by epochs: `build(config, seed)` gives an object with `train_one_epoch`, `loss`, `save` and `load`."""

    name: str
    space: ft.Space
    build: Callable[[dict[str, Any], int], Any]
    pause: float = 0.0  # added to each epoch

    def epochs(self, model: Any) -> Iterator[float]:
        """Losses of one epoch after the other."""
        while True:
            time.sleep(self.pause)
            with np.errstate(all="ignore"):
                model.train_one_epoch()
                yield model.loss()


def digits(name: str, pause: float) -> Problem:
    demo = runpy.run_path(str(ROOT / "examples" / "digits.py"))
    return Problem(name, demo["SPACE"], demo["Network"], pause)


def mnist() -> Problem | None:
    """The demo's network on 20,000 images of MNIST."""
    folder = tables.data_folder()
    if folder is None or not (folder / "mnist").is_dir():
        return None
    demo = runpy.run_path(str(ROOT / "examples" / "digits.py"))
    x, y = (_idx(next((folder / "mnist").glob(f"train-{kind}*"))) for kind in ("images", "labels"))
    x, y = x[:25000].reshape(25000, -1) / 255.0, y[:25000].astype(np.int64)
    network = demo["Network"]
    scope = network.forward.__globals__
    scope |= {"TRAIN_X": x[:20000], "VALID_X": x[20000:], "TRAIN_Y": y[:20000], "VALID_Y": y[20000:]}

    class Larger(network):  # type: ignore[misc, valid-type]
        def __init__(self, config: dict[str, Any], seed: int) -> None:
            super().__init__(config, seed)
            h = config["hidden"]
            self.weights["w1"] = self.rng.normal(0, math.sqrt(2 / x.shape[1]), (x.shape[1], h))
            self.velocity["w1"] = np.zeros_like(self.weights["w1"])

    return Problem("mnist", demo["SPACE"], Larger)


def _idx(file: Path) -> Any:
    """An array in the idx format, gzipped."""
    data = gzip.decompress(file.read_bytes())
    shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


class Boosting:
    """XGBoost on digits: one epoch is ten rounds."""

    def __init__(self, config: dict[str, Any], seed: int) -> None:
        import xgboost

        scope = digits("", 0.0).build.forward.__globals__
        self.train = xgboost.DMatrix(scope["TRAIN_X"], scope["TRAIN_Y"])
        self.valid, self.labels = xgboost.DMatrix(scope["VALID_X"]), scope["VALID_Y"]
        wanted = {"objective": "multi:softprob", "num_class": 10, "nthread": 1, "seed": seed}
        self.booster = xgboost.Booster(wanted | config, [self.train])

    def train_one_epoch(self) -> None:
        rounds = self.booster.num_boosted_rounds()
        for number in range(rounds, rounds + 10):
            self.booster.update(self.train, number)

    def loss(self) -> float:
        chances = self.booster.predict(self.valid)[np.arange(len(self.labels)), self.labels]
        return float(-np.log(np.maximum(chances, 1e-15)).mean())

    def save(self, folder: Path) -> None:
        self.booster.save_model(folder / "model.ubj")

    def load(self, folder: Path) -> None:
        self.booster.load_model(folder / "model.ubj")


def boosting() -> Problem | None:
    if importlib.util.find_spec("xgboost") is None:
        return None
    space = ft.Space(
        eta=ft.Float(1e-3, 1.0, log=True),
        max_depth=ft.Int(1, 10),
        min_child_weight=ft.Float(1e-2, 100.0, log=True),
        colsample_bytree=ft.Float(0.1, 1.0),
        reg_lambda=ft.Float(1e-4, 100.0, log=True),
    )
    return Problem("boosting", space, Boosting)


PROBLEMS: dict[str, Callable[[], Problem | None]] = {
    "digits-4ms": lambda: digits("digits-4ms", 0.0),
    "digits-30ms": lambda: digits("digits-30ms", 0.026),
    "digits-300ms": lambda: digits("digits-300ms", 0.296),
    "mnist": mnist,
    "boosting": boosting,
}


def count_cpu_time() -> None:
    """From now on, clocks in this process show its CPU time, and sleeping only moves them."""
    slept = 0.0

    def now() -> float:
        return time.process_time() + slept

    def sleep(seconds: float) -> None:
        nonlocal slept
        slept += max(seconds, 0.0)

    time.perf_counter = time.monotonic = now
    time.sleep = sleep
    session.perf_counter = now  # it has its own name for the clock


class Log:
    """Losses by the clock, everything included."""

    def __init__(self) -> None:
        self.begin, self.points, self.training, self.deciding = time.perf_counter(), [], 0.0, 0.0

    @contextmanager
    def decision(self) -> Iterator[None]:
        """Count what is done within as deciding."""
        begin = time.perf_counter()
        yield
        self.deciding += time.perf_counter() - begin

    def add(self, loss: float, seconds: float) -> None:
        self.training += seconds
        lowest = min(loss, self.points[-1][1]) if self.points else loss
        if math.isfinite(loss):
            self.points.append((time.perf_counter() - self.begin, lowest))

    def at(self, seconds: float) -> float:
        """The lowest loss after so many seconds."""
        return min((loss for when, loss in self.points if when <= seconds), default=math.inf)


def ours(problem: Problem, seed: int, seconds: float) -> Log:
    """One worker in this process, without a store, as a user would call it."""
    log = Log()

    class Training:
        def __init__(self, config: dict[str, Any], seed: int) -> None:
            self.model = problem.build(config, seed)
            self.losses = problem.epochs(self.model)

        def train_epoch(self) -> float:
            begin = time.perf_counter()
            loss = next(self.losses)
            log.add(loss, time.perf_counter() - begin)
            return loss

        def save(self, folder: Path) -> None:
            self.model.save(folder)

        def load(self, folder: Path) -> None:
            self.model.load(folder)

    with tempfile.TemporaryDirectory() as folder:
        kept = ft.Checkpoints(folder)
        result = ft.tune(
            Training, problem.space, MAX_EPOCHS, timeout=seconds, seed=seed, checkpoints=kept, progress=False
        )
    log.deciding = result.deciding_seconds
    return log


def optuna_with(sampler: str, pruner: str) -> Callable[[Problem, int, float], Log]:
    def run(problem: Problem, seed: int, seconds: float) -> Log:
        optuna.logging.set_verbosity(logging.WARNING)
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        pruners = {
            "hyperband": lambda: optuna.pruners.HyperbandPruner(max_resource=MAX_EPOCHS),
            "median": optuna.pruners.MedianPruner,
            "halving": optuna.pruners.SuccessiveHalvingPruner,
        }
        log, distributions = Log(), problem.space.to_optuna()

        def objective(trial: Any) -> float:
            with log.decision():
                config = {name: trial._suggest(name, d) for name, d in distributions.items()}
            losses, best = problem.epochs(problem.build(config, seed * 10_000 + trial.number)), math.inf
            for epoch in range(1, MAX_EPOCHS + 1):
                begin = time.perf_counter()
                loss = next(losses)
                log.add(loss, time.perf_counter() - begin)
                if not math.isfinite(loss):
                    raise optuna.TrialPruned
                best = min(best, loss)
                with log.decision():
                    trial.report(loss, epoch)
                    hopeless = trial.should_prune()
                if time.perf_counter() - log.begin > seconds:
                    study.stop()
                    raise optuna.TrialPruned
                if hopeless:
                    raise optuna.TrialPruned
            return best

        study = optuna.create_study(sampler=samplers[sampler](seed=seed), pruner=pruners[pruner]())
        study.optimize(objective)
        return log

    return run


METHODS: dict[str, Callable[[Problem, int, float], Log]] = {
    OURS: ours,
    "tpe-hyperband": optuna_with("tpe", "hyperband"),
    "tpe-median": optuna_with("tpe", "median"),
    "random-halving": optuna_with("random", "halving"),
}


@dataclass(frozen=True)
class Row:
    """One method on one problem, over all seeds."""

    problem: str
    method: str
    seeds: int
    seconds: float
    losses: dict[str, float]  # mean of the lowest, after parts of the time
    errors: dict[str, float]  # their standard errors over seeds
    epochs: float  # mean number
    deciding: float  # share of the time
    training: float  # share of the time
    curve: list[tuple[float, float]]  # seconds, mean of the lowest losses
    reached: float | None = None  # seconds until the final mean loss of the best rival


def summarise(problem: str, method: str, logs: list[Log], seconds: float) -> Row:
    marks = [seconds / 4, seconds / 2, seconds]
    losses = {f"{mark:g}": [log.at(mark) for log in logs] for mark in marks}
    means = {mark: mean(found) for mark, found in losses.items()}
    errors = {mark: stdev(found) / math.sqrt(len(found)) if len(found) > 1 else 0.0 for mark, found in losses.items()}
    total = sum(max(log.points[-1][0], seconds) for log in logs if log.points)
    deciding = sum(log.deciding for log in logs) / total if total else math.nan
    training = sum(log.training for log in logs) / total if total else math.nan
    times = [seconds * i / CURVE_POINTS for i in range(1, CURVE_POINTS + 1)]
    curve = [(t, mean(log.at(t) for log in logs)) for t in times]
    curve = [(t, loss) for t, loss in curve if math.isfinite(loss)]
    epochs = mean(len(log.points) for log in logs)
    return Row(problem, method, len(logs), seconds, means, errors, epochs, deciding, training, curve)


def reached(logs: list[Log], loss: float, seconds: float) -> float | None:
    """When the mean of the lowest losses first falls to `loss`; None if it never does."""
    times = sorted({when for log in logs for when, _ in log.points if when <= seconds})
    return next((when for when in times if mean(log.at(when) for log in logs) <= loss), None)


def race(problem: Problem, methods: list[str], seeds: int, seconds: float) -> list[Row]:
    """All methods on one problem, seed after seed, so that a slow moment of the machine meets all of them."""
    logs: dict[str, list[Log]] = {method: [] for method in methods}
    for seed in range(seeds):
        for method in methods:
            logs[method].append(METHODS[method](problem, seed, seconds))
    rows = [summarise(problem.name, method, logs[method], seconds) for method in methods]
    rivals = [row.losses[f"{seconds:g}"] for row in rows if row.method != OURS]
    if rivals:
        goal = min(rivals)
        rows = [Row(**asdict(row) | {"reached": reached(logs[row.method], goal, seconds)}) for row in rows]
    for row in rows:
        shown = "  ".join(f"{mark} s {row.losses[mark]:.4f} ± {row.errors[mark]:.4f}" for mark in row.losses)
        when = "never" if row.reached is None else f"{row.reached:.0f} s"
        print(
            f"{row.problem:<13} {row.method:<15} {shown}  deciding {row.deciding:4.0%}  "
            f"training {row.training:4.0%}  best rival's loss: {when}",
            flush=True,
        )
    return rows


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """The mean of the lowest losses against seconds, one panel for each problem."""
    from plotly.subplots import make_subplots

    from freezethaw.figures.style import COLOURS, write_png

    problems = list(dict.fromkeys(row["problem"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    figure = make_subplots(1, len(problems), subplot_titles=problems, horizontal_spacing=0.06)
    for row in rows:
        times, losses = zip(*row["curve"], strict=True)
        color = COLOURS[methods.index(row["method"])]
        line = {"color": color, "width": 3 if row["method"] == OURS else 1.5}
        column = problems.index(row["problem"]) + 1
        figure.add_scatter(x=times, y=losses, name=row["method"], line=line, showlegend=column == 1, row=1, col=column)
    figure.update_yaxes(type="log", title_text="lowest validation loss", col=1)
    figure.update_yaxes(type="log")
    figure.update_xaxes(title_text="seconds")
    figure.update_layout(template="plotly_white", legend={"orientation": "h", "y": -0.25}, margin={"t": 30, "r": 10})
    write_png(figure, file, 360 * len(problems), 360)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--plot", action="store_true", help=f"only draw {PICTURE.name} from what is recorded")
    parser.add_argument("--cpu", action="store_true", help="count CPU time and pauses instead of wall-clock time")
    given = parser.parse_args()
    if given.plot:
        draw(json.loads(given.out.read_text())["rows"], PICTURE)
        return
    if given.cpu:
        count_cpu_time()
    rows: list[Row] = []
    code = records.commit()
    for name in given.problems:
        problem = PROBLEMS[name]()
        if problem is None:
            print(f"{name}: skipped, its data or library is not here")
            continue
        rows += race(problem, given.methods, given.seeds, given.seconds)
        found = {"commit": code, "cpu": given.cpu, "max_epochs": MAX_EPOCHS, "rows": [asdict(row) for row in rows]}
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
