"""Train parts of a run, each in a process of its own, so that nothing is left in memory between them.

`CheckProcess` starts them as `python -m freezethaw.runtime.check_process request.json`; the second half of this module
runs there. What a training saved is compared file by file; nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from freezethaw.records import Config
from freezethaw.trainers.command import CommandTrainer
from freezethaw.trainers.importing import NamedTrainer
from freezethaw.trainers.protocol import Save, TrainingRun

COUNTER = re.compile(r"(?<![\w.])(?<![eE][-+])\d{1,9}(?![\w.])")  # no part of a decimal number
LARGEST_TEXT = 1_000_000  # bytes of a saved file that is searched for counters


@dataclass(frozen=True)
class Part:
    """What one process trained."""

    losses: tuple[float, ...]
    error: str = ""
    saved: Mapping[str, str] = field(default_factory=dict)  # file -> content hash, at the end
    saved_half: Mapping[str, str] | None = None  # the same at the epoch of the freeze, of an uninterrupted training
    folder: Path = Path()


class CheckProcess:
    """Trains parts of one run, each in a fresh process."""

    def __init__(
        self, train: NamedTrainer | CommandTrainer, config: Config, seed: int, home: Path, limit: float | None
    ) -> None:
        self._train, self._config, self._seed, self._home, self._limit = train, config, seed, home, limit
        self._count = 0

    def train(self, start: int, end: int, load: Path | None = None, pass_by: int = 0, kill: bool = False) -> Part:
        """Epochs start + 1 to end, then freeze; `pass_by`: save there too; `kill`: by SIGKILL once it is saved."""
        self._count += 1
        home = self._home / f"part-{self._count}"
        home.mkdir()
        request = {
            "kind": "command" if isinstance(self._train, CommandTrainer) else "name",
            "train": asdict(self._train),
            "config": dict(self._config),
            "seed": self._seed,
            "start": start,
            "end": end,
            "load": None if load is None else str(load),
            "pass_by": pass_by,
            "kill": kill,
            "home": str(home),
        }
        (home / "request.json").write_text(json.dumps(request), encoding="utf-8")
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "freezethaw.runtime.check_process", str(home / "request.json")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                code = process.wait(self._limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                process.kill()
                process.wait()
        return self._read(home, code, kill)

    def _read(self, home: Path, code: int | None, kill: bool) -> Part:
        lines = (home / "losses").read_text(encoding="utf-8").splitlines() if (home / "losses").exists() else []
        found = [json.loads(line) for line in lines]
        losses = tuple(math.nan if line["loss"] is None else float(line["loss"]) for line in found if "loss" in line)
        error = next((line["error"] for line in found if "error" in line), "")
        if not error and code is None:
            error = f"it took longer than {self._limit:g} seconds"
        elif not error and code != (-signal.SIGKILL if kill else 0):
            log = (home / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            error = f"its process ended with {code}" + (f": {log[-1][:300]}" if log else "")
        half = home / "half"
        return Part(losses, error, hashes(home / "saved"), hashes(half) if half.is_dir() else None, home / "saved")


# In the process that trains.


def _train(request: Mapping[str, Any]) -> None:
    home = Path(request["home"])
    saved = home / "saved"
    with (home / "losses").open("w", encoding="utf-8") as losses:

        def say(**what: Any) -> None:
            losses.write(json.dumps(what) + "\n")
            losses.flush()

        def advance(epoch: int, loss: float, save: Save | None, _metrics: dict[str, float]) -> bool:
            value = float(loss)
            say(epoch=epoch, loss=value if math.isfinite(value) else None)
            if not math.isfinite(value):
                return False
            if epoch == request["pass_by"] and save is not None:
                _save(save, home / "half")
            if epoch < request["end"]:
                return True
            if save is not None:
                _save(save, saved)
            if request["kill"]:
                os.kill(os.getpid(), signal.SIGKILL)
            return False

        load = None if request["load"] is None else home / "load"
        if load is not None:
            shutil.copytree(request["load"], load)
        run = TrainingRun(1, request["config"], request["seed"], request["start"], load, advance, request["end"])
        try:
            _trainer(request)(run)
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")


def _save(save: Save, folder: Path) -> None:
    folder.mkdir()
    save(folder)


def _trainer(request: Mapping[str, Any]) -> NamedTrainer | CommandTrainer:
    fields = dict(request["train"])
    if request["kind"] == "command":
        return CommandTrainer(**fields | {"command": tuple(fields["command"])})
    return NamedTrainer(**fields)


# What was saved.


def hashes(folder: Path) -> dict[str, str]:
    """The hash of the content of every file; none if there is no folder."""
    if not folder.is_dir():
        return {}
    return {
        str(path.relative_to(folder)): hashlib.sha256(_content(path.name, path.read_bytes())).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def readable(file: Path) -> bool:
    """Whether the content of a file can be compared: text, JSON or arrays, not a pickle or another binary format."""
    if file.suffix in (".npz", ".npy"):
        return True
    try:
        file.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _content(name: str, data: bytes) -> bytes:
    """What a file says: the members of an archive without their times, JSON without the order of its keys."""
    if data.startswith(b"PK"):
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(member, _content(member, archive.read(member))) for member in sorted(archive.namelist())]
            return repr(members).encode()
    if name.endswith(".json"):
        with contextlib.suppress(ValueError):
            return json.dumps(json.loads(data), sort_keys=True).encode()
    return data


def changed(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Files that only one of the two has, or whose content hashes differ."""
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


if __name__ == "__main__":
    _train(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
