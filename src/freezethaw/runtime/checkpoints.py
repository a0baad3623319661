"""Checkpoints of a study: written completely, recorded with their losses, verified before they are loaded.

Models of runs that were frozen recently are kept in memory too (`ModelCache`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from freezethaw.errors import CheckpointError, described
from freezethaw.records import Best, Checkpoint, Lease
from freezethaw.runtime.checkpoint_storage import is_full, storage_at
from freezethaw.store import Storage
from freezethaw.study import StudyReader
from freezethaw.trainers.protocol import Save
from freezethaw.trainers.random_states import snapshot_random_states

GB = 1_000_000_000
NAME = re.compile(r"[A-Za-z0-9_-]+/run-([0-9]+)/epoch-([0-9]+)-[0-9]+-[0-9a-f]+")
Mark = tuple[int, int]  # run and epoch
# how likely each run is to be thawed, and which checkpoints must stay
Relevance = Callable[[Sequence[Checkpoint]], tuple[Mapping[int, float], Collection[Mark]]]
LATEST = 2  # checkpoints of a run that are kept: the last one, and one to fall back on


def saved_near(study: StudyReader, best: Best, kept: Sequence[Checkpoint]) -> Best:
    """A best or recommended epoch with its checkpoint; if it was not saved, the best saved epoch of its run."""
    losses = study.runs[best.run - 1].losses
    mine = sorted((c for c in kept if c.run == best.run), key=lambda c: study.sign * losses[c.epoch - 1])
    found = next((c for c in mine if c.epoch == best.epoch), mine[0] if mine else None)
    if found is None:
        return best
    return replace(best, epoch=found.epoch, loss=losses[found.epoch - 1], checkpoint=Path(found.place))


@dataclass(frozen=True)
class Loaded:
    """A verified copy of a checkpoint."""

    folder: Path
    epoch: int


def home_of(study: Storage) -> str:
    """The unique name of a study's folder, for its checkpoints and its logs."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", study.name)[:40].strip("-")
    return f"{readable or 'study'}-{study.uid[:16]}"


class CheckpointManager:
    """Writes, verifies and evicts. Only the holder of a run's lease writes or cleans in that run's folder."""

    def __init__(self, study: Storage, folder: Path | str, gb: float | None = None) -> None:
        self._study, self._files = study, storage_at(folder, study.durable)
        self._allowed = None if gb is None else int(gb * GB)
        self._open: set[str] = set()  # copies that are in use
        self._warned = False  # whether an event says that the budget is too small
        self._home = home_of(study)

    def save(self, lease: Lease, epoch: int, save: Save) -> Checkpoint:
        """Write a checkpoint; it exists once it is recorded together with its losses.

        Raises CheckpointError if it cannot be written, for example because the disk is full, or else what `save`
        raises. Then nothing is left behind, and older ones stay.
        """
        name = f"{self._of_run(lease.run)}/epoch-{epoch}-{lease.token}-{secrets.token_hex(4)}"
        failed: list[Exception] = []  # errors of `save` itself, not of the disk

        def checked(folder: Path) -> None:
            try:
                save(folder)
            except Exception as error:
                if not is_full(folder):
                    failed.append(error)
                    raise
                text = f"{os.strerror(errno.ENOSPC)} ({described(error)})"
                raise OSError(errno.ENOSPC, text) from error

        try:
            found = self._files.write(name, checked)
        except OSError as error:
            if error in failed:
                raise
            raise CheckpointError(
                f"the checkpoint of run {lease.run} at epoch {epoch} could not be saved: {error}. Earlier ones stay; "
                "free disk space, or lower the disk budget (gb)"
            ) from error
        if not found.files:
            self._files.remove(name)
            raise CheckpointError(f"the checkpoint of run {lease.run} at epoch {epoch} is empty: save wrote no file")
        return Checkpoint(lease.run, epoch, name, found.sha256, found.bytes)

    @contextlib.contextmanager
    def load(self, lease: Lease) -> Iterator[Loaded | None]:
        """A verified copy of the newest good checkpoint of a run, within the context; None if there is none.

        One that is damaged, missing or of another run is recorded as such, with an event, and never returned.
        """
        if not self._study.checkpoints(lease.run):
            yield None
            return
        home = self._of_run(lease.run)
        with tempfile.TemporaryDirectory(prefix=".loading-", dir=self._files.temporary(home)) as folder:
            name = f"{home}/{Path(folder).name}"
            self._open.add(name)
            try:
                yield self._newest_good(lease, Path(folder))
            finally:
                self._open.remove(name)

    def newest(self, run: int) -> Checkpoint | None:
        """The record of the newest checkpoint of a run."""
        return max(self._study.checkpoints(run), key=lambda r: (r.epoch, r.number), default=None)

    def replaced(self, run: int, best: Collection[Mark] = ()) -> tuple[Checkpoint, ...]:
        """Checkpoints that a new one replaces; if disk space is short, all of them."""
        everything = self._study.checkpoints()
        mine = sorted((c for c in everything if c.run == run), key=lambda record: (record.epoch, record.number))
        size = sum(c.bytes for c in everything) + max((c.bytes for c in mine), default=0)
        latest = LATEST if self._allowed is None or size <= self._allowed else 1
        old = mine[: max(len(mine) + 1 - latest, 0)]
        return tuple(record for record in old if (record.run, record.epoch) not in best)

    def remove(self, records: Iterable[Checkpoint]) -> None:
        """Remove the files of checkpoints that storage no longer lists."""
        for record in records:
            self._remove(record)

    def clean(self, lease: Lease) -> None:
        """Remove files that a killed worker left behind."""
        kept = {record.place for record in self._study.checkpoints(lease.run)} | self._open
        for name in self._files.names(self._of_run(lease.run)):
            if name not in kept:
                self._files.remove(name)

    def evict(self, relevance: Relevance) -> tuple[Checkpoint, ...]:
        """Remove checkpoints of the runs least likely to be thawed until the rest is within the budget.

        `relevance` is called only if disk space is short, and after the list was read: checkpoints that other
        workers save meanwhile are not considered.
        """
        kept = () if self._allowed is None else self._study.checkpoints()
        if self._allowed is None or sum(c.bytes for c in kept) <= self._allowed:
            return ()
        leased = {lease.run for lease in self._study.leases()}
        chances, best = relevance(kept)
        gone = to_evict(kept, self._allowed, chances, leased, best)
        evicted = self._study.drop_checkpoints([r.number for r in gone], "evicted") if gone else ()
        self.remove(evicted)
        self._warn_if_too_small(sum(c.bytes for c in kept) - sum(c.bytes for c in evicted))
        return evicted

    def _warn_if_too_small(self, left: int) -> None:
        if self._allowed is not None and left > self._allowed and not self._warned:
            self._warned = True
            text = (
                f"the checkpoints of the best epoch and of pending runs take {left / GB:.3g} GB, more than the budget "
                f"of {self._allowed / GB:.3g} GB (gb); they stay, and other runs are thawed from their start"
            )
            self._study.add_event("disk budget exceeded", text)

    def _newest_good(self, lease: Lease, folder: Path) -> Loaded | None:
        for record in sorted(self._study.checkpoints(lease.run), key=lambda r: (-r.epoch, -r.number)):
            copy = folder / str(record.number)
            try:
                copy.mkdir()
                self._verify(record, copy)
            except (CheckpointError, FileNotFoundError, NotADirectoryError) as error:
                if not folder.is_dir():  # the worker that took the run over has cleaned up
                    self._study.beat(lease)  # raises LeaseLost
                    raise
                self._study.drop_checkpoints([record.number], "damaged", lease)
                text = f"the checkpoint of run {record.run} at epoch {record.epoch} ({record.place}) {error}"
                self._study.add_event("checkpoint not loaded", text, record.run, record.epoch)
                continue
            except OSError as error:  # nothing is wrong with the checkpoint: no space for a copy, or no connection
                raise CheckpointError(f"the checkpoint {record.place} cannot be read: {error}") from error
            return Loaded(copy, record.epoch)
        return None

    def _verify(self, record: Checkpoint, copy: Path) -> None:
        name = NAME.fullmatch(record.place)
        if name is None or (int(name[1]), int(name[2])) != (record.run, record.epoch):
            raise CheckpointError("is recorded at another path than its own")
        found = self._files.fetch(record.place, copy)
        if found.sha256 != record.sha256:
            raise CheckpointError(
                f"is damaged: its content hash is {found.sha256[:12]}, recorded was {record.sha256[:12]} "
                f"({found.bytes} bytes, recorded were {record.bytes})"
            )

    def _remove(self, record: Checkpoint) -> None:
        if NAME.fullmatch(record.place):  # only names of checkpoints are ever removed
            self._files.remove(record.place)

    def _of_run(self, run: int) -> str:
        return f"{self._home}/run-{run}"


