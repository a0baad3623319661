"""A worker process: trains until the study ends or it is asked to stop.

It is started by hand as `freezethaw worker`, on any machine, or by the engine of local processes, which sends the
training function through a pipe. The output of a training is written to a file for each run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from freezethaw.errors import FreezeThawError
from freezethaw.records import Checkpoints
from freezethaw.runtime import serialization
from freezethaw.runtime.checkpoints import CheckpointManager, home_of
from freezethaw.runtime.signals import TIMED_OUT, Leaving, on_signals
from freezethaw.runtime.worker import Worker, WorkerOptions
from freezethaw.store import Storage
from freezethaw.study import StudySession
from freezethaw.trainers.protocol import Train, TrainingRun

# how a worker ended: the study has ended; it was asked to stop; it cannot work (and signals.TIMED_OUT). They are
# exit codes too, but a training may exit with any of them, so only what the worker itself sends counts.
FINISHED, LEFT, BROKEN = 0, 3, 4
STORE = "FREEZETHAW_STORE"  # in the environment: the URL of the store
LISTEN = 1.0  # seconds between two checks whether the parent is alive


@dataclass(frozen=True)
class WorkerSpec:
    """Which study a worker works on, where its checkpoints are, and its options."""

    store: str
    name: str
    folder: str
    checkpoints: Checkpoints
    epoch_limit: float | None = None
    grace: float | None = None  # seconds to save and leave; None: as long as it takes


@dataclass(frozen=True)
class Ending:
    """How a worker ended, as sent by itself. A worker that sent nothing died."""

    code: int
    message: str = ""

    def send(self, pipe: int) -> None:
        """Send it to the process that started this one."""
        with contextlib.suppress(OSError):  # the process is gone
            os.write(pipe, json.dumps([self.code, self.message[:10_000]]).encode())

    @classmethod
    def receive(cls, pipe: int) -> Ending | None:
        """What an ended worker sent; a process that a training left behind may keep the pipe open."""
        os.set_blocking(pipe, False)
        try:
            return cls(*json.loads(os.read(pipe, 1 << 16)))
        except (OSError, ValueError, TypeError):
            return None


@dataclass(frozen=True)
class WorkerResult:
    """What a worker did."""

    reason: str  # why it ended
    epochs: int  # that it trained
    left: bool  # whether it was asked to stop before the study ended


def work(
    spec: WorkerSpec, train: Train, leaving: Leaving, timed_out: Callable[[], object] = lambda: None
) -> WorkerResult:
    """Train for a study that exists, until it ends or `leaving` says so.

    `timed_out` is called before the process ends because an epoch took too long.
    """
    session = StudySession.open(spec.store, spec.name, known=True)
    try:
        manager = CheckpointManager(session.storage, spec.folder, spec.checkpoints.gb)
        options = WorkerOptions.of(spec.checkpoints, spec.epoch_limit, spec.grace)
        write = logged(train, logs_in(spec.folder, session.storage))
        worker = Worker(session, write, manager, options, leaving, timed_out=timed_out)
        reason = worker.work()
    finally:
        session.close()
    return WorkerResult(reason, worker.epochs, leaving())


def arguments_of(spec: WorkerSpec) -> list[str]:
    """What `work_from_pipe` reads, except the store's URL, which other users of the machine must not see."""
    words = {"name": spec.name, "folder": spec.folder, "gb": spec.checkpoints.gb, "every": spec.checkpoints.every}
    words |= {"in-memory": spec.checkpoints.in_memory, "epoch-limit": spec.epoch_limit, "grace": spec.grace}
    return [f"--{key}={value}" for key, value in words.items() if value is not None]


def work_from_pipe(arguments: Sequence[str]) -> int:
    """Run a worker of the engine, which receives its training through standard input; returns the exit code."""
    parser = argparse.ArgumentParser(prog="freezethaw worker --pipe")
    for name, kind in (("name", str), ("folder", str), ("gb", float), ("every", int), ("in-memory", int)):
        parser.add_argument(f"--{name}", type=kind)
    for name in ("epoch-limit", "grace"):
        parser.add_argument(f"--{name}", type=float)
    parser.add_argument("--ending", type=int)
    args = parser.parse_args(arguments)
    os.set_inheritable(args.ending, False)
    kept = Checkpoints(args.folder, args.gb, args.every, args.in_memory)
    spec = WorkerSpec(os.environ[STORE], args.name, args.folder, kept, args.epoch_limit, args.grace)
    ending = _work_from_pipe(spec, args.ending)
    ending.send(args.ending)
    return ending.code


def _work_from_pipe(spec: WorkerSpec, ending: int) -> Ending:
    leaving = Leaving()
    with on_signals(leaving):
        try:
            pipe = _own_input()
            train: Train = serialization.receive(pipe)
            watched = (pipe.fileno(), os.getppid(), leaving, spec.grace)
            threading.Thread(target=_watch_parent, args=watched, daemon=True).start()
            result = work(spec, train, leaving, timed_out=lambda: Ending(TIMED_OUT).send(ending))
            return Ending(LEFT if result.left else FINISHED)
        except FreezeThawError as error:
            return Ending(BROKEN, str(error))


def logs_in(folder: str, study: Storage) -> Path:
    """The folder of a study's logs: beside its checkpoints, or in the current folder if those are remote."""
    return Path("logs" if "://" in folder else Path(folder) / "logs") / home_of(study)


def _own_input() -> io.BufferedReader:
    """The pipe from the parent, moved away from standard input, which is empty for the training."""
    pipe = os.fdopen(os.dup(0), "rb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return pipe


def logged(train: Train, folder: Path) -> Train:
    """The same training, with its output and that of its child processes written to a file for each run."""

    def train_logged(run: TrainingRun) -> object:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"run-{run.number}.log").open("ab") as log, _printing_to(log.fileno()):
            try:
                return train(run)
            except Exception:
                traceback.print_exc()
                raise

    return train_logged


@contextlib.contextmanager
def _printing_to(file: int) -> Iterator[None]:
    """Redirect standard output and error to this file descriptor."""
    streams = {1: sys.stdout, 2: sys.stderr}
    before = {number: os.dup(number) for number in streams}
    try:
        for number, stream in streams.items():
            stream.flush()
            os.dup2(file, number)
        yield
    finally:
        for number, stream in streams.items():
            stream.flush()
            os.dup2(before[number], number)
            os.close(before[number])


def _watch_parent(pipe: int, parent: int, leaving: Leaving, grace: float | None) -> None:
    """Stop when the parent is gone: its end of the pipe closes, or this process has another parent.

    With `grace`, end a training that does not return: nothing else would.
    """
    while os.getppid() == parent:
        if select.select([pipe], [], [], LISTEN)[0] and not os.read(pipe, 1):
            break
    leaving.ask("the parent process is gone")
    if grace is not None:
        time.sleep(grace)
        os._exit(LEFT)
