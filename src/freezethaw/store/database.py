"""Connections and transactions: SQLite in a file, or a PostgreSQL server.

Reading is one consistent view; writing is one transaction that holds the write lock from its beginning. SQLite runs
with a write-ahead log and `synchronous=FULL`: a commit that returned is on the disk. `?synchronous=off` in the URL is
for files that go with the process.

A transaction whose connection is lost is repeated until the database is back, for as long as it waits for a lock. If
the connection is lost within the commit, nobody knows whether that happened. So each connection to a server numbers its
transactions in a row of its own (table `writers`), which is committed with them and looked up before one is repeated.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import secrets
import shutil
import sqlite3
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, exc, text
from sqlalchemy.engine import URL

from freezethaw.errors import StoreError
from freezethaw.store import urls
from freezethaw.store.urls import require_local

T = TypeVar("T")
READING = "freezethaw_reading"
IDLE_SECONDS = 1.0  # a connection to a server that was idle for longer is checked before it is used
FIRST_PAUSE, LONGEST_PAUSE, SHORTEST_PAUSE = 0.005, 0.2, 0.01  # seconds between two attempts to take the write lock
_PAUSES = random.SystemRandom()  # the generator of `random` itself belongs to the training
CREATING = 0x66726565_7A65  # "freeze"
FIRST_RETRY, LONGEST_RETRY = 0.05, 1.0  # seconds until a transaction is repeated whose connection was lost
WRITERS = "freezethaw_writers"


class Database:
    """Connections and transactions of one database. Safe across a fork: a child opens its own connections."""

    def __init__(self, url: str | Path, wait: float, known: bool = False) -> None:
        """`known`: the database was reached before, by any process. If not, an error may mean that the URL is wrong."""
        self.url = urls.parse(url)
        self.wait, self.durable, self._known = wait, True, known
        self._outages = _Outages()
        self.sqlite = self.url.drivername == "sqlite"
        self._file = SqliteFile(Path())
        if self.sqlite:
            file = urls.sqlite_file(self.url)
            try:
                _check_file(file)
            except OSError as error:
                raise StoreError(f"the store {file} may not be read: {error.strerror}") from error
            self.durable = urls.is_durable(self.url)
            self.url = self.url.set(database=str(file), query={})
            self._file = SqliteFile(file)
            self.engine = _sqlite_engine(self.url, wait, self.durable, self._file)
        else:
            self.engine = _postgresql_engine(self.url, wait, self._outages)
        self._pid = os.getpid()
        weakref.finalize(self, _dispose, self.engine, self._file, self._pid)

    @property
    def shown(self) -> str:
        """The URL with its password masked."""
        return urls.shown(self.url)

    @property
    def outages(self) -> int:
        """How often this process found the database unavailable."""
        return self._outages.count

    @property
    def missing(self) -> bool:
        """Whether this is a SQLite file that does not exist."""
        return self.sqlite and not self._file.path.exists()

    @property
    def read_only(self) -> bool:
        """Whether this is a SQLite file that this process may not write."""
        return self.sqlite and self._file.read_only

    def read(self, body: Callable[[Connection], T]) -> T:
        """Call `body` in one consistent view, again if the connection is lost."""

        def attempt() -> T:
            with self._reading() as connection:
                return body(connection)

        return self._patiently(attempt)

    def write(self, body: Callable[[Connection], T], repeatable: bool = False) -> T:
        """Call `body` in one transaction that holds the write lock; again if the connection is lost before it commits.

        `repeatable`: a second execution has no further effect, so it does not matter whether the first was committed.
        """
        if self._file.copied:
            raise StoreError(f"the store {self.shown} cannot be written: the file or its folder is read-only")
        commit = _Commit()

        def attempt() -> T:
            if commit.unknown and self._looked_up(commit):
                return commit.result  # type: ignore[no-any-return]
            commit.unknown = False
            with self._engine().begin() as connection:
                if not self.sqlite and not repeatable:
                    commit.mark(connection)
                commit.result = body(connection)
                commit.unknown = commit.number > 0  # until `begin` has committed
            return commit.result  # type: ignore[no-any-return]

        return self._patiently(attempt)

    def _looked_up(self, commit: _Commit) -> bool:
        """Whether a transaction was committed although its connection was lost."""
        with self._engine().begin() as connection:
            return commit.was_done(connection)

    def _patiently(self, attempt: Callable[[], T]) -> T:
        deadline, pause = time.monotonic() + self.wait, FIRST_RETRY
        while True:
            try:
                with self._translated():
                    result = attempt()
            except StoreError as error:
                if time.monotonic() + pause > deadline or not _is_away(error.__cause__, self._known):
                    raise
                if pause == FIRST_RETRY:
                    self._outages.count += 1
                    said = " ".join(str(error).split())
                    sys.stderr.write(f"freezethaw: {said}; waiting for up to {self.wait:g} s\n")
            else:
                self._known = True
                return result
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that holds the write lock; committed at the end, rolled back on an error, never repeated."""
        with self._translated(), self._engine().begin() as connection:
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view."""
        with self._translated(), self._reading() as connection:
            yield connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._engine().connect() as connection:
            options: dict[str, Any] = {READING: True}
            if not self.sqlite:
                options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            yield connection.execution_options(**options)

    def use_copy(self) -> None:
        """Use a copy of a SQLite file that this process may not write, to migrate it."""
        if not self._file.copied:
            self.engine.dispose()
            self._file.copy()

    def lock_names(self, connection: Connection) -> None:
        """Let one transaction at a time create tables or studies. SQLite's write lock does so anyway."""
        if not self.sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": CREATING})

    def use_write_ahead_log(self) -> None:
        """Set SQLite's journal mode, which is stored in the file and cannot be changed within a transaction."""
        with self._translated(), contextlib.closing(self._engine().raw_connection()) as connection:
            deadline = time.monotonic() + self.wait
            while True:
                try:
                    mode = connection.cursor().execute("PRAGMA journal_mode=WAL").fetchone()[0]
                    break
                except sqlite3.OperationalError as error:  # this statement does not wait for locks by itself
                    if "locked" not in str(error) or time.monotonic() > deadline:
                        raise StoreError(self._explained(error)) from error
                    time.sleep(0.05)
        if mode != "wal":
            raise StoreError(f"the store {self.shown} cannot have a write-ahead log (its journal mode is {mode})")

    def close(self) -> None:
        """Close all connections."""
        if self._pid == os.getpid():
            self._file.remove_copy()
        self._connected().dispose()

    def _engine(self) -> Engine:
        """For a transaction."""
        self._file.check()
        return self._connected()

    def _connected(self) -> Engine:
        if self._pid != os.getpid():
            self.engine.dispose(close=False)
            self._pid = os.getpid()
        return self.engine

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (exc.SQLAlchemyError, sqlite3.Error) as error:
            raise StoreError(self._explained(error)) from error

    def _explained(self, error: Exception) -> str:
        cause = urls.scrubbed(str(getattr(error, "orig", None) or error).strip(), self.url)
        return f"the store {self.shown} {_reason(cause, self.wait)}"


