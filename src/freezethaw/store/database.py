"""Connections and transactions: SQLite in a file, or a PostgreSQL server.

Reading is one consistent view; writing is one transaction that holds the write lock from its beginning. SQLite runs
with a write-ahead log and `synchronous=FULL`: a commit that returned is on the disk. `?synchronous=off` in the URL is
for files that go with the process.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import sqlite3
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, exc, text
from sqlalchemy.engine import URL

from freezethaw.errors import StoreError
from freezethaw.store import urls
from freezethaw.store.urls import require_local

READING = "freezethaw_reading"
IDLE_SECONDS = 1.0  # after which a connection to a server is looked at before it is used
FIRST_PAUSE, LONGEST_PAUSE, SHORTEST_PAUSE = 0.005, 0.2, 0.01  # seconds between two attempts to take the write lock
CREATING = 0x66726565_7A65  # "freeze"


class Database:
    """An engine that knows how to begin. Safe to carry through a fork: a child opens connections of its own."""

    def __init__(self, url: str | Path, wait: float) -> None:
        self.url = urls.parse(url)
        self.wait, self.durable = wait, True
        self.sqlite = self.url.drivername == "sqlite"
        if self.sqlite:
            file = urls.sqlite_file(self.url)
            try:
                _check_file(file)
            except OSError as error:
                raise StoreError(f"the store {file} may not be read: {error.strerror}") from error
            self.durable = urls.is_durable(self.url)
            self.url = self.url.set(database=str(file), query={})
        self.engine = (
            _sqlite_engine(self.url, wait, self.durable) if self.sqlite else _postgresql_engine(self.url, wait)
        )
        self._pid = os.getpid()
        weakref.finalize(self, _dispose, self.engine, self._pid)

    @property
    def shown(self) -> str:
        """The URL with its password masked."""
        return urls.shown(self.url)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that holds the write lock; committed at the end, rolled back on an error."""
        with self._translated(), self._engine().begin() as connection:
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view."""
        with self._translated(), self._engine().connect() as connection:
            options: dict[str, Any] = {READING: True}
            if not self.sqlite:
                options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            yield connection.execution_options(**options)

    def lock_names(self, connection: Connection) -> None:
        """Let one transaction at a time create tables or studies. SQLite's write lock does so anyway."""
        if not self.sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": CREATING})

    def use_write_ahead_log(self) -> None:
        """Set SQLite's journal mode, which the file remembers; it cannot be changed within a transaction."""
        with self._translated(), contextlib.closing(self._engine().raw_connection()) as connection:
            deadline = time.monotonic() + self.wait
            while True:
                try:
                    mode = connection.cursor().execute("PRAGMA journal_mode=WAL").fetchone()[0]
                    break
                except sqlite3.OperationalError as error:  # this one statement does not wait for others by itself
                    if "locked" not in str(error) or time.monotonic() > deadline:
                        raise StoreError(self._explained(error)) from error
                    time.sleep(0.05)
        if mode != "wal":
            raise StoreError(f"the store {self.shown} cannot have a write-ahead log (its journal mode is {mode})")

    def close(self) -> None:
        """Give the connections back."""
        self._engine().dispose()

    def _engine(self) -> Engine:
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


def _dispose(engine: Engine, pid: int) -> None:
    engine.dispose(close=pid == os.getpid())  # a forked child must not close what is its parent's


# What a driver's message means and what to do about it.
CAUSES = (
    (
        "database is locked",
        "is locked by another process and stayed so for {wait:g} s: is one stopped, or another tool at it?",
    ),
    ("lock timeout", "is locked by another session and stayed so for {wait:g} s"),
    ("readonly database", "cannot be written: the file or its folder is read-only"),
    (
        "database or disk is full",
        "cannot be written: the disk is full. Nothing recorded is lost; free space and continue",
    ),
    ("disk I/O error", "cannot be read or written: the disk reports an error, or is full"),
    ("file is not a database", "is no SQLite database: give the file another name"),
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
    """Say plainly what is wrong with a place before SQLite says it obscurely."""
    if not file.parent.is_dir():
        raise StoreError(f"the folder {file.parent} of the store does not exist: create it first")
    if file.is_dir():
        raise StoreError(f"{file} is a folder; name a file in it, such as {file / 'study.db'}")
    require_local(file)


def _sqlite_engine(url: URL, wait: float, durable: bool) -> Engine:
    engine = create_engine(url, connect_args={"timeout": wait, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
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

    SQLite's own way of waiting sleeps longer and longer, so who comes late goes first: with 64 writers some wait for
    many seconds. We ask again after a random pause; the longest pause grows quickly at first, so that a short wait
    stays short, and then shrinks as we wait, so that nobody is left behind.
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
            time.sleep(random.uniform(0.0, longest))  # noqa: S311 - no secret
    finally:
        cursor.execute(f"PRAGMA busy_timeout={int(1000 * wait)}")


def _server_options(wait: float) -> str:
    """Give up a lock after `wait`, and take it from a client that was stopped within a transaction before others do."""
    return f"-c lock_timeout={int(1000 * wait)} -c idle_in_transaction_session_timeout={int(500 * wait)}"


def _postgresql_engine(url: URL, wait: float) -> Engine:
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
        """Look whether a connection that lay idle still lives: a server that was restarted is found again."""
        if time.monotonic() - record.info.get("used", math.inf) > IDLE_SECONDS:
            try:
                engine.dialect.do_ping(connection)
            except Exception:
                raise exc.DisconnectionError from None

    return engine
