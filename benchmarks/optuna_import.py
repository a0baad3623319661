"""An Optuna study with 200 pruned trials on real curves: how quickly it is imported, and what its forecasts are worth.

python -m benchmarks.optuna_import                benchmarks/results/optuna_import.json

Optuna prunes by its median rule, on rows of a table in random order. The table knows how each pruned trial would have
gone on; the forecasts of our model are compared with that.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import freezethaw as ft
from benchmarks import tables

RESULTS = Path(__file__).parent / "results" / "optuna_import.json"
TABLES = ("lcbench", "taskset")  # the first table of each
PRUNED = 200


@dataclass(frozen=True)
class Pruned:
    """What is known of the pruned trials of one table: arrays over trials."""

    table: str
    seen: np.ndarray  # epochs
    last: np.ndarray  # loss at that epoch
    truth: np.ndarray  # loss at the last epoch of the table, unknown to the model
    quantiles: np.ndarray  # (3, trials): 5, 50 and 95 % of our forecast of it


def searched(table: tables.Table, storage: str, seed: int = 0) -> Any:
    """A study of Optuna that pruned so many rows of the table."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.RandomSampler(seed=seed)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=5)
    old = optuna.create_study(study_name="old", sampler=sampler, pruner=pruner)
    assert table.space is not None
    distributions, pruned = table.space.to_optuna(), 0
    finite = np.flatnonzero(np.isfinite(table.losses[:, 0]).all(axis=1))
    for row in np.random.default_rng(seed).permutation(finite):
        old.enqueue_trial(table.configs[row], user_attrs={"row": int(row)})
        trial = old.ask(distributions)
        for epoch, loss in enumerate(table.losses[row, 0], 1):
            trial.report(float(loss), epoch)
            if trial.should_prune():
                old.tell(trial, state=optuna.trial.TrialState.PRUNED)
                pruned += 1
                break
        else:
            old.tell(trial, float(loss))
        if pruned == PRUNED:
            break
    optuna.copy_study(from_study_name="old", from_storage=old._storage, to_storage=storage)
    return optuna.load_study(study_name="old", storage=storage)


def imported(table: tables.Table, url: str, store: str | None) -> tuple[ft.Study, float]:
    """A study that begins with the trials, and the seconds that the import took."""
    study = ft.Study(table.space, table.epochs, store=store)
    begin = time.perf_counter()
    ft.import_optuna(url, into=study)
    return study, time.perf_counter() - begin


def forecast_pruned(table: tables.Table, seed: int = 0) -> tuple[Pruned, dict[str, float]]:
    """The pruned trials of one table with their forecasts; and seconds."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/optuna.db"
        old = searched(table, url, seed)
        stored, into_store = imported(table, url, f"sqlite:///{folder}/ours.db")
        stored.close()
        study, in_memory = imported(table, url, None)
        with closing(study):
            begin = time.perf_counter()
            found = [
                (len(trial.intermediate_values), trial.user_attrs["row"], study.forecast(run.number))
                for trial, run in zip(old.trials, study.runs, strict=True)
                if trial.state.name == "PRUNED"
            ]
            forecasts = time.perf_counter() - begin
    seen, rows = (np.array(column) for column in list(zip(*found, strict=True))[:2])
    quantiles = np.array([forecast.quantile([0.05, 0.5, 0.95])[:, 0] for _, _, forecast in found]).T
    last, truth = table.losses[rows, 0, seen - 1], table.losses[rows, 0, -1]
    seconds = {"import_in_memory": in_memory, "import_into_sqlite": into_store, "forecasts": forecasts}
    return Pruned(table.name, seen, last, truth, quantiles), seconds | {"trials": len(old.trials)}


def summary(found: Pruned) -> dict[str, float]:
    """How good the forecasts are, beside taking the last loss for the end."""
    low, median, high = found.quantiles
    spread = float(np.median(np.abs(found.truth - np.median(found.truth))))
    return {
        "pruned": len(found.truth),
        "median_epochs_seen": float(np.median(found.seen)),
        "covered_by_90_percent": round(float(np.mean((low <= found.truth) & (found.truth <= high))), 3),
        "median_error": round(float(np.median(np.abs(median - found.truth))) / spread, 3),
        "median_error_of_the_last_loss": round(float(np.median(np.abs(found.last - found.truth))) / spread, 3),
        "rank_correlation": round(_ranked(median, found.truth), 3),
        "rank_correlation_of_the_last_loss": round(_ranked(found.last, found.truth), 3),
    }


def _ranked(one: np.ndarray, other: np.ndarray) -> float:
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optuna_import")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    found: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count()}
    found |= {"commit": commit.stdout.strip(), "load": round(os.getloadavg()[0], 1), "seed": 0, "tables": {}}
    for suite in TABLES:
        table = next(t for name, t in tables.load().items() if name.startswith(suite))
        pruned, seconds = forecast_pruned(table)
        rounded = {name: round(value, 2) for name, value in seconds.items()}
        found["tables"][table.name] = summary(pruned) | {"seconds": rounded}
        print(table.name, found["tables"][table.name], flush=True)
        given.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