def _dispose(engine: Engine, file: SqliteFile, pid: int) -> None:
    engine.dispose(close=pid == os.getpid())  # a forked child must not close connections of its parent
    if pid == os.getpid():
        file.remove_copy()


class SqliteFile:
    """The file of a SQLite store. It must stay the same file; a read-only file can be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, int] | None = None  # device and inode of the file that was opened first
        self._copy: tempfile.TemporaryDirectory[str] | None = None

    @property
    def read_only(self) -> bool:
        """Whether this process may not write the file, or its folder, where SQLite writes files too."""
        return self.path.exists() and not (os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK))

    @property
    def copied(self) -> bool:
        """Whether a copy is used, in which nothing may be recorded."""
        return self._copy is not None

    def check(self) -> None:
        """Raise if the file was replaced or deleted since it was opened: writes would be lost."""
        if self._opened is not None and self._identity() != self._opened:
            what = "replaced by another file" if self.path.exists() else "deleted"
            raise StoreError(
                f"the store {self.path} was {what} while this process used it. What was recorded before is in the file "
                "that is gone: put it back, or start a new study"
            )

    def connect(self, wait: float) -> sqlite3.Connection:
        """A new connection. Only the first one may create the file."""
        if self._copy is not None:
            return self._connect(Path(self._copy.name) / self.path.name, "rw", wait)
        if not self.read_only:
            connection = self._connect(self.path, "rwc" if self._opened is None else "rw", wait)
        else:
            connection = self._connect(self.path, "ro", wait)
            try:
                connection.execute("SELECT count(*) FROM sqlite_master")
            except sqlite3.OperationalError:  # without its shared memory a write-ahead log cannot be read
                connection.close()
                self.copy()
                return self.connect(wait)
        if self._opened is None:
            self._opened = self._identity()
        return connection

    def copy(self) -> None:
        """From now on use a copy: the database, and what is only in its write-ahead log."""
        self._copy = tempfile.TemporaryDirectory(prefix="freezethaw-copy-")
        for name in (self.path.name, f"{self.path.name}-wal"):
            if (self.path.parent / name).exists():
                shutil.copyfile(self.path.parent / name, Path(self._copy.name) / name)

    def remove_copy(self) -> None:
        """Remove the copy; another connection makes another one."""
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    @staticmethod
    def _connect(path: Path, mode: str, wait: float) -> sqlite3.Connection:
        place = f"file:{quote(str(path))}?mode={mode}"
        return sqlite3.connect(place, uri=True, timeout=wait, check_same_thread=False)


class _Outages:
    """Counts how often the database was unavailable."""

    def __init__(self) -> None:
        self.count = 0


class _Commit:
    """Whether a transaction on a server was committed. A later transaction of its connection overwrites its number."""

    def __init__(self) -> None:
        self.result: Any = None
        self.unknown = False  # whether the connection may have been lost within the commit
        self.writer, self.number = "", 0

    def mark(self, connection: Connection) -> None:
        """Number the transaction, in a row that is committed with it."""
        info = connection.connection.info  # of this connection to the server, for as long as it lasts
        self.writer = info.setdefault("writer", secrets.token_hex(16))
        self.number = info["number"] = info.get("number", 0) + 1
        here = {"writer": self.writer, "number": self.number}
        same = text(f"UPDATE {WRITERS} SET number = :number, seen = now() WHERE writer = :writer")  # noqa: S608
        if connection.execute(same, here).rowcount == 0:
            # rows of connections that are gone; by the server's clock, and of no consequence
            connection.execute(text(f"DELETE FROM {WRITERS} WHERE seen < now() - interval '1 day'"))  # noqa: S608
            connection.execute(text(f"INSERT INTO {WRITERS} VALUES (:writer, :number, now())"), here)  # noqa: S608

    def was_done(self, connection: Connection) -> bool:
        """Look it up. If the server is still committing, this waits: both write the same row."""
        find = text(
            f"INSERT INTO {WRITERS} VALUES (:writer, 0, now()) "  # noqa: S608
            f"ON CONFLICT (writer) DO UPDATE SET seen = now() RETURNING number"
        )
        return bool(connection.execute(find, {"writer": self.writer}).scalar_one() == self.number)


# What a driver says if the connection cannot be made, and waiting does not help.
REFUSED = ("password authentication failed", "no password supplied", "does not exist", "resolve host", "no pg_hba.conf")
# What it says if a server is there, but not ready.
NOT_READY = ("starting up", "shutting down", "recovery mode", "too many clients", "connection slots")


def _is_away(error: BaseException | None, known: bool) -> bool:
    """Whether the database may be back soon: no connection, or SQLite's lock was not free."""
    if not isinstance(error, exc.DBAPIError):
        return False
    said = str(error.orig)
    if isinstance(error.orig, sqlite3.Error):
        return "locked" in said or "locking protocol" in said
    if error.connection_invalidated:
        return True
    never_connected = isinstance(error, exc.OperationalError) and getattr(error.orig, "sqlstate", None) is None
    if not never_connected:
        return False
    return any(sign in said for sign in NOT_READY) or (known and not any(sign in said for sign in REFUSED))


