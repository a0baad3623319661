"""The diary of a study: every epoch in the order in which it was trained, and where the time went."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.problems import Training

HARNESS = 1  # of the comparison: what an older one recorded is run again


@dataclass
class Diary:
    """Written while a study runs, and read again where it was interrupted. Runs are numbered from 1 by their start."""

    file: Path | None = None  # a line for each epoch; None: nothing is kept before the end
    configs: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)  # the method's own number of a run -> ours
    order: list[int] = field(default_factory=list)  # for each epoch, which run
    losses: list[float] = field(default_factory=list)
    training: list[float] = field(default_factory=list)  # seconds of each epoch
    deciding: list[float] = field(default_factory=list)  # seconds of thought before each epoch
    _known: dict[tuple[int, int], float] = field(default_factory=dict)  # (the method's number of a run, epoch) -> loss
    _thought: float = 0.0
    _before: float = 0.0  # seconds until it was interrupted
    _began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.exists():
            whole = self.file.read_text().splitlines(keepends=True)
            for line in whole:
                if line.endswith("\n"):  # else it was cut off
                    entry = json.loads(line)
                    self._note(entry)
                    self._before = entry["wall"]
            self.file.write_text("".join(line for line in whole if line.endswith("\n")))

    @property
    def epochs(self) -> int:
        """Trained so far."""
        return len(self.order)

    def loss_of(self, run: int, epoch: int) -> float | None:
        """The loss of an epoch that was noted before; None where it has to be trained."""
        found = self._known.get((run, epoch))
        if found is not None:
            self._thought = 0.0  # what was decided before is decided again: it was counted
        return found

    def train_epoch(self, run: int, epoch: int, config: Mapping[str, Any], training: Training) -> float:
        """Train one epoch of a run and note it. One that had to be trained again is noted once."""
        began = time.perf_counter()
        loss = float(training.train_epoch())
        if (run, epoch) in self._known:
            return loss
        entry = {
            "run": run,
            "epoch": epoch,
            "loss": loss,
            "training": time.perf_counter() - began,
            "deciding": self._thought,
            "wall": self._wall(),
            "config": None if run in self.numbers else dict(config),
        }
        self._thought = 0.0
        if self.file is not None:
            with self.file.open("a") as lines:
                lines.write(json.dumps(entry) + "\n")
        self._note(entry)
        return loss

    def _note(self, entry: Mapping[str, Any]) -> None:
        run = entry["run"]
        if run not in self.numbers:
            self.numbers[run] = len(self.numbers) + 1
            self.configs.append(entry["config"])
        self.order.append(self.numbers[run])
        self.losses.append(entry["loss"])
        self.training.append(entry["training"])
        self.deciding.append(entry["deciding"])
        self._known[run, entry["epoch"]] = entry["loss"]

    def _wall(self) -> float:
        return self._before + time.perf_counter() - self._began

    @contextmanager
    def thinking(self) -> Iterator[None]:
        """Time spent here is the method's."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._thought += time.perf_counter() - began

    def timed(self, decide: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time counted as thought."""

        def decide_timed(*args: Any, **named: Any) -> Any:
            with self.thinking():
                return decide(*args, **named)

        return decide_timed

    def record(self, budget: int) -> dict[str, Any]:
        """What is kept: the epochs within the budget."""
        return {
            "epochs": min(self.epochs, budget),
            "configs": [{k: _short(v) for k, v in config.items()} for config in self.configs],
            "order": self.order[:budget],
            "losses": [_short(loss) for loss in self.losses[:budget]],
            "training": [_short(s, 4) for s in self.training[:budget]],
            "deciding": [_short(s, 4) for s in self.deciding[:budget]],
            "wall": _short(self._wall(), 5),
        }


def save(file: Path, record: Mapping[str, Any]) -> None:
    """Written whole, so that what is there can always be read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
    draft = file.with_suffix(".part")
    draft.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    draft.replace(file)


def _short(value: Any, digits: int = 7) -> Any:
    """So many digits; None for a loss that is not finite."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
