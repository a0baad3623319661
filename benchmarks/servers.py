"""A real PostgreSQL server in a temporary folder, on loopback, for tests and benchmarks. It goes with the process."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

USER = "freezethaw"


def binaries() -> Path | None:
    """The folder of the newest PostgreSQL server on this machine; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve(), *found] if on_path else found
    servers = [path.parent for path in found if (path.parent / "postgres").exists()]
    return servers[-1] if servers else None


class Server:
    """A running server."""

    def __init__(self, command: list[object], folder: Path, url: str) -> None:
        self._command, self._folder, self.url = command, folder, url
        self.start()

    def start(self) -> None:
        """Until it answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in self._command], stdout=log, stderr=log, cwd=self._folder
            )
        _wait(self.url, self._process, self._folder / "log")

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """SIGQUIT: at once, with recovery at the next start; SIGINT: open transactions are rolled back."""
        self._process.send_signal(how)
        self._process.wait(timeout=60)

    def restart(self, seconds: float = 0.0, how: signal.Signals = signal.SIGINT) -> None:
        """Away for so many seconds, and as long as it takes to start."""
        self.stop(how)
        time.sleep(seconds)
        self.start()


@contextlib.contextmanager
def postgresql(fsync: bool = True) -> Iterator[str]:
    """Start a server; gives the URL of its first database."""
    with postgresql_server(fsync) as server:
        yield server.url


@contextlib.contextmanager
def postgresql_server(fsync: bool = True) -> Iterator[Server]:
    """Start a server that can be stopped and started again."""
    place = binaries()
    if place is None:
        raise RuntimeError("no PostgreSQL server on this machine: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="freezethaw-pg-"))
    password, port = secrets.token_hex(16), _free_port()
    try:
        data, words = folder / "data", folder / "words"
        words.write_text(password)
        if os.getuid() == 0:  # the server refuses to run as root
            shutil.chown(folder, "postgres")
            shutil.chown(words, "postgres")
        login = ["-A", "scram-sha-256", "-U", USER, f"--pwfile={words}"]
        initdb = [place / "initdb", "-D", data, *login, "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([*_as_user(), *initdb], check=True, stdout=subprocess.DEVNULL, cwd=folder)
        settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder}
        settings |= {
            "max_connections": 200,
            "fsync": "on" if fsync else "off",
            "full_page_writes": "on" if fsync else "off",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        url = f"postgresql+psycopg://{USER}:{password}@127.0.0.1:{port}/postgres"
        server = Server([*_as_user(), place / "postgres", "-D", data, *options], folder, url)
        try:
            yield server
        finally:
            server.stop()  # at once: nothing in it is wanted any more
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_user() -> list[str]:
    """Become the server's own user where we are root; die with the process that started it."""
    if not shutil.which("setpriv"):
        return []
    user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
    return ["setpriv", *user, "--pdeathsig", "QUIT", "--"]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()}")
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(url.replace("+psycopg", "")).close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"PostgreSQL did not answer within a minute:\n{log.read_text()}")


def fresh_database(url: str) -> str:
    """Create an empty database on the server, in effect: a user with a schema of its own; gives its URL.

    A real database would be a copy of 300 files, and tests need hundreds of them.
    """
    import psycopg

    name, password = f"t{secrets.token_hex(6)}", secrets.token_hex(16)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")  # type: ignore[call-overload]
        connection.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")  # type: ignore[call-overload]
        connection.execute(f"ALTER ROLE {name} SET search_path = {name}")  # type: ignore[call-overload]
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{name}:{password}@{rest.rpartition('@')[2]}"
