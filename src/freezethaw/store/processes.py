"""Which process holds a lease, and whether it is surely dead.

Only a process of the same boot and the same process namespace can be looked up by its number; two containers of one
machine share the boot but not the numbers. The start time tells a process from a later one with a recycled number.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from freezethaw.store.documents import printable


@dataclass(frozen=True)
class Process:
    """A process anywhere. `boot` is unique to a boot and its process namespace; empty where unknown."""

    host: str
    boot: str
    pid: int
    started: str  # as the system counts it; only compared with itself

    @classmethod
    def current(cls) -> Process:
        """The one that asks."""
        pid = os.getpid()
        return cls(printable(socket.gethostname()), _boot(), pid, _started(pid) or "")

    def is_dead(self, here: Process) -> bool:
        """Whether it has surely ended, as far as `here` can tell; False where it cannot."""
        if not self.boot or self.boot != here.boot or not self.started:
            return False
        return _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _boot() -> str:
    try:
        if sys.platform == "darwin":
            return _output("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process started; None where there is none that still runs."""
    if sys.platform == "darwin":
        state, _, started = _output("/bin/ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)).partition(" ")
        return None if state[:1] in ("", "Z") else started.strip()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before may hold blanks and brackets
    return None if fields[0] in "ZX" else fields[19]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603 - ours
