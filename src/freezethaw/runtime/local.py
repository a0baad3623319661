"""Local processes: each worker a fresh `python -m freezethaw worker`, which reads the training function from a pipe.

A worker that dies is replaced; its run is taken over from its last checkpoint. When this process dies, the workers
notice that their pipe is closed, save and leave.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from freezethaw.errors import FreezeThawError, StudyError
from freezethaw.records import Checkpoints
from freezethaw.runtime import shipping
from freezethaw.runtime.keeper import CheckpointKeeper
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.worker import FAILED, Habits, Train, Worker
from freezethaw.runtime.worker import FINISHED as ENDED
from freezethaw.study import Study

FINISHED, LEFT, BROKEN = (
    0,
    3,
    4,
)  # how a worker process ends: the study has ended; it was asked to leave; it cannot work
PATIENCE = 30.0  # seconds that workers have to save and leave
MOST_DEATHS = 20  # of workers in a row without an epoch between
POLL = 0.1


@dataclass(frozen=True)
class Place:
    """Where a study and its checkpoints are."""

    store: str
    name: str
    folder: str
    checkpoints: Checkpoints


class LocalEngine:
    """So many worker processes on this machine."""

    def __init__(self, place: Place, train: Train, workers: int) -> None:
        self._place, self._train, self._count = place, train, workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._gpus = gpus()

    def run(self, study: Study, look: Callable[[], None]) -> str:
        """Until the study ends or a signal asks to leave; returns why. `look` is called now and then."""
        leaving = Leaving()
        deaths, epochs = 0, _epochs(study)
        with on_signals(leaving), self._running():
            while True:
                look()
                ended = [p for p in self._processes if p.poll() is not None]
                for process in ended:
                    self._processes.remove(process)
                    if process.returncode == BROKEN:
                        raise StudyError(_last_words(study))
                    if process.returncode != FINISHED and not leaving():
                        study.shared.stored.add_event(
                            "worker died", f"a worker process ended with {process.returncode}"
                        )
                        now = _epochs(study)
                        deaths, epochs = (deaths + 1 if now == epochs else 1), now
                        if deaths > MOST_DEATHS:
                            raise StudyError(
                                f"{deaths} worker processes died without one epoch between; see the logs in "
                                f"{logs_in(self._place.folder)}"
                            )
                        self._start(len(self._processes))
                if leaving():
                    self._leave()
                    break
                if not self._processes:
                    break
                time.sleep(POLL)
        if leaving():
            raise KeyboardInterrupt(leaving.why)
        return study.shared.last_event(ENDED) or "all workers have ended"

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        try:
            for place in range(self._count):
                self._start(place)
            yield
        finally:
            self._leave()

    def _start(self, place: int) -> None:
        logs = logs_in(self._place.folder)
        logs.mkdir(parents=True, exist_ok=True)
        p, c = self._place, self._place.checkpoints
        command = [sys.executable, "-m", "freezethaw", "worker", "--pipe", "--store", p.store, "--name", p.name]
        command += ["--folder", p.folder]
        command += [] if c.gb is None else ["--gb", str(c.gb)]
        command += [] if c.every is None else ["--every", str(c.every)]
        environment = dict(os.environ)
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[place % len(self._gpus)]
        with (logs / f"worker-{place + 1}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        assert process.stdin is not None  # noqa: S101 - asked for above
        with contextlib.suppress(BrokenPipeError):  # it died at once: `run` will see that
            shipping.send(self._train, process.stdin)
        self._processes.append(process)

    def _leave(self) -> None:
        """Ask all to save and leave; kill whoever does not."""
        for process in self._processes:
            process.terminate()
        end = time.monotonic() + PATIENCE
        for process in self._processes:
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for process in self._processes:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
        self._processes.clear()


def logs_in(folder: str) -> Path:
    """Where workers write what the training prints. Checkpoints elsewhere than on this machine leave logs here."""
    return Path("logs" if "://" in folder else Path(folder) / "logs")


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


def worker_main(arguments: Sequence[str]) -> int:
    """A worker process: `freezethaw worker`."""
    parser = argparse.ArgumentParser(
        prog="freezethaw worker",
        description="Join a study and train for it until it ends. SIGTERM, SIGUSR1 and Ctrl-C save, freeze and leave.",
        epilog="example: freezethaw worker --store postgresql+psycopg://me@host/tuning --name mnist train.py:train",
    )
    parser.add_argument("train", nargs="?", help="module:function or file.py:function; not with --pipe")
    parser.add_argument("--store", required=True)
    parser.add_argument("--name", default="study")
    parser.add_argument(
        "--folder", default="checkpoints", help="of all checkpoints: a path, or a URL that fsspec knows"
    )
    parser.add_argument("--gb", type=float, help="disk budget of the checkpoints")
    parser.add_argument("--every", type=int, help="epochs between checkpoints of a run that is not frozen")
    parser.add_argument("--pipe", action="store_true", help="read the training function from standard input")
    args = parser.parse_args(arguments)
    if args.pipe == bool(args.train):
        parser.error("give the training function as module:function, or --pipe")
    leaving = Leaving()
    with on_signals(leaving):
        try:
            return _work(args, leaving)
        except FreezeThawError as error:
            sys.stderr.write(f"freezethaw worker: {error}\n")
            return BROKEN


def _work(args: argparse.Namespace, leaving: Leaving) -> int:
    if args.pipe:
        train: Train = shipping.receive(sys.stdin.buffer)
        threading.Thread(target=_watch_parent, args=(leaving,), daemon=True).start()
    else:
        from freezethaw.trainers.importing import named

        train = named(args.train)
    checkpoints = Checkpoints(args.folder, args.gb, args.every)
    study = Study.open(args.store, args.name)
    try:
        keeper = CheckpointKeeper(study.shared.stored, args.folder, args.gb)
        Worker(study, train, keeper, Habits.of(checkpoints), leaving).work()
    finally:
        study.close()
    return LEFT if leaving() else FINISHED


def _watch_parent(leaving: Leaving) -> None:
    """The parent never writes again: when its end of the pipe closes, it is gone."""
    while os.read(sys.stdin.fileno(), 1):  # not through the buffer, whose lock would be held when the process ends
        pass
    leaving.ask("the parent process is gone")


def _epochs(study: Study) -> int:
    return sum(run.epoch for run in study.runs)


def _last_words(study: Study) -> str:
    said = study.shared.last_event(FAILED)
    return f"a worker cannot work. The last run that failed: {said}" if said else "a worker cannot work; see its log"
