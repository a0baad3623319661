"""What is kept of the comparison, one small file for each study, and what is read off it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.diary import HARNESS, save

RESULTS = Path(__file__).parent / "results"
QUICK_RESULTS = Path("build/paper-quick")


@dataclass(frozen=True)
class Record:
    """One study: every epoch in the order of training. Losses are NaN where a run diverged."""

    problem: str
    method: str
    seed: int
    budget: int
    max_epochs: int
    configs: tuple[dict[str, Any], ...]
    order: np.ndarray  # (E,) run of each epoch, from 1
    losses: np.ndarray  # (E,)
    training: np.ndarray  # (E,) seconds
    deciding: np.ndarray  # (E,) seconds
    wall: float

    @property
    def lowest(self) -> np.ndarray:
        """(E,) the lowest loss after each epoch; infinite before there is one."""
        return np.asarray(np.minimum.accumulate(np.where(np.isfinite(self.losses), self.losses, np.inf)))

    def curve(self, run: int) -> np.ndarray:
        """The losses of a run."""
        return np.asarray(self.losses[self.order == run])

    @property
    def revisits(self) -> np.ndarray:
        """(runs,) how often each run was thawed: taken up again after another one had been trained."""
        taken_up = np.flatnonzero(np.diff(self.order, prepend=0) != 0)
        return np.bincount(self.order[taken_up], minlength=len(self.configs) + 1)[1:] - 1

    def epochs_to(self, loss: float) -> float:
        """Epochs until the lowest loss is no more than this; infinite where it never is."""
        reached = np.flatnonzero(self.lowest <= loss)
        return float(reached[0] + 1) if len(reached) else np.inf


def file_of(folder: Path, problem: str, method: str, seed: int) -> Path:
    """Where a study is kept."""
    return folder / f"{problem}-{method}-{seed}.json"


def write(folder: Path, record: dict[str, Any]) -> Path:
    """Keep a study."""
    file = file_of(folder, record["problem"], record["method"], record["seed"])
    save(file, {"harness": HARNESS, **record})
    return file


def read(file: Path) -> Record | None:
    """A study that is kept; None where there is none, or one of an older harness."""
    if not file.exists():
        return None
    found = json.loads(file.read_text())
    if found.get("harness") != HARNESS:
        return None
    losses = np.array([np.nan if loss is None else loss for loss in found["losses"]])
    return Record(
        found["problem"],
        found["method"],
        found["seed"],
        found["budget"],
        found["max_epochs"],
        tuple(found["configs"]),
        np.array(found["order"]),
        losses,
        np.array(found["training"]),
        np.array(found["deciding"]),
        found["wall"],
    )


def everything(folder: Path) -> list[Record]:
    """All studies that are kept."""
    found = [read(file) for file in sorted(folder.glob("*-*-*.json"))]
    return [record for record in found if record is not None]
