"""Why worker processes die, and when the run that they trained is to blame.

A crash (a segmentation fault, an exit) and a kill by the system for want of memory are the run's own doing; SIGKILL
from anybody else is not. Who killed is known to the process that started the worker; elsewhere it stays unknown.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from freezethaw.store import Closing

Cause = Literal["crashed", "out of memory", "killed", "unknown"]

AT_FAULT = 3  # deaths in the same epoch of a run by its own doing: it has failed
UNEXPLAINED = 10  # deaths in the same epoch of a run, whoever did it: nobody is that unlucky
RECENT = 30.0  # seconds from the system's choice of a victim until it is gone
STATISTICS = Path("/proc/vmstat")  # of Linux; it counts the processes killed for want of memory
OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class MemoryKills:
    """Notices when the system kills a process, any process, for want of memory. Look often."""

    def __init__(self) -> None:
        self._count, self._risen = _memory_kills(), -RECENT

    def look(self) -> None:
        """Read the count."""
        count = _memory_kills()
        if count > self._count:
            self._risen = time.monotonic()
        self._count = count

    def lately(self) -> bool:
        """Whether there was one."""
        self.look()
        return time.monotonic() - self._risen < RECENT


def _memory_kills() -> int:
    try:
        lines = STATISTICS.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def cause(code: int, short_of_memory: bool) -> Cause:
    """Why a process ended that should not have; `code` as subprocess gives it."""
    if code == -signal.SIGKILL and short_of_memory:
        return "out of memory"
    return "killed" if -code in OUTSIDE else "crashed"


def manner(code: int, why: Cause) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = {"out of memory": ", by the system, for want of memory", "killed": ", from outside"}.get(why, "")
    return f"was killed by {name}{hint}"


def verdict(run: int, epoch: int, causes: Sequence[Cause]) -> tuple[str, Closing] | None:
    """Whether a run has failed in which workers died one after the other in the same epoch: what to say, or None."""
    blamed = [why for why in causes if why in ("crashed", "out of memory")]
    if len(blamed) >= AT_FAULT:
        starved = "out of memory" in blamed
        what = "were killed for want of memory" if starved else "crashed (a fault in a library?)"
        how: Closing = "out_of_memory" if starved else "failed"
        return f"run {run}: {len(blamed)} workers in turn {what} after epoch {epoch}", how
    if len(causes) >= UNEXPLAINED:
        text = f"run {run}: {len(causes)} workers in turn were killed after epoch {epoch}; out of memory?"
        return text, "failed"
    return None
