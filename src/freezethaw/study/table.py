"""A study as rows of a table, for data frames and files: one for each epoch, or one for each run."""

from __future__ import annotations

from typing import Any

from freezethaw.records import StudyState
from freezethaw.store import Storage


def epoch_rows(storage: Storage, state: StudyState) -> list[dict[str, Any]]:
    """One row for each epoch, with the configuration (`config.`) and the other metrics (`metric.`) of that epoch."""
    rows = []
    for run in state.runs:
        fixed = {"state": run.state, **_config(run.config)}
        metrics = storage.metrics(run.number)
        for i, (loss, seconds) in enumerate(zip(run.losses, run.seconds, strict=True)):
            others = {f"metric.{key}": value for key, value in metrics[i].items()} if i < len(metrics) else {}
            rows.append({"run": run.number, "epoch": i + 1, state.metric: loss, "seconds": seconds, **fixed, **others})
    return _tagged(rows, state)


def run_rows(state: StudyState) -> list[dict[str, Any]]:
    """One row for each run."""
    rows = [
        {
            "run": run.number,
            "state": run.state,
            "outcome": run.outcome,
            "epochs": run.epoch,
            f"best_{state.metric}": min(run.losses, key=lambda y: state.sign * y) if run.losses else None,
            f"last_{state.metric}": run.losses[-1] if run.losses else None,
            "imported": run.added,
            **_config(run.config),
        }
        for run in state.runs
    ]
    return _tagged(rows, state)


def _config(config: Any) -> dict[str, Any]:
    return {f"config.{key}": value for key, value in config.items()}


def _tagged(rows: list[dict[str, Any]], state: StudyState) -> list[dict[str, Any]]:
    tags = state.definition.get("tags")
    return [row | {"tags": ", ".join(tags)} for row in rows] if tags else rows
