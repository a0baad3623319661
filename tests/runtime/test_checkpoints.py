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
from pathlib import Path

import pytest

from freezethaw.errors import CheckpointError, LeaseLost, StoreError
from freezethaw.runtime.eviction import to_evict
from freezethaw.runtime.keeper import CheckpointKeeper
from freezethaw.store import Lease, StoredCheckpoint, Watcher
from tests.store.small_study import CONFIG, decide, opened, report


@pytest.fixture
def study(tmp_path):
    return opened(f"sqlite:///{tmp_path / 'study.db'}", name="a/b 雪 ../x", max_epochs=100)


@pytest.fixture
def keeper(study, tmp_path):
    return CheckpointKeeper(study, tmp_path / "checkpoints")


def writer(text, size=0):
    def save(folder: Path):
        (folder / "deep").mkdir()
        (folder / "deep" / "state.txt").write_text(text)
        (folder / "weights").write_bytes(text.encode() + b"\0" * size)

    return save


def trained(study, keeper, lease, epochs, size=0):
    """Record epochs one by one, each with a checkpoint that says whose it is."""
    for epoch in epochs:
        new = keeper.save(lease, epoch, writer(f"run {lease.run} epoch {epoch}", size))
        study.record(lease, report(epoch, 1.0 / epoch), new)


def loaded(keeper, lease):
    with keeper.load(lease) as found:
        return found and (found.epoch, (found.folder / "deep" / "state.txt").read_text())


def places(keeper):
    return sorted(p for p in keeper._place.root.rglob("epoch-*") if p.is_dir())


def test_what_was_saved_is_loaded(study, keeper):
    lease = decide(study, to_epoch=9).lease
    assert loaded(keeper, lease) is None
    trained(study, keeper, lease, [1, 2, 3])
    assert loaded(keeper, lease) == (3, "run 1 epoch 3")
    assert study.events() == ()
    assert not list(keeper._place.root.rglob(".loading-*"))


def test_a_change_to_the_copy_leaves_the_checkpoint_alone(study, keeper):
    lease = decide(study).lease
    trained(study, keeper, lease, [1])
    with keeper.load(lease) as found:
        (found.folder / "weights").write_text("trained on in place")
        keeper.tidy(lease)
        assert found.folder.is_dir()
    assert loaded(keeper, lease) == (1, "run 1 epoch 1")


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
def test_a_damaged_checkpoint_is_never_loaded(study, keeper, kind):
    """Twelve of each kind: the older one is used, and an event says what happened."""
    rng = random.Random(kind)
    for _ in range(12):
        lease, other = decide(study, to_epoch=9).lease, decide(study, to_epoch=9).lease
        trained(study, keeper, other, [1], size=rng.randrange(100))
        trained(study, keeper, lease, [1, 2], size=rng.randrange(100))
        first, second = sorted(keeper._place.root.glob(f"*/run-{lease.run}/epoch-*"))
        [foreign] = keeper._place.root.glob(f"*/run-{other.run}/epoch-*")
        damage(kind, second, first if kind == "another epoch" else foreign, rng)
        before = len(study.events())
        assert loaded(keeper, lease) == (1, f"run {lease.run} epoch 1")
        said = study.events()[before:]
        assert [e.kind for e in said] == ["checkpoint damaged", "checkpoint not loaded"]
        assert f"run {lease.run} at epoch 2" in said[1].text
        damage("flip", first, foreign, rng)
        assert loaded(keeper, lease) is None
        for done in (lease, other):
            study.record(done, close="told")


@pytest.mark.parametrize("place", ["../../outside", "/etc", "x/run-1/../../..", "x/run-2/epoch-1-1-aa", ""])
def test_a_hostile_record_touches_nothing_outside(study, keeper, tmp_path, place):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("x")
    lease = decide(study).lease
    new = keeper.save(lease, 1, writer("x"))
    study.record(lease, report(1, 1.0), type(new)(1, place, new.sha256, new.bytes))
    assert loaded(keeper, lease) is None
    assert "not its own" in study.events()[-1].text
    study.record(lease, report(2, 1.0), type(new)(2, place, new.sha256, new.bytes), close="told")
    keeper._allowed = 0
    keeper.make_room(lambda kept: ({}, ()))
    assert (tmp_path / "outside" / "precious").exists()


