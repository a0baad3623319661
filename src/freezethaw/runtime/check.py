"""Check whether a training survives a freeze: train, freeze, kill, thaw in a new process, compare with no interruption.

If anything differs, a few more processes find the cause.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from freezethaw.errors import TrainingError
from freezethaw.records import Config
from freezethaw.runtime.check_process import CheckProcess, Part, changed, counters_off, readable
from freezethaw.trainers.command import CommandTrainer
from freezethaw.trainers.importing import NamedTrainer

What = Literal["training", "epochs", "losses", "state"]
TOLERANCE = 1e-6  # of losses, relative: the order of additions may differ between processors

OPTIMISER = (
    "the checkpoint lacks something that the next epoch needs: most often the optimiser's state (momentum, Adam's "
    "averages), else the learning-rate schedule or the state of a random generator"
)
NEVER_LOADED = "the checkpoint is never loaded: a thaw without it gives the same losses. Load run.checkpoint"
OFF_BY_ONE = (
    "an epoch counter is off by one after the thaw: it starts at 0 in one place and at 1 in another, or it is saved "
    "before it is incremented"
)
UNSEEDED_SPLIT = (
    "the trained state is the same but its loss is not: the loss is measured on different data each time. Seed the "
    "validation split with run.seed"
)
UNSEEDED = (
    "training differs between two processes even before any freeze: something is drawn without run.seed (initial "
    "weights, shuffling, the validation split, dropout), or the computation itself is not deterministic"
)
UNSEEDED_AFTER = (
    "two thaws from the same checkpoint differ: something is drawn without run.seed after a thaw (shuffling, the "
    "validation split)"
)
UNREADABLE = "load cannot read what save wrote, or needs something that existed only in the earlier process"
NOT_RESTORED = "the losses agree, but part of the saved state was not restored; it would show later"
OTHER_BYTES = (
    "saved with other bytes after a thaw; its content was not compared, because nothing is unpickled, but training "
    "continued from it with the same losses as without any freeze"
)
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


def check(
    train: NamedTrainer | CommandTrainer,
    config: Config,
    epochs: int = 4,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    limit: float | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> CheckReport:
    """Train `epochs` epochs, once without interruption and once frozen, killed and thawed half way; compare.

    `say` is called with a description of what is being trained.
    """
    if epochs < 2:
        raise TrainingError(f"a check needs at least 2 epochs, not {epochs}")
    half = epochs // 2
    with tempfile.TemporaryDirectory(prefix="freezethaw-check-") as home:
        process = CheckProcess(train, config, seed, Path(home), limit)
        say(f"training epochs 1 to {epochs} without interruption")
        whole, before, after = process.train(0, epochs, pass_by=half), Part(()), Part(())
        if not whole.error:
            say(f"training epochs 1 to {half}, then freezing and killing")
            before = process.train(0, half, kill=True)
        if before.saved:
            say(f"thawing, and training epochs {half + 1} to {epochs}")
            after = process.train(half, epochs, load=before.folder)
        compared = _Comparison(process, whole, before, after, epochs, half, tolerance, say)
        findings, notes = compared.findings()
    thawed = before.losses + after.losses
    return CheckReport(epochs, half, whole.losses, thawed, findings, notes, tuple(sorted(whole.saved)))


@dataclass(frozen=True)
class _Comparison:
    """An uninterrupted training beside the same one before it was frozen and after it was thawed."""

    process: CheckProcess
    whole: Part
    before: Part
    after: Part
    epochs: int
    half: int
    tolerance: float
    say: Callable[[str], object]

    def findings(self) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
        """What differs, with its usual cause, and remarks."""
        whole, before, after, half = self.whole, self.before, self.after, self.half
        broken = self._broken()
        if broken is not None:
            return (broken,), ()
        if not self._same(whole.losses[:half], before.losses):
            text = _first_difference(whole.losses[:half], before.losses, 1, "in a second process, before any freeze,")
            alike = whole.saved_half is not None and whole.saved_half == before.saved
            return (Finding("losses", text, UNSEEDED_SPLIT if alike else UNSEEDED),), ()
        again = Part(())
        if after.losses != whole.losses[half:] or after.saved != whole.saved:
            self.say("something differs: training a little more, to find out why")
            again = self.process.train(half, self.epochs, load=before.folder)
        if self._same(whole.losses[half:], after.losses):
            return self._of_states(again)
        text = _first_difference(whole.losses[half:], after.losses, half + 1, "after the thaw")
        cause, files = self._cause(again), changed(whole.saved, after.saved)
        state = (Finding("state", self._differing(files), cause),) if files else ()
        return (Finding("losses", text, cause), *state), ()

    def _of_states(self, again: Part) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
        """Findings if the losses agree: only saved files can differ."""
        files = changed(self.whole.saved, self.after.saved)
        restless = [name for name in files if again.saved.get(name) != self.after.saved.get(name)]
        lost = [name for name in files if name not in restless]
        notes: tuple[str, ...] = (f"{', '.join(restless)}: {RANDOM_SAVE}",) if restless else ()
        opaque = [name for name in lost if not readable(self.whole.folder / name)]
        if opaque and self._continues_alike():
            notes += (f"{', '.join(opaque)}: {OTHER_BYTES} ({self.half} more epochs)",)
            lost = [name for name in lost if name not in opaque]
        if not lost:
            return (), notes
        off = counters_off(self.whole.folder, self.after.folder)
        return (Finding("state", self._differing(lost), OFF_BY_ONE if off else NOT_RESTORED),), notes

    def _continues_alike(self) -> bool:
        """Whether training on from what the thawed run saved gives the losses of a longer uninterrupted training."""
        self.say("a saved file has other bytes: training on, with and without a thaw")
        end = self.epochs + self.half
        whole, thawed = self.process.train(0, end), self.process.train(self.epochs, end, load=self.after.folder)
        same = self._same(whole.losses[self.epochs :], thawed.losses)
        return not whole.error and not thawed.error and len(thawed.losses) == self.half and same

    def _differing(self, files: list[str]) -> str:
        return f"saved state that differs at epoch {self.epochs}: {', '.join(files)}"

    def _broken(self) -> Finding | None:
        """A part that did not train what it should have."""
        parts = (
            ("uninterrupted", self.whole, self.epochs, "the training itself fails: run it once by hand"),
            ("up to the freeze", self.before, self.half, UNSEEDED),
            ("after the thaw", self.after, self.epochs - self.half, UNREADABLE),
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

    def _cause(self, again: Part) -> str:
        """Why the losses after a thaw differ; `again` is a second thaw."""
        whole, after, epochs, half = self.whole, self.after, self.epochs, self.half
        if not self._same(after.losses, again.losses):
            return UNSEEDED_AFTER
        bare = self.process.train(half, epochs)  # as if there were no checkpoint
        if not bare.error and self._same(bare.losses, after.losses):
            return NEVER_LOADED
        repeated, skipped = whole.losses[half - 1 : epochs - 1], whole.losses[half + 1 :]
        if self._same(repeated, after.losses) or (skipped and self._same(skipped, after.losses[: epochs - half - 1])):
            return OFF_BY_ONE
        for shift in (1, -1):
            moved = self.process.train(half + shift, epochs + shift, load=self.before.folder)
            if not moved.error and self._same(moved.losses, whole.losses[half:]):
                return OFF_BY_ONE
        return OFF_BY_ONE if counters_off(whole.folder, after.folder) else OPTIMISER

    def _same(self, one: tuple[float, ...], other: tuple[float, ...]) -> bool:
        return len(one) == len(other) and all(
            math.isclose(a, b, rel_tol=self.tolerance, abs_tol=1e-300) for a, b in zip(one, other, strict=True)
        )


def _first_difference(expected: tuple[float, ...], found: tuple[float, ...], first: int, when: str) -> str:
    for place, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a != b:
            return f"{when} the loss of epoch {first + place} is {b:.10g}; uninterrupted it is {a:.10g}"
    return f"{when} the losses differ"
