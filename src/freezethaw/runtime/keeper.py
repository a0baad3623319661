"""Checkpoints of a study in a store: saved whole, recorded with their losses, verified before they are loaded."""

from __future__ import annotations

import contextlib
import re
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from freezethaw.errors import CheckpointError
from freezethaw.records import Best
from freezethaw.runtime.eviction import to_evict
from freezethaw.runtime.places import place_at
from freezethaw.store import Lease, NewCheckpoint, StoredCheckpoint, StoredStudy
from freezethaw.study import Study
from freezethaw.trainers.protocol import Save

GB = 1_000_000_000
NAME = re.compile(r"[A-Za-z0-9_-]+/run-([0-9]+)/epoch-([0-9]+)-[0-9]+-[0-9a-f]+")
Mark = tuple[int, int]  # run and epoch
# which checkpoints matter: how likely each run is to thaw, and what must stay
Judge = Callable[[Sequence[StoredCheckpoint]], tuple[Mapping[int, float], Collection[Mark]]]
LATEST = 2  # of a run, that are kept: the last one, and one to fall back on


def nearest(study: Study, best: Best) -> StoredCheckpoint | None:
    """The checkpoint of the best epoch; where that is not kept, of the best epoch of its run that is."""
    mine, losses = study.shared.stored.checkpoints(best.run), study.runs[best.run - 1].losses
    sign = 1.0 if study.direction == "minimize" else -1.0
    return min(mine, key=lambda c: (c.epoch != best.epoch, sign * losses[c.epoch - 1]), default=None)


@dataclass(frozen=True)
class Loaded:
    """A verified copy of a checkpoint."""

    folder: Path
    epoch: int


