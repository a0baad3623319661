"""Several processes that train one run together, with torch.distributed.

def train(run):
    everywhere(run, train_rank, ranks=2)          # backend="nccl" on GPUs

def train_rank(run):                              # in each process; the process group is ready
    model = DistributedDataParallel(...)
    state = thawed(run, model=model, ...)
    for epoch in run.epochs():
        ...
        run.report(loss, save=state.save)

The loss of rank 0 counts, and all ranks are told whether to go on. Each saves and loads its own state, with its random
generators; files that are the same as those of rank 0 are kept once. Ranks are told by a pipe of their own, not by the
process group: where one of them fails or dies the others are ended, however they wait, and the run has failed.
"""

from __future__ import annotations

import filecmp
import json
import multiprocessing
import shutil
import tempfile
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path
from typing import Any

import cloudpickle

from freezethaw import errors
from freezethaw.errors import TrainingError
from freezethaw.trainers.protocol import TrainingRun
from freezethaw.trainers.rank import PATIENCE, train_rank

FILE = "ranks.json"  # how many there are


def everywhere(run: TrainingRun, train: Callable[[TrainingRun], object], ranks: int, backend: str = "gloo") -> None:
    """Call `train(run)` in so many processes, and carry their reports until the run is frozen."""
    with tempfile.TemporaryDirectory(prefix="freezethaw-ranks-") as home:
        group = _Ranks(run, cloudpickle.dumps(train), ranks, backend, Path(home))
        try:
            epochs = run.epochs()
            epoch = next(epochs, None)
            while epoch is not None:
                reports = group.answers("epoch")
                if any(report[0] != epoch for report in reports):
                    raise TrainingError(f"ranks are at different epochs: {[report[0] for report in reports]}")
                _, loss, metrics = reports[0]
                run.report(loss, save=group.save, **metrics)
                epoch = next(epochs, None)
                group.tell("go on" if epoch is not None else "freeze", run.to_epoch)
            group.answers("done")
            group.end(PATIENCE)
        finally:
            group.end()


class _Ranks:
    """The processes, as the one that started them sees them."""

    def __init__(self, run: TrainingRun, train: bytes, ranks: int, backend: str, home: Path) -> None:
        if run.checkpoint is not None:
            before = json.loads((run.checkpoint / FILE).read_text(encoding="utf-8"))
            if before != ranks:
                raise TrainingError(f"run {run.number} was trained by {before} ranks, and cannot go on with {ranks}")
        spawn = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        for rank in range(ranks):
            ours, theirs = spawn.Pipe()
            checkpoint = None if run.checkpoint is None else _checkpoint(run.checkpoint, rank, home)
            told = (run.number, dict(run.config), run.seed, run.from_epoch, checkpoint)
            meeting = (backend, f"file://{home / 'meeting'}", rank, ranks)
            process = spawn.Process(target=train_rank, args=(theirs, train, told, run.to_epoch, meeting))
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def tell(self, *what: Any) -> None:
        """Tell all of them."""
        for pipe in self._pipes:
            pipe.send(what)

    def answers(self, kind: str) -> list[Any]:
        """One of each rank, whoever comes first; raises where one fails, dies or says something else."""
        found: dict[int, Any] = {}
        while len(found) < len(self._pipes):
            waiting = {pipe: rank for rank, pipe in enumerate(self._pipes) if rank not in found}
            ready = connection.wait(list(waiting))
            for rank in [rank for pipe, rank in waiting.items() if pipe in ready]:
                try:
                    said, *answer = self._pipes[rank].recv()
                except EOFError:
                    self._processes[rank].join()
                    raise TrainingError(f"rank {rank} died, exit code {self._processes[rank].exitcode}") from None
                if said == "failed":
                    raise _error(answer[0], f"rank {rank}: {answer[0]}: {answer[1]}")
                if said != kind:
                    raise TrainingError(f"rank {rank} ended while others train: all loop over run.epochs()")
                found[rank] = answer
        return [found[rank] for rank in sorted(found)]

    def save(self, folder: Path) -> None:
        """Each rank into a folder of its own; what is the same as rank 0's goes."""
        (folder / FILE).write_text(json.dumps(len(self._pipes)), encoding="utf-8")
        for rank, pipe in enumerate(self._pipes):
            (folder / f"rank-{rank}").mkdir()
            pipe.send(("save", folder / f"rank-{rank}"))
        self.answers("saved")
        first = folder / "rank-0"
        for rank in range(1, len(self._pipes)):
            for file in (folder / f"rank-{rank}").iterdir():
                twin = first / file.name
                if file.is_file() and twin.is_file() and filecmp.cmp(file, twin, shallow=False):
                    file.unlink()

    def end(self, seconds: float = 0.0) -> None:
        """End them all; those who are done have some seconds to leave by themselves."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(seconds)
            process.kill()
            process.join()


def _checkpoint(saved: Path, rank: int, home: Path) -> Path:
    """What a rank saved, with what it shared with rank 0."""
    shutil.copytree(saved / "rank-0", home / f"load-{rank}")
    if (saved / f"rank-{rank}").is_dir():  # a folder that would be empty is not kept
        shutil.copytree(saved / f"rank-{rank}", home / f"load-{rank}", dirs_exist_ok=True)
    return home / f"load-{rank}"


def _error(kind: str, text: str) -> TrainingError:
    memory = kind in ("MemoryError", "OutOfMemoryError")
    found = errors.OutOfMemory if memory else getattr(errors, kind, TrainingError)
    return found(text) if issubclass(found, TrainingError) else TrainingError(text)
