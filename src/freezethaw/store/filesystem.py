"""Is a file on a network file system? SQLite's locks and shared memory do not hold there, so a store is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from freezethaw.errors import StoreError

NETWORK = (
    "9p acfs afs afpfs beegfs ceph cifs coda davfs drvfs fuse.ceph fuse.davfs2 fuse.gcsfuse fuse.glusterfs fuse.goofys "
    "fuse.rclone fuse.s3fs fuse.sshfs gfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs3 nfs4 ocfs2 orangefs panfs pvfs2 "
    "smb2 smb3 smbfs webdav wekafs"
)


def require_local(file: Path) -> None:
    """Refuse a file on a network file system, with advice."""
    kind = network_kind(file, _mounts())
    if kind:
        raise StoreError(
            f"{file} is on a network file system ({kind}), where SQLite's locks do not hold and losses could be lost. "
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