def test_nothing_hostile_is_opened_or_run(study, keeper, tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'exploded'}",)

    lease = decide(study).lease

    def save(folder):
        for name in ("model.pkl", "model.pt", "__init__.py", "conftest.py", "state.npy"):
            (folder / name).write_bytes(pickle.dumps(Bomb()))

    study.record(lease, report(1, 1.0), keeper.save(lease, 1, save))
    with keeper.load(lease) as found:
        assert len(list(found.folder.iterdir())) == 5
    assert not (tmp_path / "exploded").exists()
    [place] = places(keeper)
    os.mkfifo(place / "pipe")  # opening it would wait for ever
    assert loaded(keeper, lease) is None
    assert "no plain file" in study.events()[-1].text


@pytest.mark.parametrize("what", ["link", "pipe", "nothing"])
def test_a_save_that_writes_no_plain_files_is_refused(study, keeper, what):
    lease = decide(study).lease

    def save(folder):
        if what == "link":
            (folder / "x").symlink_to("/etc/passwd")
        elif what == "pipe":
            os.mkfifo(folder / "x")

    with pytest.raises(CheckpointError, match=r"no plain file|save wrote no file"):
        keeper.save(lease, 1, save)
    assert places(keeper) == []


def test_a_save_that_fails_leaves_nothing_behind(study, keeper):
    lease = decide(study).lease
    trained(study, keeper, lease, [1])

    def full(folder):
        (folder / "weights").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CheckpointError, match=r"run 1 at epoch 2 could not be saved: .*No space left.*Earlier"):
        keeper.save(lease, 2, full)

    def wrong(folder):
        (folder / "weights").write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        keeper.save(lease, 2, wrong)
    assert len(places(keeper)) == 1
    assert not list(keeper._place.root.rglob(".writing-*"))
    assert loaded(keeper, lease) == (1, "run 1 epoch 1")


def test_what_a_killed_worker_left_is_cleaned_by_the_next_owner(study, keeper):
    lease = decide(study, to_epoch=9).lease
    trained(study, keeper, lease, [1])
    keeper.save(lease, 2, writer("never recorded"))
    home = places(keeper)[0].parent
    (home / ".writing-abc").mkdir()
    (home / ".loading-abc").mkdir()
    study.release(lease)
    taken = study.take_over(Watcher()).lease
    keeper.tidy(taken)
    assert len(list(home.iterdir())) == 1
    assert loaded(keeper, taken) == (1, "run 1 epoch 1")
    trained(study, keeper, taken, [2, 3, 4])
    keeper.tidy(taken, best={(1, 2)})
    assert [r.epoch for r in study.checkpoints(1)] == [2, 3, 4]
    keeper.tidy(taken)
    assert [r.epoch for r in study.checkpoints(1)] == [3, 4]
    assert len(places(keeper)) == 2
    with pytest.raises(LeaseLost):
        CheckpointKeeper(study, keeper._place.root).tidy(Lease(1, 1, 1)) or trained(study, keeper, lease, [5])


def test_no_room_for_a_copy_does_not_condemn_the_checkpoint(study, keeper, monkeypatch):
    lease = decide(study).lease
    trained(study, keeper, lease, [1])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(keeper._place, "fetch", full)
        with pytest.raises(CheckpointError, match=r"cannot be read.*No space"):
            loaded(keeper, lease)
    assert loaded(keeper, lease) == (1, "run 1 epoch 1")


# The disk budget.


def record(number, run, epoch, size=10):
    return StoredCheckpoint(number, run, epoch, f"{number}", "", size)


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
def test_what_goes_first(allowed, leased, best, expected):
    chances = {1: 0.9, 2: 0.1, 3: 0.5}
    assert [r.number for r in to_evict(KEPT, allowed, chances, leased, best)] == expected


def test_checkpoints_stay_within_the_budget(study, tmp_path):
    keeper = CheckpointKeeper(study, tmp_path / "checkpoints", gb=5000 / 1e9)
    for _ in range(8):
        lease = decide(study, to_epoch=9).lease
        trained(study, keeper, lease, [1], size=1000)
        if lease.run != 8:
            study.record(lease, close="told")
    evicted = keeper.make_room(lambda kept: ({run: run / 10 for run in range(1, 9)}, {(1, 1)}))
    assert [r.run for r in evicted] == [2, 3, 4, 5]
    assert sum(r.bytes for r in study.checkpoints()) <= 5000
    assert len(places(keeper)) == len(study.checkpoints()) == 4
    assert {r.run for r in study.checkpoints()} == {1, 6, 7, 8}
    assert keeper.make_room(lambda kept: 1 / 0) == (), "the judge is asked only where room is short"
    assert [e.kind for e in study.events()] == ["checkpoint evicted"] * 4
    thawed = decide(study, run=2, to_epoch=9).lease
    assert loaded(keeper, thawed) is None  # it is trained again from its start


