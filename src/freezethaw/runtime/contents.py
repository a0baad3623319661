"""What a checkpoint is made of: plain files in a folder, and one hash over their names and bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from freezethaw.errors import CheckpointError

BLOCK = 1 << 20


@dataclass(frozen=True)
class Contents:
    """The content hash of a checkpoint and its size."""

    sha256: str
    bytes: int


def files(folder: Path) -> list[tuple[str, Path]]:
    """Relative names and paths of all files, in order; anything that is no plain file is refused, never opened."""
    found: list[tuple[str, Path]] = []
    for place, folders, names in os.walk(folder, onerror=_raise):
        for name in (*folders, *names):
            path = Path(place) / name
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise CheckpointError(f"{path} is no plain file; a checkpoint holds plain files and folders only")
        found += [((Path(place) / name).relative_to(folder).as_posix(), Path(place) / name) for name in names]
    return sorted(found)


def examine(folder: Path, copy_to: Path | None = None, sync: bool = False) -> Contents:
    """Hash a folder. `copy_to`: copy it at the same time, so that what was hashed is what is read later."""
    total, size = hashlib.sha256(), 0
    for name, path in files(folder):
        target = None if copy_to is None else copy_to / name
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
        one = hashlib.sha256()
        for block in _blocks(path, target, sync):
            one.update(block)
            size += len(block)
        total.update(f"{len(name.encode('utf-8', 'surrogateescape'))}:".encode())
        total.update(name.encode("utf-8", "surrogateescape") + one.digest())
    return Contents(total.hexdigest(), size)


def _blocks(path: Path, target: Path | None, sync: bool) -> Iterator[bytes]:
    with path.open("rb") as file:
        copy = None if target is None else target.open("xb")
        try:
            while block := file.read(BLOCK):
                if copy is not None:
                    copy.write(block)
                yield block
        finally:
            if copy is not None:
                copy.close()
        if sync:
            os.fsync(file.fileno())


def sync_folders(folder: Path) -> None:
    """Make the names in a folder and below it durable."""
    for place, _, _ in os.walk(folder):
        sync_folder(Path(place))


def sync_folder(folder: Path) -> None:
    """Make the names in one folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _raise(error: OSError) -> None:
    raise error
