"""Why worker processes died: a run that kills its workers has failed, and if all workers die the study ends.

A crash (a segmentation fault, an exit with any code) and a kill by the system for lack of memory are attributed
to the run; SIGKILL from elsewhere is not. The cause is known to the process that started the worker; elsewhere it
stays unknown.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from freezethaw.errors import StudyError
from freezethaw.records import Closing
from freezethaw.study import StudySession

Cause = Literal["crashed", "out of memory", "killed", "unknown"]

DIED = "worker died"  # events of this kind say how
MOST_DEATHS = 20  # of workers in a row without an epoch between
CRASHES = 3  # in the same epoch of a run: it has failed
UNEXPLAINED = 10  # deaths in the same epoch of a run, whatever the cause
RECENT = 30.0  # seconds that the system may take to end a process it has chosen
STATISTICS = Path("/proc/vmstat")  # on Linux: counts the processes killed for lack of memory
OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class WorkerFailures:
    """Records deaths of workers as events: a worker that takes a run over reads the cause there."""

    def __init__(self, session: StudySession) -> None:
        self._session, self._epochs, self._deaths = session, _epochs(session), 0

    def add(self, number: int, holder: str, how: str, why: Cause, see: str) -> None:
        """Worker `number` died; `holder`: its name in leases; `see`: where to find more.

        Raises StudyError after too many deaths in a row without an epoch between.
        """
        details = {"worker": holder, "cause": why}
        self._session.storage.add_event(DIED, f"worker {number} {how}", details=details)
        now = _epochs(self._session)
        self._deaths, self._epochs = (self._deaths + 1 if now == self._epochs else 1), now
        if self._deaths > MOST_DEATHS:
            raise StudyError(f"{self._deaths} workers died without an epoch in between, the last one {how}; see {see}")


def _epochs(session: StudySession) -> int:
    return sum(run.epoch for run in session.refresh().runs)


class MemoryKills:
    """Detects that the system killed any process for lack of memory. Call `update` often."""

    def __init__(self) -> None:
        self._count, self._risen = _memory_kills(), -RECENT

    def update(self) -> None:
        """Read the count."""
        count = _memory_kills()
        if count > self._count:
            self._risen = time.monotonic()
        self._count = count

    def recent(self) -> bool:
        """Whether a process was killed recently."""
        self.update()
        return time.monotonic() - self._risen < RECENT


def _memory_kills() -> int:
    try:
        lines = STATISTICS.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def cause(code: int, short_of_memory: bool) -> Cause:
    """Why a process ended unexpectedly; `code` as subprocess gives it."""
    if code == -signal.SIGKILL and short_of_memory:
        return "out of memory"
    return "killed" if -code in OUTSIDE else "crashed"


def manner(code: int, why: Cause) -> str:
    """How a process ended, for people."""
    if code >= 0:
        return f"ended with exit code {code}, which the training must have done"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = {"out of memory": ", by the system, for lack of memory", "killed": ", from outside"}.get(why, "")
    return f"was killed by {name}{hint}"


def verdict(run: int, epoch: int, causes: Sequence[Cause]) -> tuple[str, Closing] | None:
    """Whether a run has failed because workers died repeatedly in the same epoch: the message, or None."""
    blamed = [why for why in causes if why in ("crashed", "out of memory")]
    if len(blamed) >= CRASHES:
        memory = "out of memory" in blamed
        what = "were killed for lack of memory" if memory else "crashed (a fault in a library, or an exit?)"
        how: Closing = "out_of_memory" if memory else "failed"
        return f"run {run}: {len(blamed)} workers in a row {what} after epoch {epoch}", how
    if len(causes) >= UNEXPLAINED:
        text = f"run {run}: {len(causes)} workers in a row were killed after epoch {epoch}; out of memory?"
        return text, "failed"
    return None
