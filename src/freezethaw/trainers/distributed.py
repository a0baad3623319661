"""Training of one run in several processes, with torch.distributed.

def train(run):
    everywhere(run, train_rank, ranks=2)          # backend="nccl" on GPUs

def train_rank(run):                              # in each process; the process group is ready
    model = DistributedDataParallel(...)
    state = thawed(run, model=model, ...)
    for epoch in run.epochs():
        ...
        run.report(loss, save=state.save)

The loss of rank 0 is reported. Each rank saves and loads its own state and random generators; files that equal those of
rank 0 are stored once. Ranks are controlled by pipes, not by the process group: if one fails or dies, the others are
killed, even while they wait, and the run fails.
"""

from __future__ import annotations

import filecmp
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path
from typing import Any

import cloudpickle

from freezethaw import errors
from freezethaw.errors import TrainingError, extra
from freezethaw.trainers.protocol import Save, TrainingRun

with extra("torch"):
    import torch

FILE = "ranks.json"  # the number of ranks
EXIT_SECONDS = 30.0  # for a rank to exit when it is done
IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # handled by the worker


def everywhere(run: TrainingRun, train: Callable[[TrainingRun], object], ranks: int, backend: str = "gloo") -> None:
    """Call `train(run)` in `ranks` processes and forward their reports until the run is frozen."""
    with tempfile.TemporaryDirectory(prefix="freezethaw-ranks-") as home:
        group = _Ranks(run, cloudpickle.dumps(train), ranks, backend, Path(home))
        try:
            epochs = run.epochs()
            epoch = next(epochs, None)
            while epoch is not None:
                reports = group.receive("epoch")
                if any(report[0] != epoch for report in reports):
                    raise TrainingError(f"ranks are at different epochs: {[report[0] for report in reports]}")
                _, loss, metrics = reports[0]
                run.report(loss, save=group.save, **metrics)
                epoch = next(epochs, None)
                group.send("continue" if epoch is not None else "freeze", run.to_epoch)
            group.receive("done")
            group.end(EXIT_SECONDS)
        finally:
            group.end()


class _Ranks:
    """The processes of the ranks, seen from the worker."""

    def __init__(self, run: TrainingRun, train: bytes, ranks: int, backend: str, home: Path) -> None:
        if run.checkpoint is not None:
            before = json.loads((run.checkpoint / FILE).read_text(encoding="utf-8"))
            if before != ranks:
                raise TrainingError(
                    f"run {run.number} was trained with {before} ranks and cannot continue with {ranks}"
                )
        spawn = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        for rank in range(ranks):
            ours, theirs = spawn.Pipe()
            checkpoint = None if run.checkpoint is None else _checkpoint(run.checkpoint, rank, home)
            arguments = (run.number, dict(run.config), run.seed, run.from_epoch, checkpoint)
            group = (backend, f"file://{home / 'rendezvous'}", rank, ranks)
            process = spawn.Process(target=train_rank, args=(theirs, train, arguments, run.to_epoch, group))
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def send(self, *message: Any) -> None:
        """Send a message to all ranks."""
        for pipe in self._pipes:
            pipe.send(message)

    def receive(self, kind: str) -> list[Any]:
        """The next message of each rank; raises if one fails, dies or sends another kind of message."""
        found: dict[int, Any] = {}
        while len(found) < len(self._pipes):
            waiting = {pipe: rank for rank, pipe in enumerate(self._pipes) if rank not in found}
            ready = connection.wait(list(waiting))
            for rank in [rank for pipe, rank in waiting.items() if pipe in ready]:
                try:
                    found_kind, *content = self._pipes[rank].recv()
                except EOFError:
                    self._processes[rank].join()
                    raise TrainingError(f"rank {rank} died, exit code {self._processes[rank].exitcode}") from None
                if found_kind == "failed":
                    raise _error(content[0], f"rank {rank}: {content[0]}: {content[1]}")
                if found_kind != kind:
                    raise TrainingError(f"rank {rank} ended while others train: all ranks must loop over run.epochs()")
                found[rank] = content
        return [found[rank] for rank in sorted(found)]

    def save(self, folder: Path) -> None:
        """Save each rank in its own folder; remove files that equal those of rank 0."""
        (folder / FILE).write_text(json.dumps(len(self._pipes)), encoding="utf-8")
        for rank, pipe in enumerate(self._pipes):
            (folder / f"rank-{rank}").mkdir()
            pipe.send(("save", folder / f"rank-{rank}"))
        self.receive("saved")
        first = folder / "rank-0"
        for rank in range(1, len(self._pipes)):
            for file in (folder / f"rank-{rank}").iterdir():
                twin = first / file.name
                if file.is_file() and twin.is_file() and filecmp.cmp(file, twin, shallow=False):
                    file.unlink()

    def end(self, seconds: float = 0.0) -> None:
        """Kill all processes, after giving them some seconds to exit."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(seconds)
            process.kill()
            process.join()


def _checkpoint(saved: Path, rank: int, home: Path) -> Path:
    """The files saved by a rank, including those shared with rank 0."""
    shutil.copytree(saved / "rank-0", home / f"load-{rank}")
    if (saved / f"rank-{rank}").is_dir():  # empty folders are not stored
        shutil.copytree(saved / f"rank-{rank}", home / f"load-{rank}", dirs_exist_ok=True)
    return home / f"load-{rank}"


def _error(kind: str, text: str) -> TrainingError:
    memory = kind in ("MemoryError", "OutOfMemoryError")
    found = errors.OutOfMemory if memory else getattr(errors, kind, TrainingError)
    return found(text) if issubclass(found, TrainingError) else TrainingError(text)


# In the process of a rank.


def train_rank(
    pipe: Any, train: bytes, arguments: tuple[Any, ...], to_epoch: int, group: tuple[str, str, int, int]
) -> None:
    """The main function of a rank; `pipe` is connected to the worker."""
    for name in IGNORED_SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    threading.Thread(target=_exit_with_worker, daemon=True).start()
    backend, init_method, rank, ranks = group
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}

    def advance(epoch: int, loss: float, save: Save | None, metrics: dict[str, Any]) -> bool:
        pipe.send(("epoch", epoch, float(loss), {name: float(value) for name, value in metrics.items()}))
        while True:
            command, value = pipe.recv()
            if command != "save":
                run.to_epoch = value
                return bool(command == "continue")
            if save is not None:
                save(value)
            pipe.send(("saved",))

    number, config, seed, from_epoch, checkpoint = arguments
    run = TrainingRun(number, config, seed, from_epoch, checkpoint, advance, to_epoch)
    try:
        torch.distributed.init_process_group(backend, init_method=init_method, rank=rank, world_size=ranks)
        cloudpickle.loads(train)(run)
        torch.distributed.destroy_process_group()
    except Exception as error:
        pipe.send(("failed", type(error).__name__, str(error)))
    else:
        pipe.send(("done",))
    pipe.poll(EXIT_SECONDS)  # until the worker has read the message


def _exit_with_worker() -> None:
    worker = multiprocessing.parent_process()
    if worker is not None:
        connection.wait([worker.sentinel])
        os._exit(1)
