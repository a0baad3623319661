"""What can be wrong with a store before anything is written: each has a clear message, and shows no password."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.servers import fresh_database

from freezethaw.errors import StoreError
from freezethaw.store import Store, urls
from freezethaw.store.urls import network_kind, parse, read_mount_command, read_proc_mounts, shown
from tests.store.small_study import decide, opened, report

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "cannot read the store's URL"),
        (None, "a path or a URL such as .*, not NoneType"),
        ("sqlite://", "is a file: write 'sqlite:///study.db'"),
        ("sqlite:///:memory:", "is a file"),
        ("mysql://root:hunter2@host/x", "kind 'mysql' are not known"),
        ("postgresql+psycopg2://u:hunter2@h/x", r"kind 'postgresql\+psycopg2' are not known"),
        ("sqlite:////nowhere/at/all/x.db", "folder /nowhere/at/all of the store does not exist"),
        ("sqlite:////tmp", "is a folder; name a file in it"),
        ("postgresql://u:hunter2@127.0.0.1:1/x", "is not reachable: is the server running"),
        ("postgresql://u:hunter2@no.such.host.invalid/x", "is not reachable: its host name is not known"),
    ],
)
def test_a_wrong_url(url, message):
    with pytest.raises(StoreError, match=message) as caught:
        Store(url, wait=2.0)
    assert "hunter2" not in str(caught.value)


def test_a_server_that_refuses(postgresql_server):
    password = postgresql_server.split(":")[2].partition("@")[0]
    with pytest.raises(StoreError, match="refuses the password") as caught:
        Store(postgresql_server.replace(password, "hunter2"))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(StoreError, match="no such database or role") as caught:
        Store(postgresql_server.replace("/postgres", "/nowhere"))
    assert password not in str(caught.value)
    store = Store(fresh_database(postgresql_server))
    for text in (store.url, repr(store), repr(store.create_or_open("x", _definition()))):
        assert password not in text
        assert "***" in text


def _definition():
    return {"space": {}, "max_epochs": 1, "direction": "minimize"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://u:hunter2@h/x",
        "postgresql+psycopg://u@h/x?password=hunter2",
        "postgresql+psycopg://u@h/x?sslpassword=hunter2&sslmode=require",
        "postgresql://u:hunter2%40@h/x",
    ],
)
def test_passwords_are_masked(url):
    assert "hunter2" not in shown(parse(url))


def test_a_file_that_is_no_database(tmp_path):
    file = tmp_path / "x.db"
    file.write_text("not a database " * 100)
    with pytest.raises(StoreError, match="is not an SQLite database"):
        Store(f"sqlite:///{file}")
    assert file.read_text().startswith("not a database")


def test_a_database_of_others_is_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as other:
        other.execute("CREATE TABLE runs (id INTEGER)")
        other.execute("INSERT INTO runs VALUES (7)")
    other.close()
    decide(opened(f"sqlite:///{tmp_path / 'x.db'}"))
    other = sqlite3.connect(tmp_path / "x.db")
    assert other.execute("SELECT id FROM runs").fetchall() == [(7,)]
    other.close()


def test_a_locked_file_is_named_after_the_wait(tmp_path):
    url = f"sqlite:///{tmp_path / 'x.db'}"
    Store(url).create_or_open("study", _definition())
    blocker = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    drawn = random.getstate()
    with pytest.raises(StoreError, match=r"has been locked by another process for 0\.3 s"):
        Store(url, wait=0.3).create_or_open("study", _definition())
    assert random.getstate() == drawn, "a training that draws from it would depend on who else writes"
    blocker.execute("COMMIT")
    blocker.close()
    Store(url, wait=0.3).create_or_open("study", _definition())


AS_NOBODY = """
import os, sys
from freezethaw.store import Store
from freezethaw.errors import StoreError
Store(sys.argv[2]).create_or_open("warm", {"space": {}, "max_epochs": 1, "direction": "minimize"})
os.setgid(65534); os.setuid(65534)  # after the imports: Python itself may lie where nobody may read
try:
    store = Store(sys.argv[1], wait=1.0)
    store.studies()
    store.create_or_open("other", {"space": {}, "max_epochs": 1, "direction": "minimize"})
except StoreError as error:
    print("StoreError:", error)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become nobody")
@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o644, 0o755), (0o600, 0o755), (0o644, 0o700)])
def test_no_permission(tmp_path, file_mode, folder_mode):
    for folder in (tmp_path.parent.parent, tmp_path.parent, tmp_path):
        folder.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    Store(f"sqlite:///{home / 'x.db'}").close()
    (home / "x.db").chmod(file_mode)
    home.chmod(folder_mode)
    code = [sys.executable, "-c", AS_NOBODY, f"sqlite:///{home / 'x.db'}", f"sqlite:///{tmp_path / 'y.db'}"]
    found = subprocess.run(code, capture_output=True, text=True, check=False, cwd="/")
    assert found.stdout.startswith("StoreError:"), found.stderr
    assert any(word in found.stdout for word in ("read-only", "cannot be opened", "may not be read")), found.stdout


# Network file systems.

MOUNTS = r"""/dev/vda / ext4 rw,relatime 0 0
server:/home /home nfs4 rw 0 0
tmpfs /home/local tmpfs rw 0 0
//nas/share /mnt/my\040share cifs rw 0 0
user@host:/ /mnt/ssh fuse.sshfs rw 0 0
overlay /overlay overlay rw 0 0
"""


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/x.db", ""),
        ("/home/me/x.db", "nfs4"),
        ("/home/local/x.db", ""),
        ("/homework/x.db", ""),
        ("/mnt/my share/x.db", "cifs"),
        ("/mnt/ssh/a/b/x.db", "fuse.sshfs"),
        ("/overlay/x.db", ""),
    ],
)
def test_network_file_systems_are_recognised(file, kind):
    assert network_kind(Path(file), read_proc_mounts(MOUNTS)) == kind


