"""A command while it runs: its losses as they come, its log, its end, and the end of whatever it started."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

from freezethaw.errors import TrainingError
from freezethaw.trainers.command_output import Line, read_line

GRACE = 20.0  # seconds that a command has to save and leave
LOOK = 0.2  # seconds between two looks at whether to leave
LINGER = 2.0  # seconds after its end in which output may still come
TAIL = 5  # lines of output that a message shows


class CommandProcess:
    """The command while it runs, in a session of its own: Ctrl-C reaches it through us only."""

    def __init__(
        self, words: Sequence[str], folder: str | None, epoch_limit: float | None, told: Mapping[str, object]
    ) -> None:
        self._shown, self._limit = " ".join(words), epoch_limit
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._queue: queue.Queue[str | None] = queue.Queue()
        environment = os.environ | {f"FREEZETHAW_{key}": str(value) for key, value in told.items()}
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

    def lines(self, leaving: Callable[[], bool]) -> Iterator[Line]:
        """Lines that count, as they come, until the output ends. Asked to leave, the command is asked in turn."""
        patience, asked = self._limit, False
        since, gone = time.monotonic(), None
        while True:
            try:
                text = self._queue.get(timeout=LOOK)
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
                asked, patience, since = True, GRACE, time.monotonic()
            if patience is not None and time.monotonic() - since > patience:
                if asked:
                    self._stop(signal.SIGKILL)
                    return
                raise TrainingError(
                    f"longer than {patience:g} s for one epoch: {self._shown} printed no loss{self.output()}"
                )
            if text or not self._exited():
                gone = None
            elif gone is None:
                gone = time.monotonic()
            elif time.monotonic() - gone > LINGER:  # it left a process behind that holds the pipe open
                return

    def end(self) -> int:
        """Wait until it has exited, and end whatever it started and left behind; gives its exit code."""
        limit, since = self._limit, time.monotonic()
        while not self._exited():
            time.sleep(0.005)
            if limit is not None and time.monotonic() - since > max(limit, GRACE):
                raise TrainingError(f"{self._shown} closed its output but does not exit")
        self._stop(signal.SIGKILL)
        code = self._process.wait()
        for reader in self._readers:
            reader.join(timeout=1.0)
        return code

    def _exited(self) -> bool:
        """Whether it has exited; where the system can tell without forgetting it, so that its number stays its own."""
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def output(self) -> str:
        """The end of its log, for a message."""
        return "; its last output: " + " | ".join(self._tail) if self._tail else "; it printed nothing else"

    def _stop(self, how: signal.Signals) -> None:
        """The command and whatever it started."""
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
