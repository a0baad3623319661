"""Local processes: each worker a fresh `python -m freezethaw worker`, which reads the training function from a pipe.

A worker that dies is replaced; its run is taken over from its last checkpoint. When this process dies, the workers
notice that their pipe is closed, save and leave.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import select
import shutil
import signal
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
from freezethaw.runtime.worker import FINISHED as ENDED
from freezethaw.runtime.worker import Habits, Train, Worker
from freezethaw.study import Study
from freezethaw.trainers.protocol import TrainingRun

# how a worker process ends: the study has ended; it was asked to leave; it cannot work
FINISHED, LEFT, BROKEN = 0, 3, 4
STORE = "FREEZETHAW_STORE"  # in the environment: the URL of the store
PATIENCE = 30.0  # seconds that workers have to save and leave
MOST_DEATHS = 20  # of workers in a row without an epoch between
POLL = 0.1
SAYS = "freezethaw worker: "
LISTEN = 1.0  # seconds between two looks whether the parent lives


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
        self._place, self._count = place, workers
        self._parcel = shipping.parcel(train)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # by their number, from 1
        self._gpus = gpus()

    def run(self, study: Study, look: Callable[[], None]) -> str:
        """Until the study ends or a signal asks to leave; returns why. `look` is called now and then."""
        leaving = Leaving()
        deaths, epochs = 0, _epochs(study)
        with on_signals(leaving), self._running():
            while self._processes and not leaving():
                look()
                for number, code in self._ended():
                    if code == FINISHED or leaving():
                        continue
                    if code == BROKEN:
                        raise StudyError(self._last_words(number))
                    if code != LEFT:
                        study.shared.stored.add_event("worker died", f"worker {number} {_manner(code)}")
                        now = _epochs(study)
                        deaths, epochs = (deaths + 1 if now == epochs else 1), now
                    if deaths > MOST_DEATHS:
                        raise StudyError(
                            f"{deaths} worker processes died without one epoch between, the last one "
                            f"{_manner(code)}; see {self._log(number)}"
                        )
                    self._start(number)
                time.sleep(POLL)
        if leaving():
            raise KeyboardInterrupt(leaving.why)
        return study.shared.last_event(ENDED) or "all workers have ended"

    def _ended(self) -> list[tuple[int, int]]:
        """Workers that have ended since, and how."""
        found = [(number, process.poll()) for number, process in self._processes.items()]
        ended = [(number, code) for number, code in found if code is not None]
        for number, _ in ended:
            _close(self._processes.pop(number))
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
        p, c = self._place, self._place.checkpoints
        command = [sys.executable, "-m", "freezethaw", "worker", "--pipe", "--name", p.name]
        command += ["--folder", p.folder]
        command += [] if c.gb is None else ["--gb", str(c.gb)]
        command += [] if c.every is None else ["--every", str(c.every)]
        command += ["--in-memory", str(c.in_memory)]
        environment = os.environ | {STORE: p.store}  # not among the arguments, which all users of the machine can see
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


def _manner(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed by {name}" + (" (out of memory?)" if -code == signal.SIGKILL else "")


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
    parser.add_argument("--store", default=os.environ.get(STORE), help=f"URL; {STORE} unless said")
    parser.add_argument("--name", default="study")
    parser.add_argument(
        "--folder", default="checkpoints", help="of all checkpoints: a path, or a URL that fsspec knows"
    )
    parser.add_argument("--gb", type=float, help="disk budget of the checkpoints")
    parser.add_argument("--every", type=int, help="epochs between checkpoints of a run that is not frozen")
    parser.add_argument("--in-memory", type=int, default=2, help="frozen runs that stay in memory")
    parser.add_argument("--pipe", action="store_true", help="read the training function from standard input")
    args = parser.parse_args(arguments)
    if args.pipe == bool(args.train):
        parser.error("give the training function as module:function, or --pipe")
    if not args.store:
        parser.error(f"say where the study is: --store URL, or {STORE} in the environment")
    leaving = Leaving()
    with on_signals(leaving):
        try:
            return _work(args, leaving)
        except FreezeThawError as error:
            sys.stderr.write(f"{SAYS}{error}\n")
            return BROKEN


def _work(args: argparse.Namespace, leaving: Leaving) -> int:
    if args.pipe:
        pipe = _own_input()
        train: Train = shipping.receive(pipe)
        threading.Thread(target=_watch_parent, args=(pipe.fileno(), os.getppid(), leaving), daemon=True).start()
    else:
        from freezethaw.trainers.importing import named

        train = named(args.train)
    checkpoints = Checkpoints(args.folder, args.gb, args.every, args.in_memory)
    study = Study.open(args.store, args.name)
    try:
        keeper = CheckpointKeeper(study.shared.stored, args.folder, args.gb)
        Worker(study, logged(train, logs_in(args.folder)), keeper, Habits.of(checkpoints), leaving).work()
    finally:
        study.close()
    return LEFT if leaving() else FINISHED


def _own_input() -> io.BufferedReader:
    """The pipe from the parent, out of the training's way: whoever reads standard input finds it empty."""
    pipe = os.fdopen(os.dup(0), "rb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return pipe


def logged(train: Train, folder: Path) -> Train:
    """The same training, with all that it and its children print in a file for each run."""

    def train_logged(run: TrainingRun) -> object:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"run-{run.number}.log").open("ab") as log, _printing_to(log.fileno()):
            return train(run)

    return train_logged


@contextlib.contextmanager
def _printing_to(file: int) -> Iterator[None]:
    """Standard output and error go to this file descriptor meanwhile."""
    streams = (sys.stdout, sys.stderr)
    before = [os.dup(stream.fileno()) for stream in streams]
    try:
        for stream in streams:
            stream.flush()
            os.dup2(file, stream.fileno())
        yield
    finally:
        for stream, number in zip(streams, before, strict=True):
            stream.flush()
            os.dup2(number, stream.fileno())
            os.close(number)


def _watch_parent(pipe: int, parent: int, leaving: Leaving) -> None:
    """The parent never writes again: when its end of the pipe closes, it is gone. It may have left the pipe to others.

    A training that hangs cannot be asked to leave. Nobody else would end this process then.
    """
    while os.getppid() == parent:
        if select.select([pipe], [], [], LISTEN)[0] and not os.read(pipe, 1):
            break
    leaving.ask("the parent process is gone")
    time.sleep(PATIENCE)
    os._exit(LEFT)


def _epochs(study: Study) -> int:
    return sum(run.epoch for run in study.runs)
