"""Checkpoints: saved whole or not at all, never loaded wrong, within their budget."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from freezethaw.errors import CheckpointError, LeaseLost, StoreError
from freezethaw.records import Checkpoint
from freezethaw.runtime import checkpoints
from freezethaw.runtime.checkpoints import CheckpointManager, to_evict
from freezethaw.store import Watcher
from tests.store.small_study import CONFIG, Clock, decide, opened, report, take_over


@pytest.fixture
def study(tmp_path):
    return opened(f"sqlite:///{tmp_path / 'study.db'}", name="a/b 雪 ../x", max_epochs=100)


@pytest.fixture
def manager(study, tmp_path):
    return CheckpointManager(study, tmp_path / "checkpoints")


def writer(text, size=0):
    def save(folder: Path):
        (folder / "deep").mkdir()
        (folder / "deep" / "state.txt").write_text(text)
        (folder / "weights").write_bytes(text.encode() + b"\0" * size)

    return save


def trained(study, manager, lease, epochs, size=0):
    """Record epochs one by one, each with a checkpoint that says whose it is."""
    for epoch in epochs:
        new = manager.save(lease, epoch, writer(f"run {lease.run} epoch {epoch}", size))
        study.record(lease, report(epoch, 1.0 / epoch), new)


def loaded(manager, lease):
    with manager.load(lease) as found:
        return found and (found.epoch, (found.folder / "deep" / "state.txt").read_text())


def places(manager):
    return sorted(p for p in manager._files.root.rglob("epoch-*") if p.is_dir())


def test_what_was_saved_is_loaded(study, manager):
    lease = decide(study, to_epoch=9).lease
    assert loaded(manager, lease) is None
    trained(study, manager, lease, [1, 2, 3])
    assert loaded(manager, lease) == (3, "run 1 epoch 3")
    assert study.events() == ()
    assert not list(manager._files.root.rglob(".loading-*"))


def test_a_change_to_the_copy_leaves_the_checkpoint_alone(study, manager):
    lease = decide(study).lease
    trained(study, manager, lease, [1])
    with manager.load(lease) as found:
        (found.folder / "weights").write_text("trained on in place")
        manager.clean(lease)
        assert found.folder.is_dir()
    assert loaded(manager, lease) == (1, "run 1 epoch 1")


DAMAGES = (
    "flip",
    "truncate",
    "extend",
    "missing file",
    "missing folder",
    "another run",
    "another epoch",
    "rename",
    "link",
)


def damage(kind, place: Path, other: Path, rng: random.Random):
    target = place / rng.choice(["weights", "deep/state.txt"])
    data = target.read_bytes()
    if kind == "flip":
        at = rng.randrange(len(data))
        target.write_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :])
    elif kind == "truncate":
        target.write_bytes(data[: rng.randrange(len(data))])
    elif kind == "extend":
        target.write_bytes(data + b"x")
    elif kind == "missing file":
        target.unlink()
    elif kind == "missing folder":
        shutil.rmtree(place)
    elif kind in ("another run", "another epoch"):
        shutil.rmtree(place)
        shutil.copytree(other, place)
    elif kind == "rename":
        target.rename(target.with_name("renamed"))
    else:
        target.unlink()
        target.symlink_to(other / "weights")


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_never_loaded(study, manager, kind):
    """Twelve of each kind: the older one is used, and an event says what happened."""
    rng = random.Random(kind)
    for _ in range(12):
        lease, other = decide(study, to_epoch=9).lease, decide(study, to_epoch=9).lease
        trained(study, manager, other, [1], size=rng.randrange(100))
        trained(study, manager, lease, [1, 2], size=rng.randrange(100))
        first, second = sorted(manager._files.root.glob(f"*/run-{lease.run}/epoch-*"))
        [foreign] = manager._files.root.glob(f"*/run-{other.run}/epoch-*")
        damage(kind, second, first if kind == "another epoch" else foreign, rng)
        before = len(study.events())
        assert loaded(manager, lease) == (1, f"run {lease.run} epoch 1")
        said = study.events()[before:]
        assert [e.kind for e in said] == ["checkpoint damaged", "checkpoint not loaded"]
        assert f"run {lease.run} at epoch 2" in said[1].text
        damage("flip", first, foreign, rng)
        assert loaded(manager, lease) is None
        for done in (lease, other):
            study.record(done, close="told")


@pytest.mark.parametrize("place", ["../../outside", "/etc", "x/run-1/../../..", "x/run-2/epoch-1-1-aa", ""])
def test_a_hostile_record_touches_nothing_outside(study, manager, tmp_path, place):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("x")
    lease = decide(study).lease
    new = manager.save(lease, 1, writer("x"))
    study.record(lease, report(1, 1.0), replace(new, place=place))
    assert loaded(manager, lease) is None
    assert "another path than its own" in study.events()[-1].text
    study.record(lease, report(2, 1.0), replace(new, epoch=2, place=place), close="told")
    manager._allowed = 0
    manager.evict(lambda kept: ({}, ()))
    assert (tmp_path / "outside" / "precious").exists()


def test_nothing_hostile_is_opened_or_run(study, manager, tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'exploded'}",)

    lease = decide(study).lease

    def save(folder):
        for name in ("model.pkl", "model.pt", "__init__.py", "conftest.py", "state.npy"):
            (folder / name).write_bytes(pickle.dumps(Bomb()))

    study.record(lease, report(1, 1.0), manager.save(lease, 1, save))
    with manager.load(lease) as found:
        assert len(list(found.folder.iterdir())) == 5
    assert not (tmp_path / "exploded").exists()
    [place] = places(manager)
    os.mkfifo(place / "pipe")  # opening it would wait for ever
    assert loaded(manager, lease) is None
    assert "not a plain file" in study.events()[-1].text


@pytest.mark.parametrize("what", ["link", "pipe", "nothing"])
def test_a_save_that_writes_no_plain_files_is_refused(study, manager, what):
    lease = decide(study).lease

    def save(folder):
        if what == "link":
            (folder / "x").symlink_to("/etc/passwd")
        elif what == "pipe":
            os.mkfifo(folder / "x")

    with pytest.raises(CheckpointError, match=r"not a plain file|save wrote no file"):
        manager.save(lease, 1, save)
    assert places(manager) == []


def test_a_save_that_fails_leaves_nothing_behind(study, manager, monkeypatch):
    lease = decide(study).lease
    trained(study, manager, lease, [1])
    monkeypatch.setattr(checkpoints, "is_full", lambda _folder: True)

    def full(folder):
        (folder / "weights").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CheckpointError, match=r"run 1 at epoch 2 could not be saved: .*No space left.*Earlier"):
        manager.save(lease, 2, full)

    monkeypatch.undo()
    with pytest.raises(OSError, match="No space left") as caught:  # of another disk
        manager.save(lease, 2, full)
    assert not isinstance(caught.value, CheckpointError)

    def wrong(folder):
        (folder / "weights").write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        manager.save(lease, 2, wrong)
    assert len(places(manager)) == 1
    assert not list(manager._files.root.rglob(".writing-*"))
    assert loaded(manager, lease) == (1, "run 1 epoch 1")


def test_what_a_killed_worker_left_is_cleaned_by_the_next_owner(study, manager):
    lease = decide(study, to_epoch=9).lease
    trained(study, manager, lease, [1])
    manager.save(lease, 2, writer("never recorded"))
    home = places(manager)[0].parent
    (home / ".writing-abc").mkdir()
    (home / ".loading-abc").mkdir()
    study.release(lease)
    taken = take_over(study, Watcher()).lease
    manager.clean(taken)
    assert len(list(home.iterdir())) == 1
    assert loaded(manager, taken) == (1, "run 1 epoch 1")
    trained(study, manager, taken, [2, 3, 4])
    assert len(places(manager)) == 4
    assert [r.epoch for r in manager.replaced(1)] == [1, 2, 3]
    assert [r.epoch for r in manager.replaced(1, best={(1, 2)})] == [1, 3]
    with pytest.raises(LeaseLost):
        trained(study, manager, lease, [5])


def test_an_owner_that_was_stopped_while_it_loads_learns_that_it_lost_its_lease(study, manager, monkeypatch):
    lease = decide(study, to_epoch=9).lease
    trained(study, manager, lease, [1])
    newest_good, clock = manager._newest_good, Clock()
    watcher = Watcher(60.0, clock)
    take_over(study, watcher)
    clock.now += 61

    def stopped_meanwhile(lease, folder):
        other = CheckpointManager(study, manager._files.root)
        other.clean(take_over(study, watcher).lease)
        return newest_good(lease, folder)

    monkeypatch.setattr(manager, "_newest_good", stopped_meanwhile)
    with pytest.raises(LeaseLost), manager.load(lease):
        pass
    assert len(study.checkpoints(1)) == 1


def test_a_full_disk_for_the_copy_does_not_mark_the_checkpoint_as_damaged(study, manager, monkeypatch):
    lease = decide(study).lease
    trained(study, manager, lease, [1])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(manager._files, "fetch", full)
        with pytest.raises(CheckpointError, match=r"cannot be read.*No space"):
            loaded(manager, lease)
    assert loaded(manager, lease) == (1, "run 1 epoch 1")


# The disk budget.


def record(number, run, epoch, size=10):
    return Checkpoint(run, epoch, f"{number}", "", size, number)


KEPT = [record(1, 1, 1), record(2, 1, 2), record(3, 2, 1), record(4, 3, 4), record(5, 4, 1)]


@pytest.mark.parametrize(
    ("allowed", "leased", "best", "expected"),
    [
        (50, (), {}, []),
        (49, (), {}, [1]),  # replaced by a later one of its run
        (39, (), {}, [1, 5]),  # then the least likely to thaw: run 4 has no chance
        (0, (), {}, [1, 5, 3, 4, 2]),
        (0, (2,), {(3, 4)}, [1, 5, 2]),  # leased and best never go
        (0, (2,), {(3, 4), (1, 2)}, [1, 5]),
        (49, (), {(1, 1)}, [5]),
    ],
)
def test_which_checkpoints_are_removed_first(allowed, leased, best, expected):
    chances = {1: 0.9, 2: 0.1, 3: 0.5}
    assert [r.number for r in to_evict(KEPT, allowed, chances, leased, best)] == expected


def test_checkpoints_stay_within_the_budget(study, tmp_path):
    manager = CheckpointManager(study, tmp_path / "checkpoints", gb=5000 / 1e9)
    for _ in range(8):
        lease = decide(study, to_epoch=9).lease
        trained(study, manager, lease, [1], size=1000)
        if lease.run != 8:
            study.record(lease, close="told")
    evicted = manager.evict(lambda kept: ({run: run / 10 for run in range(1, 9)}, {(1, 1)}))
    assert [r.run for r in evicted] == [2, 3, 4, 5]
    assert sum(r.bytes for r in study.checkpoints()) <= 5000
    assert len(places(manager)) == len(study.checkpoints()) == 4
    assert {r.run for r in study.checkpoints()} == {1, 6, 7, 8}
    assert manager.evict(lambda kept: 1 / 0) == (), "relevance is asked for only if disk space is short"
    assert [e.kind for e in study.events()] == ["checkpoint evicted"] * 4
    thawed = decide(study, run=2, to_epoch=9).lease
    assert loaded(manager, thawed) is None  # it is trained again from its start


def test_checkpoints_that_another_worker_saves_during_eviction_stay(study, tmp_path):
    """Its run is released at once, and `relevance` may not know it: it is not among the candidates for eviction."""
    manager = CheckpointManager(study, tmp_path / "checkpoints", gb=1e-9)
    mine, other = decide(study, to_epoch=9).lease, decide(study, to_epoch=9).lease
    trained(study, manager, mine, [1])
    trained(study, manager, other, [1])
    study.record(mine, close="told")

    def slow(kept):
        trained(study, manager, other, [2])
        study.record(other, close="told")
        return {}, ()

    assert [(r.run, r.epoch) for r in manager.evict(slow)] == [(1, 1)]
    assert (2, 2) in {(r.run, r.epoch) for r in study.checkpoints()}


def test_a_budget_that_is_too_small_is_reported_once(study, tmp_path):
    manager = CheckpointManager(study, tmp_path / "checkpoints", gb=1e-9)
    lease = decide(study, to_epoch=9).lease
    trained(study, manager, lease, [1, 2])
    for _ in range(3):
        manager.evict(lambda kept: ({}, ()))
    [event] = study.events()
    assert event.kind == "disk budget exceeded"
    assert "more than the budget of 1e-09 GB" in event.text


# Elsewhere.


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_checkpoints_at_any_url(study, tmp_path, scheme):
    fsspec = pytest.importorskip("fsspec")
    url = f"{scheme}://{tmp_path}/remote"
    manager = CheckpointManager(study, url)
    lease = decide(study, to_epoch=9).lease
    assert loaded(manager, lease) is None
    trained(study, manager, lease, [1, 2, 3])
    assert loaded(manager, lease) == (3, "run 1 epoch 3")
    files = fsspec.filesystem(scheme)
    newest = study.checkpoints(1)[-1]
    [victim] = [f for f in files.find(f"{tmp_path}/remote/{newest.place}") if f.endswith("weights")]
    files.pipe_file(victim, b"other")
    assert loaded(manager, lease) == (2, "run 1 epoch 2")
    manager.clean(lease)
    left = {f"{tmp_path}/remote/{r.place}" for r in study.checkpoints(1)}
    assert {str(f).rpartition("/")[0] for f in files.find(f"{tmp_path}/remote") if "weights" in f} == left


@pytest.mark.parametrize("folder", ["nosuchprotocol://x", "/proc/nowhere/x"])
def test_an_impossible_location_is_named(study, folder):
    with pytest.raises(CheckpointError, match=r"cannot store checkpoints (at|in) "):
        CheckpointManager(study, folder)


def fill(file: Path):
    handle = os.open(file, os.O_CREAT | os.O_WRONLY)
    with contextlib.suppress(OSError):
        while True:
            os.write(handle, b"x" * 4096)
    os.close(handle)


def record_until_it_fails(study, lease, acknowledged):
    for epoch in range(2, 5000):
        study.record(lease, report(epoch, 1.0 / epoch, metrics=({"text": "x" * 1000},)))
        acknowledged.append(epoch)


@pytest.mark.skipif(os.getuid() != 0 or sys.platform != "linux", reason="needs root to mount a small file system")
def test_a_full_disk(tmp_path):
    """While saving, and while committing: a clear message, nothing lost, and it continues once there is space."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount: {mounted.stderr.decode()}")
    try:
        study = opened(f"sqlite:///{small / 'study.db'}", max_epochs=100_000)
        manager = CheckpointManager(study, small / "checkpoints")
        lease = decide(study, to_epoch=100_000, config=CONFIG).lease
        trained(study, manager, lease, [1])
        with pytest.raises(CheckpointError, match="No space left"):
            manager.save(lease, 2, writer("big", size=4_000_000))
        assert loaded(manager, lease) == (1, "run 1 epoch 1")
        fill(small / "ballast")
        acknowledged = [1]
        with pytest.raises(StoreError, match=r"disk is full|disk reports an error"):
            record_until_it_fails(study, lease, acknowledged)
        (small / "ballast").unlink()
        acknowledged = acknowledged[-1]
        assert len(study.load().runs[0].losses) == acknowledged
        study.record(lease, report(acknowledged + 1, 0.5), close="told")
        assert len(study.load().runs[0].losses) == acknowledged + 1
        del study, manager
    finally:
        subprocess.run(["umount", "-l", small], check=True)
