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
    """Written while a study runs. Runs are numbered from 1 in the order of their start."""

    configs: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)  # the method's own number of a run -> ours
    order: list[int] = field(default_factory=list)  # for each epoch, which run
    losses: list[float] = field(default_factory=list)
    training: list[float] = field(default_factory=list)  # seconds of each epoch
    deciding: list[float] = field(default_factory=list)  # seconds of thought before each epoch
    _thought: float = 0.0
    _began: float = field(default_factory=time.perf_counter)

    @property
    def epochs(self) -> int:
        """Trained so far."""
        return len(self.order)

    def train_epoch(self, run: int, config: Mapping[str, Any], training: Training) -> float:
        """Train one epoch of a run and note it."""
        if run not in self.numbers:
            self.numbers[run] = len(self.numbers) + 1
            self.configs.append(dict(config))
        began = time.perf_counter()
        loss = float(training.train_epoch())
        self.training.append(time.perf_counter() - began)
        self.order.append(self.numbers[run])
        self.losses.append(loss)
        self.deciding.append(self._thought)
        self._thought = 0.0
        return loss

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
            "wall": _short(time.perf_counter() - self._began, 5),
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
