"""Which checkpoints go when the disk budget is exceeded: a pure function."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from freezethaw.store import StoredCheckpoint


def to_evict(
    kept: Sequence[StoredCheckpoint],
    allowed: int,
    chances: Mapping[int, float],
    leased: Collection[int],
    best: Collection[tuple[int, int]],
) -> list[StoredCheckpoint]:
    """Checkpoints to remove so that the rest has at most `allowed` bytes, in the order in which they go.

    First those that a later one of the same run replaces, then those of the runs least likely to thaw (`chances` by
    run; an unknown run has none). Those of leased runs and of the best (run, epoch)s never go, even if too much stays.
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
