"""A worker process: trains until the study ends or it is asked to stop.

It is started by hand as `freezethaw worker`, on any machine, or by the engine of local processes, which sends the
training function through a pipe. Everything that a training prints goes into a file for each run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from freezethaw.errors import FreezeThawError
from freezethaw.records import Checkpoints
from freezethaw.runtime import serialization
from freezethaw.runtime.checkpoints import CheckpointManager, home_of
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.worker import Worker, WorkerOptions
from freezethaw.runtime.worker_failures import GRACE_SECONDS
from freezethaw.store import Storage
from freezethaw.study import StudySession
from freezethaw.trainers.protocol import Train, TrainingRun

# exit codes: the study has ended; the worker was asked to stop; it cannot work (and epoch_timeout.TIMED_OUT)
FINISHED, LEFT, BROKEN = 0, 3, 4
STORE = "FREEZETHAW_STORE"  # in the environment: the URL of the store
SAYS = "freezethaw worker: "
LISTEN = 1.0  # seconds between two checks whether the parent is alive


@dataclass(frozen=True)
class WorkerSpec:
    """Which study a worker works on, where its checkpoints are, and its options."""

    store: str
    name: str
    folder: str
    checkpoints: Checkpoints
    epoch_limit: float | None = None


@dataclass(frozen=True)
class WorkerResult:
    """What a worker has done."""

    reason: str  # why it ended
    epochs: int  # that it trained
    left: bool  # whether it was asked to stop before the study ended


def work(spec: WorkerSpec, train: Train, leaving: Leaving) -> WorkerResult:
    """Train for a study that exists, until it ends or `leaving` says so."""
    session = StudySession.open(spec.store, spec.name)
    try:
        manager = CheckpointManager(session.storage, spec.folder, spec.checkpoints.gb)
        options = WorkerOptions.of(spec.checkpoints, spec.epoch_limit)
        worker = Worker(session, logged(train, logs_in(spec.folder, session.storage)), manager, options, leaving)
        reason = worker.work()
    finally:
        session.close()
    return WorkerResult(reason, worker.epochs, leaving())


def arguments_of(spec: WorkerSpec) -> list[str]:
    """What `piped` reads, except the store, which stays hidden from other users of the machine."""
    words = {"name": spec.name, "folder": spec.folder, "gb": spec.checkpoints.gb, "every": spec.checkpoints.every}
    words |= {"in-memory": spec.checkpoints.in_memory, "epoch-limit": spec.epoch_limit}
    return [f"--{key}={value}" for key, value in words.items() if value is not None]


def piped(arguments: Sequence[str]) -> int:
    """A worker of the engine, whose training comes through standard input; returns the exit code."""
    parser = argparse.ArgumentParser(prog="freezethaw worker --pipe")
    for name, kind in (("name", str), ("folder", str), ("gb", float), ("every", int), ("in-memory", int)):
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--epoch-limit", type=float)
    args = parser.parse_args(arguments)
    kept = Checkpoints(args.folder, args.gb, args.every, args.in_memory)
    spec = WorkerSpec(os.environ[STORE], args.name, args.folder, kept, args.epoch_limit)
    leaving = Leaving()
    with on_signals(leaving):
        try:
            pipe = _own_input()
            train: Train = serialization.receive(pipe)
            threading.Thread(target=_watch_parent, args=(pipe.fileno(), os.getppid(), leaving), daemon=True).start()
            return LEFT if work(spec, train, leaving).left else FINISHED
        except FreezeThawError as error:
            sys.stderr.write(f"{SAYS}{error}\n")
            return BROKEN


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
    """The same training, with everything that it and its children print in a file for each run."""

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


def _watch_parent(pipe: int, parent: int, leaving: Leaving) -> None:
    """Stop when the parent is gone: its end of the pipe closes, or this process has another parent.

    A training that hangs cannot be asked to stop, and nobody else would end this process then.
    """
    while os.getppid() == parent:
        if select.select([pipe], [], [], LISTEN)[0] and not os.read(pipe, 1):
            break
    leaving.ask("the parent process is gone")
    time.sleep(GRACE_SECONDS)
    os._exit(LEFT)
