"""Values as others read them: plain JSON for programs, where what is not finite is null, and plain words for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Numbers, texts, lists and dicts only."""
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
    """With as many digits as are useful; a dash for none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def size(count: float) -> str:
    """So many bytes."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} GB"


def duration(seconds: float) -> str:
    """So many seconds, in minutes or hours where they are many."""
    if seconds < 60:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 3600 else f"{seconds / 3600:.3g} h"
