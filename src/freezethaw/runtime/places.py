"""Where checkpoints lie: a local folder, or anything that fsspec knows by URL.

In a local folder a checkpoint is written beside, synced and renamed, so a half-written one is never seen under its
name. Remote stores have no rename; there a checkpoint counts only once the study's store records it, which happens
after all of it has arrived. In both the content hash is checked when it is fetched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from freezethaw.errors import CheckpointError
from freezethaw.runtime.contents import Contents, examine, files, sync_folder, sync_folders

PARTIAL = ".writing-"


class Place(Protocol):
    """A folder of checkpoints; `name` is a relative path with slashes."""

    def write(self, name: str, save: Callable[[Path], object]) -> Contents:
        """Let `save` fill a fresh folder and keep it under this name."""

    def fetch(self, name: str, into: Path) -> Contents:
        """Copy a checkpoint into an empty local folder; gives the hash of what was copied."""

    def remove(self, name: str) -> None:
        """Remove a checkpoint, if it is there."""

    def names(self, home: str) -> list[str]:
        """All that lies in the folder `home`, finished or not."""

    def temporary(self, home: str) -> Path:
        """A local folder for copies of what lies in `home`, with room for them."""


def place_at(folder: Path | str, durable: bool = True) -> Place:
    """The place that a path or a URL names. `durable`: what was written there survives a crash of the machine."""
    text = str(folder)
    return RemotePlace(text) if "://" in text else LocalPlace(Path(text), durable)


def beside(store: str) -> str:
    """Where checkpoints are unless said: beside an SQLite file, else in the folder of now."""
    file = store.removeprefix("sqlite:///").partition("?")[0] if store.startswith("sqlite:///") else ""
    return str((Path(file).absolute().parent if file else Path().absolute()) / "checkpoints")


class LocalPlace:
    """A folder on a file system."""

    def __init__(self, root: Path, durable: bool = True) -> None:
        self.root, self._durable = root.expanduser().absolute(), durable
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot keep checkpoints in {self.root}: {error.strerror}") from error

    def write(self, name: str, save: Callable[[Path], object]) -> Contents:
        """Write beside, sync, rename."""
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
        """Copy and hash in one go."""
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
        """Beside the checkpoints, where there is room for one more and where leftovers are found."""
        (self.root / home).mkdir(parents=True, exist_ok=True)
        return self.root / home


class RemotePlace:
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
            raise CheckpointError(f"cannot keep checkpoints at {url}: {error}") from error
        self._root = self._root.rstrip("/")

    def write(self, name: str, save: Callable[[Path], object]) -> Contents:
        """Save here, then send."""
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
        """Bring all files here, then hash what arrived."""
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
