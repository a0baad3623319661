"""Where checkpoints are stored: a local folder, or anything that fsspec knows by URL.

A checkpoint is a folder of plain files, with one hash over their names and bytes. In a local folder it is written
beside, synced and renamed, so a half-written one is never seen under its name. Remote storage has no rename; there a
checkpoint exists once the study's storage records it, after all of it has arrived. The hash is checked at every load.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from freezethaw.errors import CheckpointError

PARTIAL = ".writing-"
PROBE = 1 << 20  # bytes; a disk that cannot store them is full
BLOCK = 1 << 20


@dataclass(frozen=True)
class Contents:
    """The content hash of a checkpoint and its size."""

    sha256: str
    bytes: int
    files: int


class CheckpointStorage(Protocol):
    """A folder of checkpoints; `name` is a relative path with slashes."""

    def write(self, name: str, save: Callable[[Path], object]) -> Contents:
        """Let `save` fill a fresh folder, and store it under this name."""

    def fetch(self, name: str, into: Path) -> Contents:
        """Copy a checkpoint into an empty local folder; returns the hash of what was copied."""

    def remove(self, name: str) -> None:
        """Remove a checkpoint, if it is there."""

    def names(self, home: str) -> list[str]:
        """Everything in the folder `home`, complete or not."""

    def temporary(self, home: str) -> Path:
        """A local folder for copies of what is in `home`."""


def storage_at(folder: Path | str, durable: bool = True) -> CheckpointStorage:
    """The storage at a path or a URL. `durable`: what was written there survives a crash of the machine."""
    text = str(folder)
    return RemoteCheckpointStorage(text) if "://" in text else LocalCheckpointStorage(Path(text), durable)


class LocalCheckpointStorage:
    """A folder on a file system."""

    def __init__(self, root: Path, durable: bool = True) -> None:
        self.root, self._durable = root.expanduser().absolute(), durable
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot store checkpoints in {self.root}: {error.strerror}") from error

    def write(self, name: str, save: Callable[[Path], object]) -> Contents:
        """Write under a temporary name, sync, rename."""
        place = self.root / name
        changed = [place.parent]  # folders with a new name in them
        while not changed[-1].exists():
            changed.append(changed[-1].parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=place.parent))
        try:
            save(beside)
            found = examine(beside, sync=self._durable)
            if self._durable:
                sync_folders(beside)
            beside.rename(place)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        for folder in changed if self._durable else ():
            sync_folder(folder)
        return found

    def fetch(self, name: str, into: Path) -> Contents:
        """Copy and hash in one pass."""
        if not (self.root / name).is_dir():
            raise CheckpointError("is missing")
        return examine(self.root / name, copy_to=into)

    def remove(self, name: str) -> None:
        """Rename first: a half-removed checkpoint is not seen under its name."""
        going = (self.root / name).parent / f"{PARTIAL}gone-{os.getpid()}-{Path(name).name}"
        with contextlib.suppress(FileNotFoundError):
            (self.root / name).rename(going)
        shutil.rmtree(going, ignore_errors=True)

    def names(self, home: str) -> list[str]:
        """Entries of the folder."""
        folder = self.root / home
        return sorted(f"{home}/{path.name}" for path in folder.iterdir()) if folder.is_dir() else []

    def temporary(self, home: str) -> Path:
        """A folder beside the checkpoints, where `clean` finds leftovers."""
        (self.root / home).mkdir(parents=True, exist_ok=True)
        return self.root / home


class RemoteCheckpointStorage:
    """Anything that fsspec knows: s3://, gs://, memory://, ..."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise CheckpointError(
                f"checkpoints at {url} need fsspec: pip install 'freezethaw[remote]' and the package for this protocol"
            ) from None
        self._files: Any
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:
            raise CheckpointError(f"cannot store checkpoints at {url}: {error}") from error
        self._root = self._root.rstrip("/")

    def write(self, name: str, save: Callable[[Path], object]) -> Contents:
        """Save locally, then upload."""
        with tempfile.TemporaryDirectory(prefix="freezethaw-") as folder:
            save(Path(folder))
            found = examine(Path(folder))
            try:
                for relative, path in files(Path(folder)):
                    target = f"{self._root}/{name}/{relative}"
                    self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
                    self._files.put_file(str(path), target)
            except BaseException:
                with contextlib.suppress(Exception):
                    self.remove(name)
                raise
        return found

    def fetch(self, name: str, into: Path) -> Contents:
        """Download all files, then hash them."""
        base = f"{self._root}/{name}"
        if not self._files.isdir(base):
            raise CheckpointError("is missing")
        for found in self._files.find(base):
            relative = str(found)[len(self._files._strip_protocol(base)) + 1 :]
            target = (into / relative).resolve()
            if not relative or not target.is_relative_to(into.resolve()):
                raise CheckpointError(f"has a file with a hostile name: {relative!r}")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(found, str(target))
        return examine(into)

    def remove(self, name: str) -> None:
        """Remove all files of it."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm(f"{self._root}/{name}", recursive=True)

    def names(self, home: str) -> list[str]:
        """Entries below `home`."""
        base = f"{self._root}/{home}"
        if not self._files.isdir(base):
            return []
        return sorted(
            f"{home}/{str(path).rstrip('/').rpartition('/')[2]}" for path in self._files.ls(base, detail=False)
        )

    def temporary(self, home: str) -> Path:  # noqa: ARG002
        """The system's folder for temporary files."""
        return Path(tempfile.gettempdir())


# The contents of a checkpoint.


def files(folder: Path) -> list[tuple[str, Path]]:
    """Relative names and paths of all files, sorted; raises for anything that is not a plain file."""
    found: list[tuple[str, Path]] = []
    for place, folders, names in os.walk(folder, onerror=_raise):
        for name in (*folders, *names):
            path = Path(place) / name
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise CheckpointError(f"{path} is not a plain file; a checkpoint holds plain files and folders only")
        found += [((Path(place) / name).relative_to(folder).as_posix(), Path(place) / name) for name in names]
    return sorted(found)


def examine(folder: Path, copy_to: Path | None = None, sync: bool = False) -> Contents:
    """Hash a folder. `copy_to`: copy it at the same time, so that exactly the hashed bytes are read later."""
    total, size, found = hashlib.sha256(), 0, files(folder)
    for name, path in found:
        target = None if copy_to is None else copy_to / name
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
        one = hashlib.sha256()
        for block in _blocks(path, target, sync):
            one.update(block)
            size += len(block)
        total.update(f"{len(name.encode('utf-8', 'surrogateescape'))}:".encode())
        total.update(name.encode("utf-8", "surrogateescape") + one.digest())
    return Contents(total.hexdigest(), size, len(found))


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


def is_full(folder: Path) -> bool:
    """Whether the disk of a folder has no space left, tested by writing."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


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
