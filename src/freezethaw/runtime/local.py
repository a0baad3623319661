"""Workers on this machine: one in this process, or several processes.

Each worker process is a fresh `python -m freezethaw worker`, which reads the training function from a pipe. A worker
that dies is replaced; its run is taken over from its last checkpoint. If this process dies, the workers notice that
their pipe is closed, save and leave.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from freezethaw.errors import StudyError
from freezethaw.runtime import serialization
from freezethaw.runtime.checkpoints import CheckpointManager
from freezethaw.runtime.epoch_timeout import TIMED_OUT
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.worker import FINISHED as ENDED
from freezethaw.runtime.worker import INTERRUPTED, Worker, WorkerOptions, check_failures
from freezethaw.runtime.worker_failures import GRACE_SECONDS, MemoryKills, WorkerFailures, cause, manner
from freezethaw.runtime.worker_process import BROKEN, FINISHED, LEFT, SAYS, STORE, WorkerSpec, arguments_of, logs_in
from freezethaw.store import Process
from freezethaw.study import StudySession
from freezethaw.trainers.protocol import Train

POLL = 0.1


def work_inline(
    session: StudySession, train: Train, spec: WorkerSpec, leaving: Leaving, after_epoch: Callable[[], object]
) -> str:
    """One worker in this process, until the study ends or it is asked to stop; returns why it ended."""
    checkpoints = spec.checkpoints
    manager = CheckpointManager(session.storage, spec.folder, checkpoints.gb)
    with on_signals(leaving):
        reason = Worker(session, train, manager, WorkerOptions.of(checkpoints), leaving, after_epoch).work()
    if leaving.why == "SIGINT":
        raise KeyboardInterrupt
    return reason


class LocalEngine:
    """Several worker processes on this machine."""

    def __init__(self, spec: WorkerSpec, train: Train, workers: int) -> None:
        self._spec, self._count = spec, workers
        self._message = serialization.message(train)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # by their number, from 1
        self._logs = Path()  # of the study that is run
        self._gpus, self._memory_kills, self._host = gpus(), MemoryKills(), Process.current().host

    def run(self, session: StudySession, leaving: Leaving, update: Callable[[], None]) -> str:
        """Until the study ends or it is asked to stop; returns why. `update` is called several times a second."""
        failures, self._logs = WorkerFailures(session), logs_in(self._spec.folder, session.storage)
        with on_signals(leaving), self._running():
            while self._processes and not leaving():
                update()
                self._memory_kills.update()
                for number, process in self._ended():
                    if process.returncode != FINISHED and not leaving():
                        self._handle_end(session, failures, number, process)
                        self._start(number)
                time.sleep(POLL)
        if leaving():
            return leaving.raise_or_return(INTERRUPTED)
        return session.last_event(ENDED) or "all workers have ended"

    def _handle_end(
        self, session: StudySession, failures: WorkerFailures, number: int, process: subprocess.Popen[bytes]
    ) -> None:
        """Record why a worker ended before the study did; raises StudyError if another would fail likewise."""
        code = process.returncode
        if code == BROKEN:
            raise StudyError(self._last_message(number))
        if code == TIMED_OUT:
            check_failures(session)
        elif code != LEFT:
            why = cause(code, self._memory_kills.recent())
            holder = f"process {process.pid} on {self._host}"
            failures.add(number, holder, manner(code, why), why, str(self._log(number)))

    def _ended(self) -> list[tuple[int, subprocess.Popen[bytes]]]:
        """Workers that have ended since."""
        ended = [(number, process) for number, process in self._processes.items() if process.poll() is not None]
        for number, process in ended:
            _close(process)
            del self._processes[number]
        return ended

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        try:
            for number in range(1, self._count + 1):
                self._start(number)
            yield
        finally:
            self._leave()

    def _start(self, number: int) -> None:
        command = [sys.executable, "-m", "freezethaw", "worker", "--pipe", *arguments_of(self._spec)]
        environment = os.environ | {STORE: self._spec.store}
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[(number - 1) % len(self._gpus)]
        self._log(number).parent.mkdir(parents=True, exist_ok=True)
        with self._log(number).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        self._processes[number] = process
        assert process.stdin is not None  # noqa: S101 - asked for above
        with contextlib.suppress(BrokenPipeError):  # it died at once, which `run` notices
            process.stdin.write(self._message)
            process.stdin.flush()

    def _leave(self) -> None:
        """Ask all workers to save and leave; kill those that do not."""
        for process in self._processes.values():
            process.terminate()
        end = time.monotonic() + GRACE_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _close(process)
        self._processes.clear()

    def _log(self, number: int) -> Path:
        return self._logs / f"worker-{number}.log"

    def _last_message(self, number: int) -> str:
        """What a worker wrote before it ended."""
        lines = self._log(number).read_text(encoding="utf-8", errors="replace").splitlines()
        message = next((line.removeprefix(SAYS) for line in reversed(lines) if line.startswith(SAYS)), "")
        return message or f"worker {number} cannot work; see {self._log(number)}"


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def gpus() -> list[str]:
    """The GPUs of this machine that may be used; workers take them in turn."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [g for g in allowed.split(",") if g]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    found = subprocess.run([tool, "--list-gpus"], capture_output=True, text=True, check=False)  # noqa: S603 - found above
    return [str(i) for i, line in enumerate(found.stdout.splitlines()) if line.strip()]
