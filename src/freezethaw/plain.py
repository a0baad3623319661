"""Values as strict JSON, and numbers as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Convert to JSON types; infinities and NaN become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return plain(value.item()) if hasattr(value, "item") else str(value)


def number(value: float | None, digits: int = 5) -> str:
    """A number with some significant digits; a dash if missing or not finite."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def title(text: str) -> str:
    """With a capital letter."""
    return text[:1].upper() + text[1:]


def size(count: float) -> str:
    """A number of bytes."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} GB"


def duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours."""
    if seconds < 60:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 3600 else f"{seconds / 3600:.3g} h"


def percent(chance: float) -> str:
    """A probability for people."""
    if chance >= 0.995:
        return "over 99 %"
    return f"{100 * chance:.0f} %" if chance >= 0.01 else f"{100 * chance:.1f} %" if chance >= 0.001 else "under 0.1 %"


def describe(config: Mapping[str, Any]) -> str:
    """A configuration on one line."""
    return ", ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in config.items())
