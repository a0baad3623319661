"""Differences between two plain documents, so that the sampler state of every decision can be kept in little room.

From one decision to the next one sample moves and the weights change; the rest is the same. A difference lists the
leaves that changed with their paths. Applied to the old document it gives the new one, bit for bit.
"""

from __future__ import annotations

from typing import Any

Path = list[str | int]


def difference(old: Any, new: Any) -> list[list[Any]]:
    """`[path, value]` of everything in `new` that is not in `old`; where shapes differ, of the whole branch."""
    found: list[list[Any]] = []
    _compare(old, new, [], found)
    return found


def _compare(old: Any, new: Any, path: Path, found: list[list[Any]]) -> None:
    if isinstance(old, dict) and isinstance(new, dict) and list(old) == list(new):
        for key in new:
            _compare(old[key], new[key], [*path, key], found)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for place, (before, after) in enumerate(zip(old, new, strict=True)):
            _compare(before, after, [*path, place], found)
    elif type(old) is not type(new) or repr(old) != repr(new):  # repr: NaN is NaN, -0.0 is not 0.0, 1 is not True
        found.append([path, new])


def apply(old: Any, changes: list[list[Any]]) -> Any:
    """The document that `changes` make of `old`, which is left as it was."""
    root: Any = [_copied(old)]
    for path, value in changes:
        parent, place = root, [0, *path]
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = value
    return root[0]


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value
