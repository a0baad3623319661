"""What a command prints: lines that are a loss, and all others, which are its log."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from freezethaw.errors import TrainingError
from freezethaw.trainers.of_class import RESERVED

BARE = re.compile(r"([:\[,]\s*)[-+]?(nan|inf(?:inity)?)\b", re.IGNORECASE)  # as C prints them


@dataclass(frozen=True)
class Line:
    """A line that counts."""

    epoch: int
    loss: float
    metrics: Mapping[str, Any]


def read_line(text: str) -> Line | None:
    """A line of output: a loss, or None where it is part of the log. Raises TrainingError for a loss that is none."""
    if not text.lstrip().startswith("{"):
        return None
    found = _parsed(text)
    if not isinstance(found, dict) or "epoch" not in found or "loss" not in found:
        return None
    epoch, loss = found["epoch"], found["loss"]
    if isinstance(epoch, float) and epoch.is_integer():
        epoch = int(epoch)
    if isinstance(epoch, bool) or not isinstance(epoch, int):
        raise TrainingError(f"the command printed an epoch that is no whole number: {text.strip()[:200]}")
    if loss is None:  # NaN, as JavaScript and others write it
        loss = math.nan
    if isinstance(loss, bool) or not isinstance(loss, int | float):
        raise TrainingError(f"the command printed a loss that is no number: {text.strip()[:200]}")
    metrics = {key: value for key, value in found.items() if key not in ("epoch", *RESERVED)}
    return Line(epoch, float(loss), metrics)


def _parsed(text: str) -> Any:
    for attempt in (text, BARE.sub(r"\1NaN", text)):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(attempt)
    return None