class CheckpointKeeper:
    """Writes, verifies, evicts. Only the holder of a run's lease writes or cleans in that run's folder."""

    def __init__(self, study: StoredStudy, folder: Path | str, gb: float | None = None) -> None:
        self._study, self._place = study, place_at(folder, study.durable)
        self._allowed = None if gb is None else int(gb * GB)
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", study.name)[:40].strip("-")
        self._open: set[str] = set()  # copies that are in use
        self._said = False  # that the budget is too small
        self._home = f"{readable or 'study'}-{study.uid[:16]}"

    def save(self, lease: Lease, epoch: int, save: Save) -> NewCheckpoint:
        """Write a checkpoint; it counts once it is given to `StoredStudy.record` together with its losses.

        Raises CheckpointError where the disk does not take it; then nothing is left behind, and older ones stay.
        """
        name = f"{self._of_run(lease.run)}/epoch-{epoch}-{lease.token}-{secrets.token_hex(4)}"
        try:
            found = self._place.write(name, save)
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint of run {lease.run} at epoch {epoch} could not be saved: {error}. Earlier ones stay; "
                "free room, or lower the disk budget (gb)"
            ) from error
        if not found.bytes:
            self._place.remove(name)
            raise CheckpointError(f"the checkpoint of run {lease.run} at epoch {epoch} is empty: save wrote no file")
        return NewCheckpoint(epoch, name, found.sha256, found.bytes)

    @contextlib.contextmanager
    def load(self, lease: Lease) -> Iterator[Loaded | None]:
        """A verified copy of the newest good checkpoint of a run, while the context lasts; None where there is none.

        One that is damaged, missing or of another run is marked so, with an event, and never given out.
        """
        home = self._of_run(lease.run)
        with tempfile.TemporaryDirectory(prefix=".loading-", dir=self._place.temporary(home)) as folder:
            name = f"{home}/{Path(folder).name}"
            self._open.add(name)
            try:
                yield self._newest_good(lease, Path(folder))
            finally:
                self._open.remove(name)

    def newest(self, run: int) -> StoredCheckpoint | None:
        """The record of the newest checkpoint of a run."""
        return max(self._study.checkpoints(run), key=lambda r: (r.epoch, r.number), default=None)

    def replaced(self, run: int, best: Collection[Mark] = (), coming: int = 1) -> tuple[StoredCheckpoint, ...]:
        """Checkpoints of the run that may go once `coming` more are there; where room is short, all but the last."""
        everything = self._study.checkpoints()
        mine = sorted((c for c in everything if c.run == run), key=lambda record: (record.epoch, record.number))
        size = sum(c.bytes for c in everything) + coming * max((c.bytes for c in mine), default=0)
        latest = LATEST if self._allowed is None or size <= self._allowed else 1
        old = mine[: max(len(mine) + coming - latest, 0)]
        return tuple(record for record in old if (record.run, record.epoch) not in best)

    def remove(self, records: Iterable[StoredCheckpoint]) -> None:
        """Remove the files of checkpoints that the store no longer counts."""
        for record in records:
            self._remove(record)

    def tidy(self, lease: Lease, best: Collection[Mark] = ()) -> None:
        """Remove checkpoints of the run that later ones replace, and whatever a killed worker left behind."""
        old = self.replaced(lease.run, best, coming=0)
        if old:
            self.remove(self._study.drop_checkpoints([r.number for r in old], "replaced", lease))
        self.clean(lease)

    def clean(self, lease: Lease) -> None:
        """Remove whatever a killed worker left behind."""
        kept = {record.place for record in self._study.checkpoints(lease.run)} | self._open
        for name in self._place.names(self._of_run(lease.run)):
            if name not in kept:
                self._place.remove(name)

    def make_room(self, judge: Judge) -> tuple[StoredCheckpoint, ...]:
        """Evict what is least likely to thaw until the rest is within the budget; gives what went.

        `judge` is asked only where room is short, and last: what others save meanwhile is not among what may go.
        """
        kept = () if self._allowed is None else self._study.checkpoints()
        if self._allowed is None or sum(c.bytes for c in kept) <= self._allowed:
            return ()
        leased = {lease.run for lease in self._study.leases()}
        chances, best = judge(kept)
        gone = to_evict(kept, self._allowed, chances, leased, best)
        evicted = self._study.drop_checkpoints([r.number for r in gone], "evicted") if gone else ()
        self.remove(evicted)
        self._say_if_too_small(sum(c.bytes for c in kept) - sum(c.bytes for c in evicted))
        return evicted

    def _say_if_too_small(self, left: int) -> None:
        if self._allowed is not None and left > self._allowed and not self._said:
            self._said = True
            text = (
                f"the checkpoints of the best epoch and of runs under way take {left / GB:.3g} GB, more than the "
                f"budget of {self._allowed / GB:.3g} GB (gb); they stay, and other runs are thawed from their start"
            )
            self._study.add_event("disk budget exceeded", text)

    def _newest_good(self, lease: Lease, folder: Path) -> Loaded | None:
        for record in sorted(self._study.checkpoints(lease.run), key=lambda r: (-r.epoch, -r.number)):
            copy = folder / str(record.number)
            copy.mkdir()
            try:
                self._verify(record, copy)
            except (CheckpointError, FileNotFoundError, NotADirectoryError) as error:
                self._study.drop_checkpoints([record.number], "damaged", lease)
                text = f"the checkpoint of run {record.run} at epoch {record.epoch} ({record.place}) {error}"
                self._study.add_event("checkpoint not loaded", text, record.run, record.epoch)
                continue
            except OSError as error:  # nothing is wrong with the checkpoint: no room for a copy, or no connection
                raise CheckpointError(f"the checkpoint {record.place} cannot be read: {error}") from error
            return Loaded(copy, record.epoch)
        return None

    def _verify(self, record: StoredCheckpoint, copy: Path) -> None:
        name = NAME.fullmatch(record.place)
        if name is None or (int(name[1]), int(name[2])) != (record.run, record.epoch):
            raise CheckpointError("is recorded at a place that is not its own")
        found = self._place.fetch(record.place, copy)
        if found.sha256 != record.sha256:
            raise CheckpointError(
                f"is damaged: its content hash is {found.sha256[:12]}, recorded was {record.sha256[:12]} "
                f"({found.bytes} bytes, recorded were {record.bytes})"
            )

    def _remove(self, record: StoredCheckpoint) -> None:
        if NAME.fullmatch(record.place):  # whatever the store says, nothing else is removed
            self._place.remove(record.place)

    def _of_run(self, run: int) -> str:
        return f"{self._home}/run-{run}"
