"""Does a training survive being frozen? Train, freeze, kill, thaw in a fresh process, and compare with no interruption.

Every part is trained in a process of its own (`python -m freezethaw.runtime.checking`): what only lived in memory is
gone, as it will be in a study. When something differs, a few more processes find out why.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from freezethaw.errors import TrainingError
from freezethaw.records import Config
from freezethaw.trainers.command import CommandTrainer
from freezethaw.trainers.importing import NamedTrainer
from freezethaw.trainers.protocol import Save, TrainingRun

What = Literal["training", "epochs", "losses", "state"]
TOLERANCE = 1e-6  # of losses, relative: processors may add up in another order
COUNTER = re.compile(r"(?<![\w.])(?<![eE][-+])\d{1,9}(?![\w.])")  # no part of a decimal number
LARGEST_TEXT = 1_000_000  # bytes of a saved file that is searched for counters

OPTIMISER = (
    "what the next epoch needs is not all in the checkpoint: most often the optimiser's state (momentum, Adam's "
    "averages) is not saved, else the learning-rate schedule or the state of a random generator"
)
NEVER_LOADED = "the checkpoint is never loaded: without one the thawed run gives the same losses. Load run.checkpoint"
OFF_BY_ONE = (
    "an epoch count is off by one after the thaw: epochs done are counted from 0 in one place and from 1 in another, "
    "or the counter is saved before it is raised"
)
UNSEEDED_SPLIT = (
    "the trained state is the same and its loss is not: it is measured on other data each time. Seed the validation "
    "split with run.seed"
)
UNSEEDED = (
    "training is not the same in two processes even before any freeze: something is drawn without run.seed (initial "
    "weights, shuffling, the validation split, dropout), or the computation itself is not deterministic"
)
UNSEEDED_AFTER = (
    "two thaws from the same checkpoint differ: something is drawn without run.seed after a thaw (shuffling, the "
    "validation split)"
)
UNREADABLE = "load cannot read what save wrote, or needs something that only lived in the process before"
NOT_RESTORED = "the losses agree, but part of the saved state was not restored; it would show later"
RANDOM_SAVE = "save writes other bytes for the same state (a time stamp, an unordered set); harmless"


@dataclass(frozen=True)
class Finding:
    """Something that differs, and what usually causes it."""

    what: What
    text: str
    cause: str


@dataclass(frozen=True)
class CheckReport:
    """What `check` found."""

    epochs: int
    frozen_at: int
    uninterrupted: tuple[float, ...]
    thawed: tuple[float, ...]  # those before the freeze, and those after the thaw
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # that a checkpoint has

    @property
    def passed(self) -> bool:
        """Whether frozen and thawed equals uninterrupted."""
        return not self.findings


@dataclass(frozen=True)
class _Part:
    """What one process trained."""

    losses: tuple[float, ...]
    error: str = ""
    saved: Mapping[str, str] = field(default_factory=dict)  # file -> content hash, at the end
    saved_half: Mapping[str, str] | None = None  # the same where an uninterrupted training passes the freeze
    folder: Path = Path()


class _Laboratory:
    """Trains parts of one run, each in a fresh process."""

    def __init__(
        self, train: NamedTrainer | CommandTrainer, config: Config, seed: int, home: Path, limit: float | None
    ) -> None:
        self._train, self._config, self._seed, self._home, self._limit = train, config, seed, home, limit
        self._count = 0

    def train(self, start: int, end: int, load: Path | None = None, pass_by: int = 0, kill: bool = False) -> _Part:
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
                [sys.executable, "-m", "freezethaw.runtime.checking", str(home / "request.json")],
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

    def _read(self, home: Path, code: int | None, kill: bool) -> _Part:
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
        return _Part(losses, error, _hashes(home / "saved"), _hashes(half) if half.is_dir() else None, home / "saved")


def check(
    train: NamedTrainer | CommandTrainer,
    config: Config,
    epochs: int = 4,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    limit: float | None = None,
) -> CheckReport:
    """Train `epochs` epochs, once as they come and once frozen, killed and thawed half way; compare."""
    if epochs < 2:
        raise TrainingError(f"a check needs at least 2 epochs, not {epochs}")
    half = epochs // 2
    with tempfile.TemporaryDirectory(prefix="freezethaw-check-") as home:
        laboratory = _Laboratory(train, config, seed, Path(home), limit)
        whole = laboratory.train(0, epochs, pass_by=half)
        before = laboratory.train(0, half, kill=True) if not whole.error else _Part(())
        after = laboratory.train(half, epochs, load=before.folder) if before.saved else _Part(())
        findings, notes = _compare(laboratory, whole, before, after, epochs, half, tolerance)
    return CheckReport(
        epochs, half, whole.losses, before.losses + after.losses, findings, notes, tuple(sorted(whole.saved))
    )


def _compare(
    laboratory: _Laboratory, whole: _Part, before: _Part, after: _Part, epochs: int, half: int, tolerance: float
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    broken = _broken(whole, before, after, epochs, half)
    if broken is not None:
        return (broken,), ()
    if not _same(whole.losses[:half], before.losses, tolerance):
        text = _first_difference(whole.losses[:half], before.losses, 1, "in a second process, before any freeze,")
        alike = whole.saved_half is not None and whole.saved_half == before.saved
        return (Finding("losses", text, UNSEEDED_SPLIT if alike else UNSEEDED),), ()
    again = _Part(())
    if after.losses != whole.losses[half:] or after.saved != whole.saved:
        again = laboratory.train(half, epochs, load=before.folder)
    if not _same(whole.losses[half:], after.losses, tolerance):
        text = _first_difference(whole.losses[half:], after.losses, half + 1, "after the thaw")
        cause = _cause(laboratory, whole, before, after, again, epochs, half, tolerance)
        changed = _changed(whole.saved, after.saved)
        state = (Finding("state", f"saved state that differs at epoch {epochs}: {', '.join(changed)}", cause),)
        return (Finding("losses", text, cause), *(state if changed else ())), ()
    return _compare_states(whole, after, again, epochs)


def _compare_states(
    whole: _Part, after: _Part, again: _Part, epochs: int
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    changed = _changed(whole.saved, after.saved)
    restless = [name for name in changed if again.saved.get(name) != after.saved.get(name)]
    lost = [name for name in changed if name not in restless]
    notes = (f"{', '.join(restless)}: {RANDOM_SAVE}",) if restless else ()
    if not lost:
        return (), notes
    off = _counters_off(whole.folder, after.folder)
    text = f"saved state that differs at epoch {epochs}: {', '.join(lost)}"
    return (Finding("state", text, OFF_BY_ONE if off else NOT_RESTORED),), notes


def _broken(whole: _Part, before: _Part, after: _Part, epochs: int, half: int) -> Finding | None:
    """A part that did not train what it should have."""
    parts = (
        ("uninterrupted", whole, epochs, "the training itself fails: run it once by hand"),
        ("up to the freeze", before, half, UNSEEDED),
        ("after the thaw", after, epochs - half, UNREADABLE),
    )
    for when, part, count, cause in parts:
        if part.error:
            return Finding("training", f"{when}: {part.error}", cause)
        if not all(map(math.isfinite, part.losses)):
            text = f"{when}, the loss is not finite: choose a configuration that trains, with --config"
            return Finding("training", text, "this configuration diverges")
        if len(part.losses) != count:
            text = f"{when}, {len(part.losses)} epochs were reported where {count} were due"
            return Finding("epochs", text, "loop over run.epochs() until it ends, and report once in each epoch")
        if not part.saved:
            text = f"{when}, nothing was saved"
            return Finding("state", text, "pass save= to run.report, and write into the folder it is given")
    return None


def _cause(
    laboratory: _Laboratory,
    whole: _Part,
    before: _Part,
    after: _Part,
    again: _Part,
    epochs: int,
    half: int,
    tolerance: float,
) -> str:
    """Why the losses after a thaw differ."""
    if not _same(after.losses, again.losses, tolerance):
        return UNSEEDED_AFTER
    bare = laboratory.train(half, epochs)  # as if there were no checkpoint
    if not bare.error and _same(bare.losses, after.losses, tolerance):
        return NEVER_LOADED
    ahead = epochs - half
    repeated, skipped = whole.losses[half - 1 : epochs - 1], whole.losses[half + 1 :]
    if _same(repeated, after.losses, tolerance) or (skipped and _same(skipped, after.losses[: ahead - 1], tolerance)):
        return OFF_BY_ONE
    for shift in (1, -1):
        moved = laboratory.train(half + shift, epochs + shift, load=before.folder)
        if not moved.error and _same(moved.losses, whole.losses[half:], tolerance):
            return OFF_BY_ONE
    return OFF_BY_ONE if _counters_off(whole.folder, after.folder) else OPTIMISER


def _same(one: tuple[float, ...], other: tuple[float, ...], tolerance: float) -> bool:
    return len(one) == len(other) and all(
        math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-300) for a, b in zip(one, other, strict=True)
    )


def _first_difference(expected: tuple[float, ...], found: tuple[float, ...], first: int, when: str) -> str:
    for place, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a != b:
            return f"{when} the loss of epoch {first + place} is {b:.10g}; uninterrupted it is {a:.10g}"
    return f"{when} the losses differ"


def _hashes(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        return {}
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _changed(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def _counters_off(one: Path, other: Path) -> bool:
    """Whether a whole number in the saved files differs by just one. Nothing is unpickled."""
    for name in _hashes(one):
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


if __name__ == "__main__":
    _train(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
