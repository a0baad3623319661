"""Local processes: each worker a fresh `python -m freezethaw worker`, which reads the training function from a pipe.

A worker that dies is replaced; its run is taken over from its last checkpoint. When this process dies, the workers
notice that their pipe is closed, save and leave.
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
from freezethaw.runtime import shipping
from freezethaw.runtime.crew import PATIENCE, Toll
from freezethaw.runtime.deaths import MemoryKills, cause, manner
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.worker import FINISHED as ENDED
from freezethaw.runtime.worker import OVERDUE, check_hope
from freezethaw.runtime.worker_process import BROKEN, FINISHED, LEFT, SAYS, STORE, Place, arguments_of, logs_in
from freezethaw.store import Process
from freezethaw.study import Study
from freezethaw.trainers.protocol import Train

POLL = 0.1


class LocalEngine:
    """So many worker processes on this machine."""

    def __init__(self, place: Place, train: Train, workers: int) -> None:
        self._place, self._count = place, workers
        self._parcel = shipping.parcel(train)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # by their number, from 1
        self._gpus, self._memory_kills, self._host = gpus(), MemoryKills(), Process.current().host

    def run(self, study: Study, look: Callable[[], None]) -> str:
        """Until the study ends or a signal asks to leave; returns why. `look` is called now and then."""
        leaving, toll = Leaving(), Toll(study)
        with on_signals(leaving), self._running():
            while self._processes and not leaving():
                look()
                self._memory_kills.look()
                for number, process in self._ended():
                    if process.returncode != FINISHED and not leaving():
                        self._settle(study, toll, number, process)
                        self._start(number)
                time.sleep(POLL)
        if leaving():
            raise KeyboardInterrupt(leaving.why)
        return study.shared.last_event(ENDED) or "all workers have ended"

    def _settle(self, study: Study, toll: Toll, number: int, process: subprocess.Popen[bytes]) -> None:
        """Write down why a worker ended before the study did; raises StudyError where another would fare no better."""
        code = process.returncode
        if code == BROKEN:
            raise StudyError(self._last_words(number))
        if code == OVERDUE:
            check_hope(study)
        elif code != LEFT:
            why = cause(code, self._memory_kills.lately())
            holder = f"process {process.pid} on {self._host}"
            toll.add(number, holder, manner(code, why), why, str(self._log(number)))

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
        command = [sys.executable, "-m", "freezethaw", "worker", "--pipe", *arguments_of(self._place)]
        environment = os.environ | {STORE: self._place.store}
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[(number - 1) % len(self._gpus)]
        self._log(number).parent.mkdir(parents=True, exist_ok=True)
        with self._log(number).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        self._processes[number] = process
        assert process.stdin is not None  # noqa: S101 - asked for above
        with contextlib.suppress(BrokenPipeError):  # it died at once: `run` will see that
            process.stdin.write(self._parcel)
            process.stdin.flush()

    def _leave(self) -> None:
        """Ask all to save and leave; kill whoever does not."""
        for process in self._processes.values():
            process.terminate()
        end = time.monotonic() + PATIENCE
        for process in self._processes.values():
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _close(process)
        self._processes.clear()

    def _log(self, number: int) -> Path:
        return logs_in(self._place.folder) / f"worker-{number}.log"

    def _last_words(self, number: int) -> str:
        """What a worker wrote before it gave up."""
        lines = self._log(number).read_text(encoding="utf-8", errors="replace").splitlines()
        said = next((line.removeprefix(SAYS) for line in reversed(lines) if line.startswith(SAYS)), "")
        return said or f"worker {number} cannot work; see {self._log(number)}"


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def gpus() -> list[str]:
    """The GPUs of this machine that may be used, one for each worker in turn."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [g for g in allowed.split(",") if g]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    found = subprocess.run([tool, "--list-gpus"], capture_output=True, text=True, check=False)  # noqa: S603 - found above
    return [str(i) for i, line in enumerate(found.stdout.splitlines()) if line.strip()]
