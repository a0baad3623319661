"""Results of the comparison: raw records of studies in build/, and a compact summary in experiments/results.

    python -m experiments.results                        add the raw records in build/paper-results to the summary

A raw record has every epoch of a study. The summary has what the tables and figures need: of each study the
improvements of the lowest loss, the numbers of runs and thaws and the seconds; all epochs of two studies, for the
figures of their progress; and the errors of the forecasts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.diary import HARNESS, save

RAW = Path("build/paper-results")
QUICK_RESULTS = Path("build/paper-quick")
SUMMARY = Path(__file__).parent / "results" / "summary.json"
FORECASTS = "forecasts.json"  # beside raw records
SHOWN = (("pmf", "paper", 0), ("pmf", "default", 0))  # studies whose epochs are all in the summary


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
    commit: str = ""

    @property
    def lowest(self) -> np.ndarray:
        """(E,) the lowest loss after each epoch; infinite before the first."""
        return np.asarray(np.minimum.accumulate(np.where(np.isfinite(self.losses), self.losses, np.inf)))

    def curve(self, run: int) -> np.ndarray:
        """The losses of a run."""
        return np.asarray(self.losses[self.order == run])

    @property
    def revisits(self) -> np.ndarray:
        """(runs,) how often each run was thawed, after another one had been trained."""
        taken_up = np.flatnonzero(np.diff(self.order, prepend=0) != 0)
        return np.bincount(self.order[taken_up], minlength=len(self.configs) + 1)[1:] - 1

    def summary(self) -> StudySummary:
        """What is published of the study."""
        lowest, lengths, revisits = self.lowest, np.bincount(self.order)[1:], self.revisits
        improved = np.flatnonzero(np.diff(lowest, prepend=np.inf) < 0)
        decisions = self.deciding[self.deciding > 0]
        return StudySummary(
            self.problem,
            self.method,
            self.seed,
            self.budget,
            len(self.order),
            [[int(at) + 1, float(lowest[at])] for at in improved],
            runs=len(lengths),
            one_epoch_runs=int((lengths == 1).sum()),
            longest=int(lengths.max()),
            thaws=int(revisits.sum()),
            thawed_runs=int((revisits > 0).sum()),
            most_thaws=int(revisits.max()),
            late_thaws=_late(self.order),
            training=_short(self.training.sum()),
            deciding=_short(self.deciding.sum()),
            decision=_short(np.median(decisions)) if len(decisions) else None,
            wall=self.wall,
            commit=self.commit,
        )


def _late(order: np.ndarray) -> float | None:
    """The share of thaws in the second half of a study."""
    change = np.flatnonzero(np.diff(order, prepend=0) != 0)
    first = {int(run): int(np.flatnonzero(order == run)[0]) for run in np.unique(order)}
    thaws = [at for at in change if first[int(order[at])] != at]
    return _short(np.mean([at >= len(order) / 2 for at in thaws])) if thaws else None


def _short(value: Any) -> float:
    return float(f"{float(value):.5g}")


@dataclass(frozen=True)
class StudySummary:
    """One study without its single epochs."""

    problem: str
    method: str
    seed: int
    budget: int
    epochs: int
    improvements: list[list[float]]  # epoch and lowest loss
    runs: int
    one_epoch_runs: int
    longest: int  # epochs of the longest run
    thaws: int
    thawed_runs: int
    most_thaws: int  # of one run
    late_thaws: float | None  # share of thaws in the second half
    training: float  # seconds
    deciding: float
    decision: float | None  # median seconds of a decision
    wall: float
    commit: str = ""

    @property
    def lowest(self) -> np.ndarray:
        """(E,) the lowest loss after each epoch; infinite before the first."""
        found = np.full(self.epochs, np.inf)
        for epoch, loss in self.improvements:
            found[int(epoch) - 1 :] = loss
        return found

    def epochs_to(self, loss: float) -> float:
        """Epochs until the lowest loss is at most this; infinite if it never is."""
        reached = np.flatnonzero(self.lowest <= loss)
        return float(reached[0] + 1) if len(reached) else np.inf


@dataclass(frozen=True)
class Progression:
    """All epochs of one study."""

    problem: str
    method: str
    seed: int
    order: list[int]
    losses: list[float | None]


@dataclass(frozen=True)
class Summary:
    """The published results."""

    studies: list[StudySummary]
    progressions: list[Progression] = field(default_factory=list)
    forecasts: dict[str, Any] = field(default_factory=dict)

    def save(self, file: Path = SUMMARY) -> None:
        """Write the summary, one line per study."""
        lines = [json.dumps(asdict(study), separators=(",", ":")) for study in self.studies]
        shown = [json.dumps(asdict(study), separators=(",", ":")) for study in self.progressions]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f'{{"harness": {HARNESS},\n"forecasts": {json.dumps(self.forecasts)},\n"studies": [\n'
            + ",\n".join(lines)
            + '\n],\n"progressions": [\n'
            + ",\n".join(shown)
            + "\n]}\n"
        )

    def updated(self, new: Summary) -> Summary:
        """With the studies and forecasts of another summary, which replace older ones."""
        studies = {(s.problem, s.method, s.seed): s for s in (*self.studies, *new.studies)}
        shown = {(s.problem, s.method, s.seed): s for s in (*self.progressions, *new.progressions)}
        ordered = [studies[key] for key in sorted(studies)]
        return Summary(ordered, [shown[key] for key in sorted(shown)], self.forecasts | new.forecasts)


def published(file: Path = SUMMARY) -> Summary:
    """The published results; empty if there are none, or of an older harness."""
    found = json.loads(file.read_text()) if file.exists() else {}
    if found.get("harness") != HARNESS:
        return Summary([])
    studies = [StudySummary(**study) for study in found["studies"]]
    return Summary(studies, [Progression(**study) for study in found["progressions"]], found["forecasts"])


def summarise(records: Sequence[Record], forecasts: dict[str, Any] | None = None) -> Summary:
    """The summary of raw records."""
    shown = [r for r in records if (r.problem, r.method, r.seed) in SHOWN]
    progressions = [
        Progression(
            r.problem, r.method, r.seed, r.order.tolist(), [_short(y) if np.isfinite(y) else None for y in r.losses]
        )
        for r in shown
    ]
    return Summary([record.summary() for record in records], progressions, forecasts or {})


# Raw records.


def file_of(folder: Path, problem: str, method: str, seed: int) -> Path:
    """The file of a study."""
    return folder / f"{problem}-{method}-{seed}.json"


def write(folder: Path, record: dict[str, Any]) -> Path:
    """Write the record of a study."""
    file = file_of(folder, record["problem"], record["method"], record["seed"])
    save(file, {"harness": HARNESS, **record})
    return file


def read(file: Path) -> Record | None:
    """The record of a study; None if there is none, or one of an older harness."""
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
        found.get("commit", ""),
    )


def everything(folder: Path) -> list[Record]:
    """All raw records in a folder."""
    found = [read(file) for file in sorted(folder.glob("*-*-*.json"))]
    return [record for record in found if record is not None]


def summary_of(folder: Path) -> Summary:
    """The summary of the raw records in a folder."""
    forecasts = folder / FORECASTS
    return summarise(everything(folder), json.loads(forecasts.read_text()) if forecasts.exists() else None)


if __name__ == "__main__":
    published().updated(summary_of(Path(sys.argv[1]) if len(sys.argv) > 1 else RAW)).save()
