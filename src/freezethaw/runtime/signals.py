"""What stops a worker: signals and the timeout of a call, after which the run is saved; the time limit of an epoch."""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

LEAVE = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None
_replaced: list[dict[signal.Signals, Handler]] = []  # handlers that were there before ours
TIMEOUT = "timeout"
TIMED_OUT = 5  # exit code of a process whose training hung
GRACE = 10.0  # seconds after which a process is ended from outside Python, if its training blocks all other threads


class Leaving:
    """Whether to stop, and why. Call the object to check."""

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._deadline = math.inf
        self.why = ""

    @contextmanager
    def after(self, seconds: float | None) -> Iterator[None]:
        """Within this context, ask to stop after so many seconds."""
        self._deadline = math.inf if seconds is None else time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = math.inf

    def __call__(self) -> bool:
        """Whether to stop."""
        if time.monotonic() >= self._deadline:
            self.ask(TIMEOUT)
        return self._flag.is_set()

    def ask(self, why: str) -> None:
        """Stop at the next epoch."""
        self.why = self.why or why
        self._flag.set()


@contextmanager
def on_signals(leaving: Leaving) -> Iterator[None]:
    """Within this context, signals ask to stop; a second Ctrl-C interrupts at once. Only in the main thread.

    SIGHUP stays ignored where it is (`nohup`).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and leaving():
            raise KeyboardInterrupt
        leaving.ask(signal.Signals(number).name)

    wanted = [n for n in LEAVE if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in wanted}
    _replaced.append(before)
    try:
        yield
    finally:
        _replaced.remove(before)
        _restore(before)


def _restore(handlers: dict[signal.Signals, Handler]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _forget() -> None:
    """In a forked process: subprocesses of a training (data loaders, for example) must end at a signal."""
    while _replaced:
        _restore(_replaced.pop())


os.register_at_fork(after_in_child=_forget)


# A training that hangs can be interrupted only by ending its process.


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
