"""A worker as an actor of Ray: created, started, asked to stop."""

from __future__ import annotations

import contextlib
import io
import os

from freezethaw.errors import FreezeThawError
from freezethaw.runtime import serialization
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.worker_process import BROKEN, FINISHED, LEFT, WorkerSpec, work
from freezethaw.store import Process


class RayWorker:
    """One worker. It is created in the main thread of its process, and works in another one.

    SIGTERM and SIGUSR1, with which machines announce their end, make it save and leave.
    """

    def __init__(self, spec: WorkerSpec, message: bytes, home: str | None = None) -> None:
        self._spec, self._message, self._leaving = spec, message, Leaving()
        self._signals = contextlib.ExitStack()
        self._signals.enter_context(on_signals(self._leaving))
        if home is not None:  # where the user called `tune`, if this machine has that folder
            with contextlib.suppress(OSError):
                os.chdir(home)

    def who(self) -> str:
        """As its leases name it."""
        return str(Process.current())

    def work(self) -> tuple[int, str]:
        """Until the study ends or this worker is asked to stop; returns an exit code and why."""
        try:
            result = work(self._spec, serialization.receive(io.BytesIO(self._message)), self._leaving)
        except FreezeThawError as error:
            return BROKEN, str(error)
        return (LEFT if result.left else FINISHED), result.reason

    def leave(self, why: str) -> None:
        """Save at the next epoch, and return."""
        self._leaving.ask(why)
