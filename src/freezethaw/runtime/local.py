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
from dataclasses import dataclass
from pathlib import Path

from freezethaw.errors import StudyError
from freezethaw.runtime import serialization
from freezethaw.runtime.checkpoints import CheckpointManager
from freezethaw.runtime.signals import TIMED_OUT, Leaving
from freezethaw.runtime.worker import FINISHED as ENDED
from freezethaw.runtime.worker import INTERRUPTED, Worker, WorkerOptions, check_failures
from freezethaw.runtime.worker_failures import MemoryKills, WorkerFailures, cause, manner
from freezethaw.runtime.worker_process import BROKEN, FINISHED, STORE, Ending, WorkerSpec, arguments_of, logs_in
from freezethaw.store import Process
from freezethaw.study import StudySession
from freezethaw.trainers.protocol import Train

POLL = 0.1
SLOW = 5.0  # seconds until a message says what `tune` is waiting for


@dataclass(frozen=True)
class _Process:
    """A worker process."""

    process: subprocess.Popen[bytes]
    ending: int  # a pipe through which it sends how it ended

    def close(self) -> None:
        """Close the pipes."""
        os.close(self.ending)
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


def work_inline(
    session: StudySession, train: Train, spec: WorkerSpec, leaving: Leaving, after_epoch: Callable[[], object]
) -> str:
    """One worker in this process, until the study ends or it is asked to stop; returns why it ended."""
    checkpoints = spec.checkpoints
    manager = CheckpointManager(session.storage, spec.folder, checkpoints.gb)
    options = WorkerOptions.of(checkpoints, grace=spec.grace)
    return Worker(session, train, manager, options, leaving, after_epoch).work()


class LocalEngine:
    """Several worker processes on this machine."""

    def __init__(self, spec: WorkerSpec, train: Train, workers: int) -> None:
        self._spec, self._count = spec, workers
        self._message = serialization.message(train)
        self._processes: dict[int, _Process] = {}  # by their number, from 1
        self._logs = Path()  # of the study that is run
        self._gpus, self._memory_kills, self._host = gpus(), MemoryKills(), Process.current().host

    def run(self, session: StudySession, leaving: Leaving, update: Callable[[], None]) -> str:
        """Until the study ends or it is asked to stop; returns why. `update` is called several times a second."""
        failures, self._logs = WorkerFailures(session), logs_in(self._spec.folder, session.storage)
        with self._running():
            while self._processes and not leaving():
                update()
                self._memory_kills.update()
                for number, process, ending in self._ended():
                    if (ending is None or ending.code != FINISHED) and not leaving():
                        self._handle_end(session, failures, number, process, ending)
                        self._start(number)
                time.sleep(POLL)
        return INTERRUPTED if leaving() else session.last_event(ENDED) or "all workers have ended"

    def _handle_end(
        self,
        session: StudySession,
        failures: WorkerFailures,
        number: int,
        process: subprocess.Popen[bytes],
        ending: Ending | None,
    ) -> None:
        """Record why a worker ended before the study did; raises StudyError if another would fail likewise."""
        if ending is None:
            code = process.returncode
            why = cause(code, self._memory_kills.recent())
            holder = f"process {process.pid} on {self._host}"
            failures.add(number, holder, manner(code, why), why, str(self._log(number)))
        elif ending.code == BROKEN:
            raise StudyError(ending.message or f"worker {number} cannot work; see {self._log(number)}")
        elif ending.code == TIMED_OUT:
            check_failures(session)

    def _ended(self) -> list[tuple[int, subprocess.Popen[bytes], Ending | None]]:
        """Workers that have ended since, and how, if they sent it."""
        found = []
        for number, worker in list(self._processes.items()):
            if worker.process.poll() is not None:
                found.append((number, worker.process, Ending.receive(worker.ending)))
                worker.close()
                del self._processes[number]
        return found

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        try:
            for number in range(1, self._count + 1):
                self._start(number)
            yield
        finally:
            self._leave()

    def _start(self, number: int) -> None:
        ending, says = os.pipe()
        command = [sys.executable, "-m", "freezethaw", "worker", "--pipe", *arguments_of(self._spec)]
        command.append(f"--ending={says}")
        environment = os.environ | {STORE: self._spec.store}
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[(number - 1) % len(self._gpus)]
        self._log(number).parent.mkdir(parents=True, exist_ok=True)
        with self._log(number).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=[says],
            )
        os.close(says)
        self._processes[number] = _Process(process, ending)
        assert process.stdin is not None  # noqa: S101 - asked for above
        with contextlib.suppress(BrokenPipeError):  # it died at once, which `run` notices
            process.stdin.write(self._message)
            process.stdin.flush()

    def _leave(self) -> None:
        """Ask all workers to save and leave; kill those that do not within the grace period, or at a second Ctrl-C."""
        left = [worker.process for worker in self._processes.values()]
        begun, said = time.monotonic(), False
        try:
            for process in left:
                process.terminate()
            while left := [process for process in left if process.poll() is None]:
                waited = time.monotonic() - begun
                if self._spec.grace is not None and waited > self._spec.grace:
                    break
                if waited > SLOW and not said:
                    said = True
                    _announce_waiting(len(left), self._spec.grace)
                time.sleep(POLL)
        finally:
            for process in left:
                process.kill()
                process.wait()
            for worker in self._processes.values():
                worker.close()
            self._processes.clear()

    def _log(self, number: int) -> Path:
        return self._logs / f"worker-{number}.log"


def _announce_waiting(workers: int, grace: float | None) -> None:
    limit = "as long as that takes" if grace is None else f"up to {grace:g} s"
    sys.stderr.write(
        f"freezethaw: waiting for {workers} worker(s) to end their epoch and save, {limit}; "
        "Ctrl-C ends them at once, and epochs since their last checkpoint are trained again\n"
    )


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
