"""Seconds and memory of the model and of whole decisions, one thread, and how they grow.

    python -m benchmarks.latency                  a table, and benchmarks/results/latency.json
    python -m benchmarks.latency --sizes 50 200   some sizes only

Sizes are observed epochs; runs are shaped as a search leaves them (many short, few long), with 8 hyperparameters.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import freezethaw as ft
from benchmarks import records
from benchmarks.scores import print_table
from freezethaw.model.inference import Target
from freezethaw.model.loss_units import Observations, gather, specify
from freezethaw.model.posterior import condition
from freezethaw.model.sequential import initialise
from freezethaw.model.specification import Geometry

RUNS = {50: 20, 200: 50, 500: 75, 1000: 100, 5000: 300, 20000: 1000}  # observed epochs -> runs
DIMENSIONS, MAX_EPOCHS = 8, 50


def lengths(epochs: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Epochs of each run: at least one, most of them few, none beyond the end."""
    found = np.ones(runs, dtype=int)
    order = rng.permutation(runs)
    for _ in range(epochs - runs):
        weights = np.where(found < MAX_EPOCHS, 1.0 / (1 + order), 0.0)
        found[rng.choice(runs, p=weights / weights.sum())] += 1
    return found


def curve(config: np.ndarray, count: int, rng: np.random.Generator) -> list[float]:
    """A curve that falls to a level that depends on the configuration."""
    t = np.arange(1.0, count + 1)
    return list(config[0] + (0.5 + config[1]) / t ** (0.3 + config[2]) + 0.01 * rng.standard_normal(count))


def space() -> ft.Space:
    return ft.Space({f"x{i}": ft.Float(0.0, 1.0) for i in range(DIMENSIONS)})


