"""A small worker: takes over what others left, else decides, then trains. It logs what the store acknowledged.

The log is only ever appended to, one line for a write, so a killed worker's log is whole up to its last line.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.decider import decide
from benchmarks.faults.training import State
from freezethaw.errors import AllPending, LeaseLost, StudyFinished
from freezethaw.records import Decision, Lease, Report, StudyState
from freezethaw.runtime.checkpoints import CheckpointManager
from freezethaw.store import Heartbeat, Storage, Store, Watcher

PAUSE = 0.02


@dataclass(frozen=True)
class Orders:
    """The arguments of a worker."""

    url: str
    folder: Path  # of logs and checkpoints
    every: int = 5  # epochs between two checkpoints
    epoch_seconds: float = 0.002
    lease_seconds: float = 20.0


class Worker:
    """The loop."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.study: Storage = Store(orders.url).open("faults")
        self.checkpoints = CheckpointManager(self.study, orders.folder / "checkpoints")
        self.watcher = Watcher(orders.lease_seconds)
        self.known: StudyState | None = None
        self._log = os.open(orders.folder / f"{os.getpid()}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def log(self, *words: object) -> None:
        os.write(self._log, (" ".join(map(str, words)) + "\n").encode())

    def work(self) -> None:
        """Until the study is finished."""
        with contextlib.suppress(StudyFinished):
            while True:
                found = self.study.take_over(self.watcher) or self.decide()
                if found is None:
                    time.sleep(PAUSE)
                    continue
                try:
                    self.train(*found)
                except LeaseLost:
                    self.log("lost", found[0].run, found[1].token)

    def decide(self) -> tuple[Decision, Lease] | None:
        lease = self.study.acquire_decision_lease(self.watcher)
        if lease is None:
            return None
        try:
            self.known = self.study.load(self.known)
            draft, samples = decide(self.known, self.study.samples())
            return self.study.commit(lease, draft, self.known.change, samples)
        except LeaseLost:
            return None
        except (AllPending, StudyFinished) as nothing:
            self.study.release(lease)
            if isinstance(nothing, StudyFinished):
                raise
            return None

    def train(self, decision: Decision, lease: Lease) -> None:
        run = decision.run
        with Heartbeat(self.study.beat, lease, seconds=self.orders.lease_seconds):
            with self.checkpoints.load(lease) as loaded:
                state = State.load(loaded.folder, run, loaded.epoch) if loaded else State.begin(run)
            self.checkpoints.clean(lease)
            while state.epoch < decision.to_epoch:
                time.sleep(self.orders.epoch_seconds)
                state = state.trained()
                self.log("trained", run, state.epoch, lease.token)
                last = state.epoch == decision.to_epoch
                due = last or state.epoch % self.orders.every == 0
                new = self.checkpoints.save(lease, state.epoch, state.save) if due else None
                old = self.checkpoints.replaced(run) if due else ()
                report = Report(state.epoch, (state.loss,), (self.orders.epoch_seconds,))
                found = self.study.record(lease, report, new, "told" if last else None, [r.number for r in old])
                self.checkpoints.remove(old)
                self.log("recorded", run, state.epoch, lease.token, state.loss.hex(), found.change)


def serve(orders: Orders) -> int:
    """Work, and say how it ended: 0 finished, 1 an error, which is kept beside the logs."""
    try:
        Worker(orders).work()
    except Exception:
        (orders.folder / f"{os.getpid()}.error").write_text(traceback.format_exc())
        return 1
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults --worker")
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--epoch-seconds", type=float, default=0.002)
    parser.add_argument("--lease-seconds", type=float, default=20.0)
    return serve(Orders(**vars(parser.parse_args(arguments))))
