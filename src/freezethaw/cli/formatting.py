"""Numbers, configurations, durations and learning curves as text for a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from freezethaw.errors import StudyError
from freezethaw.plain import duration, number, size

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "config",
    "count",
    "duration",
    "lines",
    "number",
    "parse_bounds",
    "parse_duration",
    "percent",
    "size",
    "sparkline",
]

UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
BLOCKS = "▁▂▃▄▅▆▇█"


def config(values: Mapping[str, Any]) -> str:
    """A configuration on one line."""
    return ", ".join(f"{k}={number(v, 4)}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items())


def parse_duration(text: str | float) -> float:
    """Seconds, from a number of seconds or a text such as 90s, 15m, 2h or 1d."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", str(text).lower())
    if found is None or found[2] not in UNITS or not float(found[1]) > 0:
        raise StudyError(f"timeout must be a time such as 90, 90s, 15m, 2h or 1d, not {text!r}")
    return float(found[1]) * UNITS[found[2]]


def parse_bounds(text: str | list[Any]) -> tuple[float | None, float | None]:
    """Bounds from a text such as `0,1` or `0,`, or from a list of a study file, where "" is no bound."""
    parts = text.split(",") if isinstance(text, str) else text
    try:
        low, high = (None if part in ("", None) else float(part) for part in map(_stripped, parts))
    except (TypeError, ValueError):
        raise StudyError(f"bounds must be two numbers such as 0,1, or one as in 0, and ,1; not {text!r}") from None
    return low, high


def _stripped(part: Any) -> Any:
    return part.strip() if isinstance(part, str) else part


def lines(rows: Sequence[Sequence[str]]) -> Table:
    """Rows in columns, of which the last is wrapped at words if the terminal is too narrow."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    for column in table.columns[:-1]:
        column.no_wrap = True
    return table


def percent(probability: float) -> str:
    """A probability in percent."""
    return "–" if not math.isfinite(probability) else f"{100 * probability:.1f} %"


def count(value: int, word: str) -> str:
    """`1 epoch`, `2 epochs`."""
    return f"{value} {word}{'' if value == 1 else 's'}"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """A learning curve as one line of at most `width` block characters; blank where it is not finite."""
    if not values:
        return ""
    width = min(width, len(values))
    sampled = [values[round(i * (len(values) - 1) / max(width - 1, 1))] for i in range(width)]
    finite = [value for value in sampled if math.isfinite(value)]
    if not finite:
        return " " * width
    low, high = min(finite), max(finite)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((v - low) * scale)] if math.isfinite(v) else " " for v in sampled)
