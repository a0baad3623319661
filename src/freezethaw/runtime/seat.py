"""A worker as an object that other machinery holds, such as an actor of Ray: made, set to work, asked to leave."""

from __future__ import annotations

import contextlib
import io
import os

from freezethaw.errors import FreezeThawError
from freezethaw.runtime import shipping
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.worker_process import BROKEN, FINISHED, LEFT, Place, work
from freezethaw.store import Process


class Seat:
    """One worker. It is made in the main thread of its process, and works in another one.

    SIGTERM and SIGUSR1, with which machines announce that they will be gone, make it save and leave.
    """

    def __init__(self, place: Place, parcel: bytes, home: str | None = None) -> None:
        self._place, self._parcel, self._leaving = place, parcel, Leaving()
        self._signals = contextlib.ExitStack()
        self._signals.enter_context(on_signals(self._leaving))
        if home is not None:  # where the user called `tune`, if this machine has that folder too
            with contextlib.suppress(OSError):
                os.chdir(home)

    def who(self) -> str:
        """As its leases name it."""
        return str(Process.current())

    def work(self) -> tuple[int, str]:
        """Until the study ends or this worker is asked to leave: how it ended, as exit codes say it, and why."""
        try:
            served = work(self._place, shipping.receive(io.BytesIO(self._parcel)), self._leaving)
        except FreezeThawError as error:
            return BROKEN, str(error)
        return (LEFT if served.left else FINISHED), served.reason

    def leave(self, why: str) -> None:
        """Save at the next epoch, and come back."""
        self._leaving.ask(why)
