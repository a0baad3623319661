"""A time limit for each epoch. Nothing in Python can interrupt a training that hangs except the end of its process."""

from __future__ import annotations

import faulthandler
import sys
import threading
import traceback
from collections.abc import Callable

TIMED_OUT = 5  # exit code of a process whose training hung
GRACE = 10.0  # seconds after which a process is ended from outside Python: its training lets no other thread run


class EpochTimeout:
    """Calls `expired` once, in a thread of its own, if `stop` does not come within so many seconds of `start`."""

    def __init__(self, seconds: float, expired: Callable[[], None]) -> None:
        self.seconds, self._expired = seconds, expired
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """An epoch begins."""
        self._timer = threading.Timer(self.seconds, self._expire)
        self._timer.daemon = True
        faulthandler.dump_traceback_later(self.seconds + GRACE, exit=True)
        self._timer.start()

    def stop(self) -> None:
        """The epoch has ended in time. While `expired` runs this does not return."""
        with self._lock:
            timer, self._timer = self._timer, None
        faulthandler.cancel_dump_traceback_later()
        if timer is not None:
            timer.cancel()

    def _expire(self) -> None:
        with self._lock:
            if self._timer is threading.current_thread():
                self._expired()


def main_thread_stack() -> str:
    """Where the main thread is now."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "" if frame is None else "".join(traceback.format_stack(frame))