def test_what_another_worker_saves_while_room_is_made_stays(study, tmp_path):
    """Its run is given back at once, and the judge may know nothing of it: it is not among what may go."""
    keeper = CheckpointKeeper(study, tmp_path / "checkpoints", gb=1e-9)
    mine, other = decide(study, to_epoch=9).lease, decide(study, to_epoch=9).lease
    trained(study, keeper, mine, [1])
    trained(study, keeper, other, [1])
    study.record(mine, close="told")

    def slow(kept):
        trained(study, keeper, other, [2])
        study.record(other, close="told")
        return {}, ()

    assert [(r.run, r.epoch) for r in keeper.make_room(slow)] == [(1, 1)]
    assert (2, 2) in {(r.run, r.epoch) for r in study.checkpoints()}


def test_a_budget_that_is_too_small_is_said_once(study, tmp_path):
    keeper = CheckpointKeeper(study, tmp_path / "checkpoints", gb=1e-9)
    lease = decide(study, to_epoch=9).lease
    trained(study, keeper, lease, [1, 2])
    for _ in range(3):
        keeper.make_room(lambda kept: ({}, ()))
    [event] = study.events()
    assert event.kind == "disk budget exceeded"
    assert "more than the budget of 1e-09 GB" in event.text


# Elsewhere.


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_checkpoints_at_any_url(study, tmp_path, scheme):
    fsspec = pytest.importorskip("fsspec")
    url = f"{scheme}://{tmp_path}/remote"
    keeper = CheckpointKeeper(study, url)
    lease = decide(study, to_epoch=9).lease
    assert loaded(keeper, lease) is None
    trained(study, keeper, lease, [1, 2, 3])
    assert loaded(keeper, lease) == (3, "run 1 epoch 3")
    files = fsspec.filesystem(scheme)
    newest = study.checkpoints(1)[-1]
    [victim] = [f for f in files.find(f"{tmp_path}/remote/{newest.place}") if f.endswith("weights")]
    files.pipe_file(victim, b"other")
    assert loaded(keeper, lease) == (2, "run 1 epoch 2")
    keeper.tidy(lease)
    left = {f"{tmp_path}/remote/{r.place}" for r in study.checkpoints(1)}
    assert {str(f).rpartition("/")[0] for f in files.find(f"{tmp_path}/remote") if "weights" in f} == left


@pytest.mark.parametrize("folder", ["nosuchprotocol://x", "/proc/nowhere/x"])
def test_a_place_that_cannot_be_is_named(study, folder):
    with pytest.raises(CheckpointError, match=r"cannot keep checkpoints (at|in) "):
        CheckpointKeeper(study, folder)


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
def test_a_disk_that_is_really_full(tmp_path):
    """While saving, and while committing: a clear message, nothing lost, and it goes on once there is room."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount: {mounted.stderr.decode()}")
    try:
        study = opened(f"sqlite:///{small / 'study.db'}", max_epochs=100_000)
        keeper = CheckpointKeeper(study, small / "checkpoints")
        lease = decide(study, to_epoch=100_000, config=CONFIG).lease
        trained(study, keeper, lease, [1])
        with pytest.raises(CheckpointError, match="No space left"):
            keeper.save(lease, 2, writer("big", size=4_000_000))
        assert loaded(keeper, lease) == (1, "run 1 epoch 1")
        fill(small / "ballast")
        acknowledged = [1]
        with pytest.raises(StoreError, match=r"disk is full|disk reports an error"):
            record_until_it_fails(study, lease, acknowledged)
        (small / "ballast").unlink()
        acknowledged = acknowledged[-1]
        assert len(study.load().runs[0].losses) == acknowledged
        study.record(lease, report(acknowledged + 1, 0.5), close="told")
        assert len(study.load().runs[0].losses) == acknowledged + 1
        del study, keeper
    finally:
        subprocess.run(["umount", "-l", small], check=True)
