"""The process of a training command: its losses, its log, its exit, and the processes it started."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from freezethaw.errors import TrainingError
from freezethaw.trainers.protocol import RESERVED

EXIT_SECONDS = 20.0  # for the exit after the output has ended, if epochs are limited
GRACE_SHARE = 0.8  # of the grace period until SIGKILL: the rest is for saving what the command left
POLL_SECONDS = 0.2  # between checks whether to stop
LINGER_SECONDS = 2.0  # after the exit, in which output may still arrive
TAIL = 5  # lines of output shown in messages
BARE_NUMBER = re.compile(r"([:\[,]\s*)[-+]?(nan|inf(?:inity)?)\b", re.IGNORECASE)  # NaN and infinity as printed by C


@dataclass(frozen=True)
class LossLine:
    """A line of output with a loss."""

    epoch: int
    loss: float
    metrics: Mapping[str, Any]


def read_line(text: str) -> LossLine | None:
    """Parse a line of output; None if it is part of the log. Raises TrainingError for an invalid epoch or loss."""
    if not text.lstrip().startswith("{"):
        return None
    found = _parsed(text)
    if not isinstance(found, dict) or "epoch" not in found or "loss" not in found:
        return None
    epoch, loss = found["epoch"], found["loss"]
    if isinstance(epoch, float) and epoch.is_integer():
        epoch = int(epoch)
    if isinstance(epoch, bool) or not isinstance(epoch, int):
        raise TrainingError(f"the command printed an epoch that is not an integer: {text.strip()[:200]}")
    if loss is None:  # NaN, as written by JavaScript
        loss = math.nan
    if isinstance(loss, bool) or not isinstance(loss, int | float):
        raise TrainingError(f"the command printed a loss that is not a number: {text.strip()[:200]}")
    metrics = {key: value for key, value in found.items() if key not in ("epoch", *RESERVED)}
    return LossLine(epoch, float(loss), metrics)


def _parsed(text: str) -> Any:
    for attempt in (text, BARE_NUMBER.sub(r"\1NaN", text)):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(attempt)
    return None


class CommandProcess:
    """A running command, in its own session: it receives Ctrl-C only from us."""

    def __init__(
        self,
        words: Sequence[str],
        folder: str | None,
        epoch_limit: float | None,
        variables: Mapping[str, object],
        grace: float | None = None,
    ) -> None:
        self._shown, self._limit, self._grace = " ".join(words), epoch_limit, grace
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._queue: queue.Queue[str | None] = queue.Queue()
        environment = os.environ | {f"FREEZETHAW_{key}": str(value) for key, value in variables.items()}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                words,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise TrainingError(f"the command {words[0]!r} cannot be run: {error.strerror}") from error
        self._readers = [
            threading.Thread(target=self._read_losses, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_log, args=(self._process.stderr,), daemon=True),
        ]

    def __enter__(self) -> CommandProcess:
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._stop(signal.SIGKILL)
            self._process.wait()
        for reader in self._readers:
            reader.join(timeout=1.0)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError, ValueError):
                    pipe.close()

    def lines(self, leaving: Callable[[], bool]) -> Iterator[LossLine]:
        """Losses as they arrive, until the output ends. If `leaving`, the command is asked to stop.

        It then has most of the grace period; without one, as long as its epoch takes.
        """
        limit, asked, kill_at = self._limit, False, math.inf
        since, exited_at = time.monotonic(), None
        while True:
            try:
                text = self._queue.get(timeout=POLL_SECONDS)
            except queue.Empty:
                text = ""
            if text is None:
                return
            line = read_line(text) if text else None
            if line is not None:
                since = time.monotonic()
                yield line
            if not asked and leaving():
                self._stop(signal.SIGTERM)
                asked, since = True, time.monotonic()
                kill_at = math.inf if self._grace is None else since + GRACE_SHARE * self._grace
            if time.monotonic() > kill_at:
                self._stop(signal.SIGKILL)
                return
            if limit is not None and time.monotonic() - since > limit:
                if asked:
                    self._stop(signal.SIGKILL)
                    return
                raise TrainingError(
                    f"longer than {limit:g} s for one epoch: {self._shown} printed no loss{self.output()}"
                )
            if text or not self._exited():
                exited_at = None
            elif exited_at is None:
                exited_at = time.monotonic()
            elif time.monotonic() - exited_at > LINGER_SECONDS:  # a child process keeps the pipe open
                return

    def end(self) -> int:
        """Wait for the exit, kill remaining child processes and return the exit code."""
        limit, since = self._limit, time.monotonic()
        while not self._exited():
            time.sleep(0.005)
            if limit is not None and time.monotonic() - since > max(limit, EXIT_SECONDS):
                raise TrainingError(f"{self._shown} closed its output but does not exit")
        self._stop(signal.SIGKILL)
        code = self._process.wait()
        for reader in self._readers:
            reader.join(timeout=1.0)
        return code

    def _exited(self) -> bool:
        """Whether it has exited; if possible without reaping it, so that its process ID is not reused."""
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def output(self) -> str:
        """The end of the log, for a message."""
        return "; its last output: " + " | ".join(self._tail) if self._tail else "; no other output"

    def _stop(self, how: signal.Signals) -> None:
        """Send a signal to the command and its child processes."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, how)

    def _read_losses(self, pipe: IO[bytes]) -> None:
        for text in _texts(pipe):
            self._queue.put(text)
            if not text.lstrip().startswith("{"):
                self._log(text, sys.stdout)
        self._queue.put(None)

    def _read_log(self, pipe: IO[bytes]) -> None:
        for text in _texts(pipe):
            self._log(text, sys.stderr)

    def _log(self, text: str, to: IO[str]) -> None:
        if text.strip():
            self._tail.append(text.strip()[:300])
        with contextlib.suppress(OSError, ValueError):
            to.write(text if text.endswith("\n") else text + "\n")
            to.flush()


def _texts(pipe: IO[bytes]) -> Iterator[str]:
    with contextlib.suppress(OSError, ValueError):
        while chunk := pipe.readline(1 << 20):
            yield chunk.decode("utf-8", errors="replace")