# What a driver's message means and what to do about it.
CAUSES = (
    (
        "database is locked",
        "has been locked by another process for {wait:g} s: is a process suspended, or does another tool use the file?",
    ),
    ("lock timeout", "has been locked by another session for {wait:g} s"),
    ("readonly database", "cannot be written: the file or its folder is read-only"),
    (
        "database or disk is full",
        "cannot be written: the disk is full. Nothing recorded is lost; free space and continue",
    ),
    ("disk I/O error", "cannot be read or written: the disk reports an error, or is full"),
    ("file is not a database", "is not an SQLite database: choose another file name"),
    ("malformed", "is damaged: the file was changed by something other than SQLite. Restore a copy"),
    ("unable to open database file", "cannot be opened: the folder is missing or not accessible"),
    ("password authentication failed", "refuses the password"),
    ("no password supplied", "asks for a password: put it into the URL or into ~/.pgpass"),
    ("does not exist", "has no such database or role: create it first"),
    ("Connection refused", "is not reachable: is the server running at this address?"),
    ("resolve host", "is not reachable: its host name is not known"),
    ("timeout expired", "is not reachable: no answer within the time allowed"),
    ("No such file or directory", "is not reachable: no server listens there"),
)


def _reason(cause: str, wait: float) -> str:
    for sign, meaning in CAUSES:
        if sign in cause:
            return f"{meaning.format(wait=wait)} ({cause})"
    return f"failed: {cause}"


