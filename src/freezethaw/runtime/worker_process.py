"""A worker process: carries out decisions until the study ends or it is asked to leave.

Started by hand as `freezethaw worker`, on any machine, or by the engine of local processes, which sends the training
through a pipe. All that a training prints goes into a file for each run.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from freezethaw.errors import FreezeThawError
from freezethaw.records import Checkpoints
from freezethaw.runtime import shipping
from freezethaw.runtime.keeper import CheckpointKeeper
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.worker import Habits, Worker
from freezethaw.study import Study
from freezethaw.trainers.protocol import Train, TrainingRun

# how a worker process ends: the study has ended; it was asked to leave; it cannot work (and worker.OVERDUE)
FINISHED, LEFT, BROKEN = 0, 3, 4
STORE = "FREEZETHAW_STORE"  # in the environment: the URL of the store
SAYS = "freezethaw worker: "
PATIENCE = 30.0  # seconds that a worker has to save and leave
LISTEN = 1.0  # seconds between two looks whether the parent lives


@dataclass(frozen=True)
class Place:
    """Where a study and its checkpoints are, and how its workers work."""

    store: str
    name: str
    folder: str
    checkpoints: Checkpoints
    epoch_limit: float | None = None


@dataclass(frozen=True)
class Served:
    """What a worker has done."""

    reason: str  # why it ended
    epochs: int  # that it trained
    left: bool  # whether it was asked to leave before the study ended


def work(place: Place, train: Train, leaving: Leaving) -> Served:
    """Train for a study that exists, until it ends or `leaving` says so."""
    study = Study.open(place.store, place.name)
    try:
        keeper = CheckpointKeeper(study.shared.stored, place.folder, place.checkpoints.gb)
        habits = Habits.of(place.checkpoints, place.epoch_limit)
        worker = Worker(study, logged(train, logs_in(place.folder)), keeper, habits, leaving)
        reason = worker.work()
    finally:
        study.close()
    return Served(reason, worker.epochs, leaving())


def arguments_of(place: Place) -> list[str]:
    """What `piped` reads, but for the store, which stays out of sight of other users of the machine."""
    words = {"name": place.name, "folder": place.folder, "gb": place.checkpoints.gb, "every": place.checkpoints.every}
    words |= {"in-memory": place.checkpoints.in_memory, "epoch-limit": place.epoch_limit}
    return [f"--{key}={value}" for key, value in words.items() if value is not None]


def piped(arguments: Sequence[str]) -> int:
    """A worker of the engine: its training comes through standard input. Gives the exit code."""
    parser = argparse.ArgumentParser(prog="freezethaw worker --pipe")
    for name, kind in (("name", str), ("folder", str), ("gb", float), ("every", int), ("in-memory", int)):
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--epoch-limit", type=float)
    args = parser.parse_args(arguments)
    kept = Checkpoints(args.folder, args.gb, args.every, args.in_memory)
    place = Place(os.environ[STORE], args.name, args.folder, kept, args.epoch_limit)
    leaving = Leaving()
    with on_signals(leaving):
        try:
            pipe = _own_input()
            train: Train = shipping.receive(pipe)
            threading.Thread(target=_watch_parent, args=(pipe.fileno(), os.getppid(), leaving), daemon=True).start()
            return LEFT if work(place, train, leaving).left else FINISHED
        except FreezeThawError as error:
            sys.stderr.write(f"{SAYS}{error}\n")
            return BROKEN


def logs_in(folder: str) -> Path:
    """Where workers write what the training prints. Checkpoints elsewhere than on this machine leave logs here."""
    return Path("logs" if "://" in folder else Path(folder) / "logs")


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
    """The parent never writes again: when its end of the pipe closes, it is gone. It may have left the pipe to others.

    A training that hangs cannot be asked to leave. Nobody else would end this process then.
    """
    while os.getppid() == parent:
        if select.select([pipe], [], [], LISTEN)[0] and not os.read(pipe, 1):
            break
    leaving.ask("the parent process is gone")
    time.sleep(PATIENCE)
    os._exit(LEFT)
