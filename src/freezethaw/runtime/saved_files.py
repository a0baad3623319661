"""What a training saved, compared file by file. Nothing is unpickled."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

COUNTER = re.compile(r"(?<![\w.])(?<![eE][-+])\d{1,9}(?![\w.])")  # no part of a decimal number
LARGEST_TEXT = 1_000_000  # bytes of a saved file that is searched for counters


def hashes(folder: Path) -> dict[str, str]:
    """The content hash of every file; none where there is no folder."""
    if not folder.is_dir():
        return {}
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def changed(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Files that only one has, or whose content hashes differ."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def counters_off(one: Path, other: Path) -> bool:
    """Whether a whole number in the saved files differs by just one. Nothing is unpickled."""
    for name in hashes(one):
        if not (other / name).is_file():
            continue
        pairs = zip(_numbers(one / name), _numbers(other / name), strict=False)
        if any(abs(a - b) == 1 for a, b in pairs):
            return True
    return False


def _numbers(file: Path) -> list[int]:
    """Whole numbers in a file: of text, or arrays of one element."""
    if file.suffix in (".npz", ".npy"):
        return _array_numbers(file)
    data = file.read_bytes()[:LARGEST_TEXT]
    try:
        return [int(text) for text in COUNTER.findall(data.decode("utf-8"))]
    except UnicodeDecodeError:
        return []


def _array_numbers(file: Path) -> list[int]:
    import numpy as np

    with contextlib.suppress(ValueError, OSError):
        loaded = np.load(file, allow_pickle=False)
        arrays = [loaded] if file.suffix == ".npy" else [loaded[name] for name in sorted(loaded.files)]
        return [int(array.item()) for array in arrays if array.size == 1 and array.dtype.kind in "iu"]
    return []
