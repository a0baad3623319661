"""A database that is away for a while, and a file that is gone for good: what was recorded is recorded exactly once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from benchmarks import servers
from benchmarks.servers import fresh_database

import freezethaw as ft
from freezethaw.errors import StoreError
from freezethaw.records import DecisionDraft
from freezethaw.store import Store, Watcher
from freezethaw.store.database import IDLE_SECONDS
from tests.store.small_study import CONFIG, Clock, checkpoint, decide, opened, report, take_over

# A server that is restarted.


@pytest.fixture(scope="module")
def server():
    if servers.binaries() is None and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip("no PostgreSQL server on this machine: apt-get install postgresql")
    with servers.postgresql_server() as found:
        yield found


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_writers_continue_when_the_server_is_back(server, how):
    """Each writes one event after the other while the server is restarted twice: none is missing, none is twice."""
    url, stop = fresh_database(server.url), threading.Event()
    study = opened(url)
    lease = decide(study, to_epoch=9).lease
    written, failed = dict.fromkeys(("one", "two", "three"), 0), []

    def write(name):
        mine = Store(url).open("study")
        try:
            while not stop.is_set():
                mine.add_event(name, str(written[name]))
                written[name] += 1
        except StoreError as error:
            failed.append(error)
        mine.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in written]
    [t.start() for t in threads]
    for _ in range(2):
        time.sleep(0.5)
        before = dict(written)
        server.restart(0.5, how)
        while not failed and any(written[name] == before[name] for name in written):
            time.sleep(0.05)
    stop.set()
    [t.join() for t in threads]
    assert failed == []
    found = study.events(most=1_000_000)
    for name, count in written.items():
        assert [event.text for event in found if event.kind == name] == [str(number) for number in range(count)]
    study.record(lease, report(1, 1.0))  # under a lease from before
    assert study.load().runs[0].losses == (1.0,)


@contextlib.contextmanager
def next_commit_cut_off(study, committed):
    """The connection is lost while the next commit is on its way: it has arrived, or it has not."""
    dialect = study._database.engine.dialect
    plain, left = dialect.do_commit, [1]

    def do_commit(connection):
        if not left or not left.pop():
            return plain(connection)
        if committed:
            plain(connection)
        getattr(connection, "driver_connection", connection).close()
        return plain(connection)  # what the driver says about a closed connection

    dialect.do_commit = do_commit
    try:
        yield
    finally:
        del dialect.do_commit
    assert not left


@pytest.mark.parametrize("committed", [True, False])
def test_the_outcome_of_a_commit_that_was_cut_off_is_looked_up(server, committed):
    study = opened(fresh_database(server.url), max_epochs=9)
    with next_commit_cut_off(study, committed):
        study.add_event("note", "once")
    assert [event.text for event in study.events()] == ["once"]
    with next_commit_cut_off(study, committed):
        lease = study.acquire_decision_lease(Watcher())
    with next_commit_cut_off(study, committed):
        decision, run_lease = study.commit(lease, DecisionDraft(None, CONFIG, 5, "because"), study.change(), {"a": 1})
    assert (decision.number, decision.run, study.load().decisions, len(study.load().runs)) == (1, 1, 1, 1)
    with next_commit_cut_off(study, committed):
        assert study.record(run_lease, report(1, 3.0, 2.0)).epoch == 2
    with next_commit_cut_off(study, committed):
        study.record(run_lease, report(3, 1.0), checkpoint(3), close="told")
    assert study.load().runs[0].losses == (3.0, 2.0, 1.0)
    assert [c.epoch for c in study.checkpoints()] == [3]
    with next_commit_cut_off(study, committed):
        assert study.request(1, None, 5) == 1
    assert len(study.load().requests) == 1


@pytest.mark.parametrize("idle", [0.0, IDLE_SECONDS + 0.1])
def test_the_lease_of_a_worker_survives_an_outage(server, idle):
    """While nobody can send heartbeats nobody loses a lease: what was watched before the outage does not count."""
    url, clock = fresh_database(server.url), Clock()
    decide(opened(url))
    other, watcher = opened(url), Watcher(60.0, clock)
    assert take_over(other, watcher) is None
    server.restart(idle)
    clock.now += 61
    assert take_over(other, watcher) is None
    clock.now += 61
    assert take_over(other, watcher) is not None


def test_a_database_that_stays_away_is_reported_after_the_wait():
    begin = time.monotonic()
    with pytest.raises(StoreError, match="is not reachable"):
        Store("postgresql://u:hunter2@127.0.0.1:1/x", wait=1.0, known=True)
    assert time.monotonic() - begin > 0.5


def test_a_url_that_nobody_has_reached_is_refused_at_once(capsys):
    with pytest.raises(StoreError, match="is not reachable"):
        Store("postgresql://u:hunter2@127.0.0.1:1/x", wait=1000.0)
    assert capsys.readouterr().err == ""


# A file that is gone, or that may not be written.


@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_a_file_that_is_gone_is_noticed_at_the_next_transaction(tmp_path, what):
    file = tmp_path / "x.db"
    study = opened(f"sqlite:///{file}")
    lease = decide(study).lease
    study.record(lease, report(1, 1.0))
    if what == "replaced":
        opened(f"sqlite:///{tmp_path / 'other.db'}").close()
        (tmp_path / "other.db").rename(file)
    else:
        file.unlink()
    for late in (study.load, lambda: study.record(lease, report(2, 1.0)), lambda: study.beat(lease)):
        with pytest.raises(StoreError, match=rf"x\.db was {what} .*while this process used it"):
            late()
    assert file.exists() == (what == "replaced"), "an empty file was made in its place"


def test_opening_makes_no_file(tmp_path):
    for name in ("x.db", "empty.db"):
        with pytest.raises(StoreError, match=r"there is no store .*x\.db: the file does not exist|is no store of"):
            ft.Study.open(tmp_path / name)
        (tmp_path / "empty.db").touch()
    assert [(file.name, file.stat().st_size) for file in tmp_path.iterdir()] == [("empty.db", 0)]


def small_study(file):
    with ft.Study({"rate": ft.Float(0.0, 1.0)}, max_epochs=3, store=file) as study:
        study.tell(study.ask(), 0.5)


def test_opening_writes_nothing(tmp_path):
    small_study(tmp_path / "x.db")
    before = (tmp_path / "x.db").read_bytes()
    with ft.Study.open(tmp_path / "x.db") as found:
        assert found.best is not None
        assert found.best.loss == 0.5
    assert (tmp_path / "x.db").read_bytes() == before


READ = """
import os, sys
from freezethaw.errors import StoreError
from freezethaw.store import Store
Store(sys.argv[2]).create_or_open("warm", {"space": {}, "max_epochs": 1, "direction": "minimize"}).load()
os.setgid(65534); os.setuid(65534)  # after the imports: Python itself may lie where nobody may read
with Store(sys.argv[1], create=False) as store:
    study = store.open()
    print([run.losses for run in study.load().runs][0])
    try:
        study.add_event("note", "text")
    except StoreError as error:
        print("StoreError:", error)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become nobody")