def to_evict(
    kept: Sequence[Checkpoint],
    allowed: int,
    chances: Mapping[int, float],
    leased: Collection[int],
    best: Collection[tuple[int, int]],
) -> list[Checkpoint]:
    """Checkpoints to remove so that the rest has at most `allowed` bytes, in order.

    First those that a later one of the same run replaces, then those of the runs least likely to be thawed (`chances`
    by run; an unknown run has none). Those of leased runs and of the best (run, epoch)s are never removed.
    """
    excess = sum(record.bytes for record in kept) - allowed
    latest = {record.run: record.number for record in sorted(kept, key=lambda r: (r.epoch, r.number))}
    free = [record for record in kept if record.run not in leased and (record.run, record.epoch) not in best]
    gone = []
    for record in sorted(free, key=lambda r: (latest[r.run] == r.number, chances.get(r.run, 0.0), r.number)):
        if excess <= 0:
            break
        gone.append(record)
        excess -= record.bytes
    return gone


@dataclass(frozen=True)
class _Kept:
    """A model as it was when this checkpoint was saved, and the random generators that it shares with others."""

    epoch: int
    sha256: str
    model: object
    restore: Callable[[], None]


class ModelCache:
    """The models of the last few frozen runs, in memory; the least recently used is dropped first.

    It saves loading and is never the only copy. A model belongs to one checkpoint, known by run, epoch and content
    hash. It is used only if that is still the newest checkpoint of the run, so a run that another worker has advanced
    since is never taken from here.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[int, _Kept] = OrderedDict()  # by run

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, checkpoint: Checkpoint, model: object) -> None:
        """Keep a model whose state was just saved as this checkpoint."""
        if not self._most:
            return
        self._kept[checkpoint.run] = _Kept(checkpoint.epoch, checkpoint.sha256, model, snapshot_random_states())
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def take(self, run: int, newest: Checkpoint | None) -> object | None:
        """The model of a run that continues from its newest checkpoint; None if it is not cached for this checkpoint.

        It leaves the cache: from now on it is trained, and no longer equals what was saved.
        """
        kept = self._kept.pop(run, None)
        if kept is None or newest is None or (kept.epoch, kept.sha256) != (newest.epoch, newest.sha256):
            return None
        kept.restore()
        return kept.model

    def disable(self) -> None:
        """Free everything, and keep nothing from now on."""
        self._most = 0
        self._kept.clear()