def _check_file(file: Path) -> None:
    """Check the path first, because SQLite's own messages are obscure."""
    if not file.parent.is_dir():
        raise StoreError(f"the folder {file.parent} of the store does not exist: create it first")
    if file.is_dir():
        raise StoreError(f"{file} is a folder; name a file in it, such as {file / 'study.db'}")
    require_local(file)


def _sqlite_engine(url: URL, wait: float, durable: bool, file: SqliteFile) -> Engine:
    engine = create_engine(url, creator=lambda: file.connect(wait))

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we send BEGIN ourselves
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get(READING)
        if reading:
            connection.exec_driver_sql("BEGIN")
        else:
            begin_fairly(connection.connection.cursor(), wait)

    return engine


def begin_fairly(cursor: Any, wait: float) -> None:
    """Take SQLite's write lock, with a chance that grows with the time waited.

    SQLite itself waits longer after each attempt, which favours late arrivals: with 64 writers some wait for many
    seconds. We retry after a random pause. Its upper limit grows quickly at first, so that a short wait stays short,
    and then shrinks with the time waited, so that no writer starves.
    """
    began, longest = time.monotonic(), FIRST_PAUSE
    cursor.execute("PRAGMA busy_timeout=0")
    try:
        while True:
            try:
                cursor.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError as error:
                waited = time.monotonic() - began
                if "locked" not in str(error) or waited > wait:
                    raise
            longest = max(SHORTEST_PAUSE, min(2 * longest, LONGEST_PAUSE / (1.0 + waited)))
            time.sleep(_PAUSES.uniform(0.0, longest))
    finally:
        cursor.execute(f"PRAGMA busy_timeout={int(1000 * wait)}")


def _server_options(wait: float) -> str:
    """Give up a lock after `wait`, and take it from a client that was stopped within a transaction before others do."""
    return f"-c lock_timeout={int(1000 * wait)} -c idle_in_transaction_session_timeout={int(500 * wait)}"


def _postgresql_engine(url: URL, wait: float, outages: _Outages) -> Engine:
    try:
        engine = create_engine(
            url,
            connect_args={
                "connect_timeout": max(1, int(min(wait, 30))),
                "options": _server_options(wait),
            },
        )
    except ModuleNotFoundError:
        raise StoreError("PostgreSQL needs psycopg: pip install 'freezethaw[postgresql]'") from None

    @event.listens_for(engine, "checkin")
    def _remember(_connection: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _check(connection: Any, record: Any, _proxy: Any) -> None:
        """Check a connection that was idle, and replace it if the server was restarted."""
        if time.monotonic() - record.info.get("used", math.inf) > IDLE_SECONDS:
            try:
                engine.dialect.do_ping(connection)
            except Exception:
                outages.count += 1
                raise exc.DisconnectionError from None

    return engine
