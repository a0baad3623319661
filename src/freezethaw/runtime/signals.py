"""Stopping cleanly: signals set a flag; the current run is saved and frozen before the worker stops."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

LEAVE = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None
_replaced: list[dict[signal.Signals, Handler]] = []  # handlers that were there before ours


TIMEOUT = "timeout"


class Leaving:
    """Whether to stop, and why. Call it to ask."""

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
    """In a forked process: helpers of a training (that load data, for example) must end at a signal."""
    while _replaced:
        _restore(_replaced.pop())


os.register_at_fork(after_in_child=_forget)
