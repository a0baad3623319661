"""Forecasts for the runs of a table that another tool wrote; no store is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from freezethaw.cli import words
from freezethaw.cli.app import UsageError, console, print_json

TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")


def are_tables(given: Sequence[str]) -> bool:
    """Whether files are meant, not a run or a configuration."""
    return all(part.lower().endswith(TABLES) and "=" not in Path(part).name and "{" not in part for part in given)


def forecast_tables(files: Sequence[str], max_epochs: int | None, metric: str | None, maximize: bool, js: bool) -> None:
    """Print where every run would end, best first."""
    for file in files:
        if not Path(file).is_file():
            raise UsageError(f"there is no file {file!r}")
    if max_epochs is None:
        raise UsageError("forecasts of a table need --max-epochs: where do its runs end?")
    found = _forecasts(files, max_epochs, metric, maximize)
    if js:
        print_json(found)
        return
    from rich.table import Table

    out = console()
    out.print(f"{words.count(len(found['runs']), 'run')}, forecast at epoch {max_epochs}\n", style="bold")
    table = Table("run", "epoch", "last loss", "median", "90 %", "ends best", "configuration", box=None)
    for run in found["runs"]:
        band = f"{words.number(run['low'])} to {words.number(run['high'])}"
        so_far = (str(run["epoch"]), "diverged" if run["diverged"] else words.number(run["last_loss"]))
        ahead = (words.number(run["median"]), band, words.percent(run["chance"]))
        table.add_row(run["name"], *so_far, *ahead, words.config(run["config"]))
    out.print(table)


def _forecasts(files: Sequence[str], max_epochs: int, metric: str | None, maximize: bool) -> dict[str, Any]:
    from freezethaw.integrations import read_table, study_from_curves

    direction: Literal["minimize", "maximize"] = "maximize" if maximize else "minimize"
    curves = [curve for file in files for curve in read_table(file, metric)]
    study = study_from_curves(curves, max_epochs, direction)
    chances = study.p_min()
    runs: list[dict[str, Any]] = []
    for number, curve in enumerate(curves, 1):
        low, median, high = (float(q) for q in study.forecast(number).quantile([0.05, 0.5, 0.95])[:, 0])
        runs.append(
            {
                "name": curve.name,
                "config": curve.config,
                "epoch": len(curve.losses),
                "last_loss": curve.losses[-1],
                "diverged": curve.diverged,
                "median": median,
                "low": low,
                "high": high,
                "chance": chances.get(number, 0.0),
            }
        )
    sign = -1.0 if maximize else 1.0
    runs.sort(key=lambda run: (run["diverged"], sign * run["median"]))
    return {"max_epochs": max_epochs, "direction": direction, "runs": runs}
