"""A time limit for each epoch. Nothing in Python can interrupt a training that hangs but the end of its process."""

from __future__ import annotations

import faulthandler
import sys
import threading
import traceback
from collections.abc import Callable

STUBBORN = 10.0  # seconds after which a process is ended from outside Python: its training lets no other thread run


class Alarm:
    """Rings once, in a thread of its own, where `stop` does not come within so many seconds of `start`."""

    def __init__(self, seconds: float, ring: Callable[[], None]) -> None:
        self.seconds, self._ring = seconds, ring
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """An epoch begins."""
        self._timer = threading.Timer(self.seconds, self._rings)
        self._timer.daemon = True
        faulthandler.dump_traceback_later(self.seconds + STUBBORN, exit=True)
        self._timer.start()

    def stop(self) -> None:
        """It has ended in time. While the alarm rings this does not come back."""
        with self._lock:
            timer, self._timer = self._timer, None
        faulthandler.cancel_dump_traceback_later()
        if timer is not None:
            timer.cancel()

    def _rings(self) -> None:
        with self._lock:
            if self._timer is threading.current_thread():
                self._ring()


def where_it_is() -> str:
    """What the main thread is doing now."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "" if frame is None else "".join(traceback.format_stack(frame))