def decisions(epochs: int, runs: int, count: int, seed: int = 0) -> dict[str, float]:
    """Ask and tell at about this many observed epochs."""
    rng = np.random.default_rng(seed)
    study = ft.Study(space(), max_epochs=MAX_EPOCHS, seed=seed)

    def decide() -> float:
        start = time.perf_counter()
        decision = study.ask()
        x = np.array([decision.config[f"x{i}"] for i in range(DIMENSIONS)])
        study.tell(decision, curve(x, decision.to_epoch, rng)[decision.from_epoch :])
        return time.perf_counter() - start

    for place, n in enumerate(lengths(epochs, runs, rng)):
        x = rng.random(DIMENSIONS)
        study.enqueue({f"x{i}": float(v) for i, v in enumerate(x)}, to_epoch=int(n))
        study.tell(study.ask(), curve(x, int(n), rng))
        if place % 50 == 10:
            decide()  # the samples are updated as in a search
    seconds = [decide() for _ in range(count)]
    warm = seconds[1:]  # the first takes in all that was enqueued
    return {
        "first": seconds[0],
        "median": float(np.median(warm)),
        "p99": float(np.quantile(warm, 0.99)),
        "worst": max(warm),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def evaluation(epochs: int, runs: int, model: str) -> dict[str, float]:
    """Parts of the model: one evidence evaluation by what changed, one posterior, one Cholesky factor of its size."""
    rng = np.random.default_rng(0)
    configs = rng.random((runs, DIMENSIONS))
    curves = tuple(tuple(curve(x, int(n), rng)) for x, n in zip(configs, lengths(epochs, runs, rng), strict=True))
    observations = Observations(configs, curves, Geometry.plain(DIMENSIONS), float(MAX_EPOCHS))
    samples = initialise(observations, model, rng, count=1)
    spec = specify(model, samples.units, observations.geometry, observations.horizon)
    target = Target(gather(observations, samples.units.transform), spec, observations.geometry)
    values = samples.stacked()
    posterior = condition(target.curves, spec, values, observations.geometry)
    rows = len(posterior.pseudo_observations.runs)
    matrix = 2.0 * np.eye(rows) + 0.1

    def fastest(function, rounds: int = 5) -> float:
        best = np.inf
        for i in range(rounds):
            start = time.perf_counter()
            function(1 + 1e-6 * (i + 1))
            best = min(best, time.perf_counter() - start)
        return best

    return {
        "rows": rows,
        "cholesky": fastest(lambda f: np.linalg.cholesky(matrix)),
        "length": fastest(lambda f: target.log_evidence({**values, "length.3": f * values["length.3"]})),
        "time": fastest(lambda f: target.log_evidence({**values, "alpha": f * values["alpha"]})),
        "condition": fastest(lambda f: condition(target.curves, spec, values, observations.geometry)),
    }


def tpe_suggestion(trials: int = 200) -> float:
    """Median seconds of one suggestion of Optuna's multivariate TPE after so many trials: the yardstick."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # multivariate is an experimental option
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(multivariate=True, seed=0))
    seconds = []
    for _ in range(trials + 20):
        start = time.perf_counter()
        trial = study.ask()
        x = [trial.suggest_float(f"x{i}", 0.0, 1.0) for i in range(DIMENSIONS)]
        seconds.append(time.perf_counter() - start)
        study.tell(trial, curve(np.array(x), MAX_EPOCHS, np.random.default_rng(trial.number))[-1])
    return float(np.median(seconds[trials - 20 :]))


def first_ask() -> float:
    """Seconds of the first ask of a process, imports included."""
    code = "import freezethaw as ft; ft.Study(ft.Space(x=ft.Float(0, 1)), max_epochs=9).ask()"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Slope of log seconds against log size over the larger half."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(seconds[half:]), 1)[0])


def growth() -> dict[str, float]:
    """Exponents: of one posterior with the number of runs, and with the epochs of each."""
    by_runs = [evaluation(20 * n, n, "drift")["condition"] for n in (100, 200, 400, 800)]
    by_epochs = [evaluation(100 * t, 100, "drift")["condition"] for t in (5, 10, 20, 40)]
    return {
        "runs": exponent([100, 200, 400, 800], by_runs),
        "epochs": exponent([5, 10, 20, 40], by_epochs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    results: dict = {
        "commit": records.commit(),
        "first_ask_of_a_process": min(first_ask() for _ in range(3)),
        "tpe_suggestion": tpe_suggestion(),
        "decision": {},
        "model": {},
    }
    body = []
    for size in args.sizes:
        count = 100 if size <= 1000 else 12 if size <= 5000 else 4
        found = results["decision"][size] = decisions(size, RUNS[size], count)
        cells = [f"{1e3 * found[k]:.0f}" for k in ("first", "median", "p99", "worst")]
        cells += [f"{found['megabytes']:.0f}", f"{found['median'] / results['tpe_suggestion']:.1f}"]
        body.append([f"{size} epochs, {RUNS[size]} runs", *cells])
        results["model"][size] = {m: evaluation(size, RUNS[size], m) for m in ("paper", "drift")}
    print("one decision (ask + tell), milliseconds")
    print_table(["observed", "first", "median", "p99", "worst", "MB", "median / TPE"], body)
    print(f"one suggestion of Optuna's multivariate TPE at 200 trials: {1e3 * results['tpe_suggestion']:.1f} ms")
    body = [
        [f"{size} {model}", str(e["rows"]), *(f"{1e3 * e[k]:.2f}" for k in ("cholesky", "length", "time", "condition"))]
        for size, models in results["model"].items()
        for model, e in models.items()
    ]
    print("\nthe model, milliseconds")
    print_table(["observed", "rows", "Cholesky", "evidence (length)", "evidence (time)", "posterior"], body)
    results["growth"] = growth()
    print(
        f"\none posterior grows with runs^{results['growth']['runs']:.1f} and epochs^{results['growth']['epochs']:.1f}"
    )
    print(f"first ask of a process, imports included: {results['first_ask_of_a_process']:.2f} s")
    records.write(args.out / "latency.json", results)


if __name__ == "__main__":
    main()
