"""Errors of forecasts of the last loss: both models, from the first epochs of runs that were trained to the end.

    python -m experiments.forecasts        print a table; write build/paper-results/forecasts.json

The runs are those of random search, all seeds, so that there is no selection bias. The model is given the first k
epochs of all runs and forecasts the last loss of each. "As it is" is the last observed loss.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

from experiments import results
from experiments.diary import save
from experiments.problems import PROBLEMS
from experiments.results import Record
from freezethaw.decide.inference_cache import one_thread
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.loss_units import Observations
from freezethaw.model.sequential import from_scratch
from freezethaw.model.specification import Geometry

SEEN = (1, 2, 5, 10, 20, 50)
MODELS = ("paper", "drift")


def whole_curves(records: Sequence[Record], problem: str) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Configurations and curves (N, max_epochs) of runs of random search that were trained to the end."""
    configs, curves = [], []
    for record in records:
        if (record.problem, record.method) != (problem, "random"):
            continue
        for run, config in enumerate(record.configs, 1):
            curve = record.curve(run)
            if len(curve) == record.max_epochs and np.isfinite(curve).all():
                configs.append(config)
                curves.append(curve)
    return configs, np.array(curves)


def errors(problem: str, configs: Sequence[dict[str, Any]], curves: np.ndarray, seen: int) -> dict[str, Any]:
    """Median absolute errors of the last loss from `seen` epochs, and how often it lay in the 90 % interval."""
    space, horizon = PROBLEMS[problem].space, curves.shape[1]
    kept = tuple(tuple(float(y) for y in curve[:seen]) for curve in curves)
    geometry = Geometry(space.lengths, space.warped)
    observations = Observations(space.features_of(configs), kept, geometry, float(horizon))
    last = curves[:, -1]
    found: dict[str, Any] = {"as it is": _short(np.median(np.abs(curves[:, seen - 1] - last)))}
    for model in MODELS:
        rng = np.random.default_rng([seen, *problem.encode()])
        with one_thread():
            forecaster = Forecaster.condition(from_scratch(observations, model, rng), observations)
            low, middle, high = forecaster.points([(run, float(horizon)) for run in range(len(curves))]).quantile(
                [0.05, 0.5, 0.95]
            )
        found[model] = _short(np.median(np.abs(middle - last)))
        found[f"{model}, in the 90 % interval"] = _short(np.mean((low <= last) & (last <= high)))
    return found


def _errors(job: tuple[str, list[dict[str, Any]], np.ndarray, int]) -> dict[str, Any]:
    return errors(*job)


def measure(records: Sequence[Record], processes: int = 1) -> dict[str, Any]:
    """All problems, from all numbers of epochs seen."""
    jobs, names = [], []
    for problem in PROBLEMS:
        configs, curves = whole_curves(records, problem)
        if len(curves):
            seen = [k for k in SEEN if k < curves.shape[1]]
            jobs += [(problem, configs, curves, k) for k in seen]
            names += [(problem, k, len(curves), _short(np.std(curves[:, -1]))) for k in seen]
    with Pool(processes) as pool:
        found = pool.map(_errors, jobs, chunksize=1)
    table: dict[str, Any] = {}
    for (problem, k, runs, spread), entry in zip(names, found, strict=True):
        table.setdefault(problem, {"runs": runs, "spread": spread, "seen": {}})["seen"][str(k)] = entry
    return table


def _short(value: Any) -> float:
    return float(f"{float(value):.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=None)
    args = parser.parse_args()
    folder = args.results or (results.QUICK_RESULTS if args.quick else results.RAW)
    table = measure(results.everything(folder), args.processes)
    if not table:
        print(f"there are no raw records of random search in {folder}; the published forecasts are unchanged")
        return
    for problem, found in table.items():
        print(f"{problem}: {found['runs']} runs, whose last losses have a standard deviation of {found['spread']}")
        for seen, entry in found["seen"].items():
            print(f"  from {seen} epochs: {json.dumps(entry)}")
    save(folder / results.FORECASTS, table)


if __name__ == "__main__":
    main()