@pytest.mark.parametrize("state", ["closed", "in use", "killed", "old"])
def test_a_store_that_may_not_be_written_can_be_read(tmp_path, state):
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith("pytest-of-"):
            folder.chmod(0o755)
            break
        folder.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    file, losses = home / "x.db", "(0.5,)"
    if state == "old":
        shutil.copy(Path(__file__).parent / "frozen" / "schema-1.db", file)
        losses = "(3.0, 2.0, 1.0, 0.5)"
    else:
        study = opened(f"sqlite:///{file}")
        study.record(decide(study).lease, report(1, 0.5), close="told")
        if state == "killed":  # the write-ahead log has it all, and there is no shared memory
            for name in ("x.db", "x.db-wal"):
                shutil.copy(home / name, tmp_path / name)
        if state != "in use":
            study.close()
        if state == "killed":
            for name in ("x.db", "x.db-wal"):
                shutil.copy(tmp_path / name, home / name)
    for path in home.iterdir():
        path.chmod(0o644)
    home.chmod(0o755)
    before = contents(home)
    code = [sys.executable, "-c", READ, str(file), str(tmp_path / "warm.db")]
    found = subprocess.run(code, capture_output=True, text=True, check=False, cwd="/", env=with_these_sources())
    assert found.stdout.startswith(losses), found.stderr
    assert "StoreError: the store" in found.stdout
    assert "cannot be written: the file or its folder is read-only" in found.stdout
    assert contents(home) == before


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def with_these_sources():
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def test_a_damaged_connection_is_not_taken_for_an_outage(tmp_path, monkeypatch):
    """Errors that waiting does not mend are said at once."""
    study = opened(f"sqlite:///{tmp_path / 'x.db'}")
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as other:
        other.execute("DROP TABLE freezethaw_events")
    monkeypatch.setattr(study._database, "wait", 10_000.0)
    with pytest.raises(StoreError, match="no such table"):
        study.add_event("note", "text")