def test_network_file_systems_of_macos():
    text = "/dev/disk1s1 on / (apfs, local)\n//me@nas/share on /Volumes/my share (smbfs, nodev)\n"
    mounts = list(read_mount_command(text))
    assert mounts == [("/", "apfs"), ("/Volumes/my share", "smbfs")]
    assert network_kind(Path("/Volumes/my share/x.db"), mounts) == "smbfs"


def test_mounts_are_read_from_the_system(monkeypatch):
    """A store must not be refused, nor taken, because the question was put wrongly."""
    assert "/" in dict(urls._mounts())
    monkeypatch.setattr(urls.sys, "platform", "darwin")
    said = "/dev/disk1s1 on / (apfs, local)\nno mount at all\n//me@nas/x on /x (smbfs, nodev)\n"
    monkeypatch.setattr(urls.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=said))
    with pytest.raises(StoreError, match="smbfs"):
        urls.require_local(Path("/x/y.db"))
    urls.require_local(Path("/y.db"))


def test_if_mounts_are_unknown_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: open("/no/such/file"))  # noqa: PTH123, SIM115
    urls.require_local(Path("/home/me/x.db"))


def test_a_store_on_a_network_file_system_is_refused_with_advice(tmp_path, monkeypatch):
    monkeypatch.setattr("freezethaw.store.urls._mounts", lambda: [("/", "ext4"), (str(tmp_path), "nfs4")])
    with pytest.raises(StoreError, match=r"network file system \(nfs4\).*local disk, or use a PostgreSQL server"):
        Store(f"sqlite:///{tmp_path / 'x.db'}")
    assert not list(tmp_path.iterdir())


# Living with it.


def test_every_commit_is_durable(tmp_path):
    """WAL and synchronous=FULL on every connection, also those of other threads."""
    study = opened(f"sqlite:///{tmp_path / 'x.db'}")
    found = []

    def look():
        with study._database.reading() as connection:
            names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            found.append([connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names])

    threads = [threading.Thread(target=look) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    study.record(decide(study).lease, report(1, 1.0))  # and after a write, which waits in its own way
    look()
    assert found == [["wal", 2, 1, 60000]] * 4


def test_a_fork_has_connections_of_its_own(tmp_path):
    study = opened(f"sqlite:///{tmp_path / 'x.db'}")
    lease = decide(study).lease
    pid = os.fork()
    if pid == 0:
        try:
            study.record(lease, report(1, 1.0))
            os._exit(0)
        finally:  # it must not continue as if it were the process of the tests
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    study.record(lease, report(2, 2.0))
    assert study.load().runs[0].losses == (1.0, 2.0)


def test_a_server_that_was_restarted_is_found_again(postgresql_server):
    import psycopg

    study = opened(fresh_database(postgresql_server))
    lease = decide(study).lease
    with psycopg.connect(postgresql_server.replace("+psycopg", ""), autocommit=True) as admin:
        others = "pid <> pg_backend_pid() AND backend_type = 'client backend'"
        admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    import time

    time.sleep(1.1)  # what lay idle for a second is looked at before it is used
    study.record(lease, report(1, 1.0))
    assert study.load().runs[0].losses == (1.0,)


# Old files.

FROZEN = sorted((ROOT / "tests" / "store" / "frozen").glob("schema-*.db"))


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda file: file.stem)
def test_a_file_of_every_schema_version_opens_for_ever(tmp_path, frozen):
    (tmp_path / "x.db").write_bytes(frozen.read_bytes())
    with Store(f"sqlite:///{tmp_path / 'x.db'}") as store:
        [info] = store.studies()
        assert (info.name, info.runs, info.epochs, info.decisions) == (
            "frozen",
            4,
            7,
            4,
        )  # diverged epochs count, added ones do not
        study = store.open("frozen")
        now = study.load()
        assert [run.state for run in now.runs] == ["frozen", "diverged", "failed", "finished"]
        assert now.runs[0].losses == (3.0, 2.0, 1.0, 0.5)
        assert now.runs[0].config == {"rate": 0.1, "units": 4}
        assert [c.epoch for c in now.checkpoints] == [3]
        assert [w.to_epoch for w in now.requests] == [2]
        assert study.samples() == {"weights": [0.25, 0.75], "turn": 3}
        assert study.samples(before=3) == {"weights": [0.5, 0.5], "turn": 1}
        assert study.metrics(1)[0] == {"accuracy": 0.5}
        assert [e.kind for e in study.events()] == ["loss differs", "definition changed", "note"]
        assert study.load(at=study.decision(4).basis).decisions == 3
        taken = decide(study, run=1, to_epoch=6)  # and continues
        study.record(taken.lease, report(5, 0.4), close="told")


HOSTILE = ['{"a":', "[" * 100_000, "\x80\x04cos\nsystem\n(S'id'\ntR.", '{"$number": "import os"}', "NaN", ""]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_documents_execute_nothing(tmp_path, text):
    study = opened(f"sqlite:///{tmp_path / 'x.db'}")
    study.record(decide(study, state={"a": 1}).lease, report(1, 1.0, metrics=({"a": 1.0},)), close="told")
    with study._database.writing() as connection:
        for table, column in (("runs", "config"), ("sampler_states", "document"), ("epochs", "metrics")):
            connection.exec_driver_sql(f"UPDATE freezethaw_{table} SET {column} = ?", (text,))
    for read in (study.load, study.samples, lambda: study.metrics(1)):
        if text == "NaN":
            read()  # JSON of others may say so; it is a number
        else:
            with pytest.raises(StoreError, match="damaged document"):
                read()
