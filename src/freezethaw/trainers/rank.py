"""One of several processes that train a run together: what `distributed` starts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing import connection
from typing import Any

import cloudpickle

from freezethaw.trainers.needing import extra
from freezethaw.trainers.protocol import Save, TrainingRun

with extra("torch"):
    import torch

PATIENCE = 30.0  # seconds that a rank has to leave when it is done
MEANT_FOR_THE_WORKER = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # it says to its ranks what to do


def train_rank(
    pipe: Any, train: bytes, told: tuple[Any, ...], to_epoch: int, meeting: tuple[str, str, int, int]
) -> None:
    """Train as one of several; `pipe` leads to the worker, and `train` comes from there."""
    for name in MEANT_FOR_THE_WORKER:
        signal.signal(name, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    backend, place, rank, ranks = meeting
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}

    def advance(epoch: int, loss: float, save: Save | None, metrics: dict[str, Any]) -> bool:
        pipe.send(("epoch", epoch, float(loss), {name: float(value) for name, value in metrics.items()}))
        while True:
            what, value = pipe.recv()
            if what != "save":
                run.to_epoch = value
                return bool(what == "go on")
            if save is not None:
                save(value)
            pipe.send(("saved",))

    number, config, seed, from_epoch, checkpoint = told
    run = TrainingRun(number, config, seed, from_epoch, checkpoint, advance, to_epoch)
    try:
        torch.distributed.init_process_group(backend, init_method=place, rank=rank, world_size=ranks)
        cloudpickle.loads(train)(run)
        torch.distributed.destroy_process_group()
    except Exception as error:
        pipe.send(("failed", type(error).__name__, str(error)))
    else:
        pipe.send(("done",))
    pipe.poll(PATIENCE)  # until the worker has read it


def _end_with_the_worker() -> None:
    worker = multiprocessing.parent_process()
    if worker is not None:
        connection.wait([worker.sentinel])
        os._exit(1)
