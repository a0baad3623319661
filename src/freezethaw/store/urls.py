"""Where a store is: URLs and paths, how they are shown, and which file systems SQLite works on."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from freezethaw.errors import StoreError

EXAMPLES = "'study.db', 'sqlite:///study.db' or 'postgresql+psycopg://user@host/database'"
MASK = "***"
# file systems on which SQLite's locks do not work
NETWORK = (
    "9p acfs afs afpfs beegfs ceph cifs coda davfs drvfs fuse.ceph fuse.davfs2 fuse.gcsfuse fuse.glusterfs fuse.goofys "
    "fuse.rclone fuse.s3fs fuse.sshfs gfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs3 nfs4 ocfs2 orangefs panfs pvfs2 "
    "smb2 smb3 smbfs webdav wekafs"
)
SECRET = re.compile(r"pass|secret|token", re.IGNORECASE)


def parse(text: str | Path) -> URL:
    """A URL of a store, from a URL or the path of a SQLite file; a refusal shows no password."""
    if not isinstance(text, str | Path):
        raise StoreError(f"a store is a path or a URL such as {EXAMPLES}, not {type(text).__name__}")
    if isinstance(text, Path) or ("://" not in text and text.strip() and not text.startswith("sqlite:")):
        return URL.create("sqlite", database=str(text))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError(f"cannot read the store's URL; write {EXAMPLES}") from None
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        if url.database in (None, "", ":memory:") or "mode" in url.query or str(url.database).startswith("file:"):
            raise StoreError(
                "a store in SQLite is a file: write 'sqlite:///study.db', or no store to keep it in memory"
            )
        return url.set(drivername="sqlite")
    raise StoreError(f"stores of kind {url.drivername!r} are not known; use {EXAMPLES}")


def sqlite_file(url: URL) -> Path:
    """The file of a SQLite URL."""
    return Path(str(url.database)).expanduser().absolute()


def default_checkpoint_folder(store: str | Path) -> str:
    """The default folder of checkpoints: beside a SQLite file, else in the current folder."""
    store = str(store)
    file = store if "://" not in store else ""
    if store.startswith("sqlite:///"):
        file = store.removeprefix("sqlite:///").partition("?")[0]
    return str((Path(file).absolute().parent if file else Path().absolute()) / "checkpoints")


def is_durable(url: URL) -> bool:
    """Whether a commit to a SQLite file must be on the disk when it returns: always, unless the URL says otherwise."""
    asked = dict(url.query)
    how = asked.pop("synchronous", "full")
    if asked or how not in ("full", "off"):
        raise StoreError(f"a store in SQLite knows '?synchronous=off' and nothing else in its URL, not {url.query!r}")
    return how == "full"


def shown(url: URL) -> str:
    """The URL as it may be shown: passwords masked, in the query too."""
    masked = {key: MASK if SECRET.search(key) else value for key, value in url.query.items()}
    return url.set(query=masked).render_as_string(hide_password=True)


def scrubbed(text: str, url: URL) -> str:
    """A message of a driver without the passwords of the URL."""
    secrets = [str(url.password or ""), *(str(v) for k, v in url.query.items() if SECRET.search(k))]
    for secret in filter(None, secrets):
        text = text.replace(secret, MASK)
    return text


def require_local(file: Path) -> None:
    """Refuse a file on a network file system, with advice."""
    kind = network_kind(file, _mounts())
    if kind:
        raise StoreError(
            f"{file} is on a network file system ({kind}), where SQLite's locks do not work and losses could be lost. "
            "Put the file on a local disk, or use a PostgreSQL server for workers on several machines: "
            "postgresql+psycopg://user@host/database"
        )


def network_kind(file: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """The kind of network file system a file is on, empty if local; `mounts` are (mount point, kind)."""
    place = file.resolve()
    found = ("", "")
    for point, kind in mounts:
        if place.is_relative_to(point) and len(point) >= len(found[0]):
            found = point, kind
    return found[1] if found[1] in NETWORK.split() else ""


def read_proc_mounts(text: str) -> Iterator[tuple[str, str]]:
    """Mount points and kinds from Linux's /proc/mounts, where blanks are written as octal escapes."""
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) >= 3:
            yield re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[1]), fields[2]


def read_mount_command(text: str) -> Iterator[tuple[str, str]]:
    """Mount points and kinds from the output of macOS's `mount`."""
    for line in text.splitlines():
        match = re.match(r".* on (/.*) \(([^,)]+)", line)
        if match:
            yield match[1], match[2]


def _mounts() -> list[tuple[str, str]]:
    if sys.platform == "darwin":
        found = subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=False)
        return list(read_mount_command(found.stdout))
    try:
        return list(read_proc_mounts(Path("/proc/mounts").read_text(encoding="utf-8", errors="surrogateescape")))
    except OSError:
        return []  # unknown: not refused
