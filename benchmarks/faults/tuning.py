"""A real `ft.tune` to be interrupted: `python -m benchmarks.faults.tuning FOLDER` starts it, and again continues it.

The training is quick, deterministic and has a state; it writes down, synced, every epoch that it trained and every loss
that was acknowledged. What it should have done can be computed: `curve`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import freezethaw as ft
from freezethaw.trainers.protocol import TrainingRun

SPACE = ft.Space(rate=ft.Float(0.02, 0.9, log=True), floor=ft.Float(0.0, 1.0))
MAX_EPOCHS = 12
NAME = "interruptions"
FOLDER, SECONDS = "FREEZETHAW_FAULTS_FOLDER", "FREEZETHAW_FAULTS_SECONDS"  # environment of the training
THAT_MANY = 0.618  # of the way between the shortest and the longest epoch, from one run to the next


@dataclass(frozen=True)
class State:
    """A model in training: a weight that falls, and a chain of hashes that shows each epoch it went through."""

    epoch: int
    weight: float
    chain: str

    @classmethod
    def begin(cls, seed: int) -> State:
        return cls(0, 1.0, hashlib.sha256(f"seed {seed}".encode()).hexdigest())

    def trained(self, config: Any) -> State:
        chain = hashlib.sha256(f"{self.chain} {self.epoch + 1}".encode()).hexdigest()
        return State(self.epoch + 1, self.weight * (1.0 - config["rate"]), chain)

    def loss(self, config: Any) -> float:
        noise = int(self.chain[:12], 16) / 16**12
        return float(config["floor"] + self.weight + 0.01 * noise)

    def save(self, folder: Path) -> None:
        (folder / "state.json").write_text(json.dumps([self.epoch, self.weight.hex(), self.chain]))

    @classmethod
    def load(cls, folder: Path) -> State:
        epoch, weight, chain = json.loads((folder / "state.json").read_text())
        return cls(epoch, float.fromhex(weight), chain)


def curve(config: Any, seed: int, epochs: int) -> tuple[float, ...]:
    """Losses of an uninterrupted training."""
    state, found = State.begin(seed), []
    for _ in range(epochs):
        state = state.trained(config)
        found.append(state.loss(config))
    return tuple(found)


def seconds(run: int) -> float:
    """Of an epoch: all the same, or different from run to run where a shortest and a longest are given."""
    low, _, high = os.environ[SECONDS].partition(" ")
    return float(low) + (float(high or low) - float(low)) * (THAT_MANY * run % 1.0)


def train(run: TrainingRun) -> None:
    """What the workers run."""
    log = os.open(Path(os.environ[FOLDER]) / f"{os.getpid()}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def write(*words: object) -> None:
        os.write(log, (" ".join(map(str, words)) + "\n").encode())
        os.fsync(log)

    try:
        state = State.load(run.checkpoint) if run.checkpoint else State.begin(run.seed)
        if state.epoch != run.from_epoch:
            raise AssertionError(f"run {run.number} got a checkpoint of epoch {state.epoch}, not {run.from_epoch}")
        for epoch in run.epochs():
            time.sleep(seconds(run.number))
            state = state.trained(run.config)
            loss = state.loss(run.config)
            write("trained", run.number, epoch, loss.hex())
            run.report(loss, save=state.save)
            write("recorded", run.number, epoch, loss.hex())
    finally:
        os.close(log)


STORE = "FREEZETHAW_FAULTS_STORE"  # environment: the URL of the store; by default a SQLite file in the folder


def tune(folder: Path, budget: int, every: int, workers: int = 2, seed: int = 0, ray: str | None = None) -> ft.Result:
    """Start or continue; `ray`: the address of a cluster."""
    environment = {name: os.environ[name] for name in (FOLDER, SECONDS)}
    engine = "processes" if ray is None else ft.RayEngine(address=ray, runtime_env={"env_vars": environment})
    return ft.tune(
        train,
        SPACE,
        MAX_EPOCHS,
        budget,
        name=NAME,
        workers=workers,
        store=os.environ.get(STORE) or f"sqlite:///{folder / 'study.db'}",
        seed=seed,
        checkpoints=ft.Checkpoints(folder / "checkpoints", every=every),
        engine=engine,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.tuning")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budget", type=int, required=True)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ray")
    given = parser.parse_args()
    from benchmarks.faults import tuning  # noqa: PLW0406 - under its own name, as the workers import it

    result = tuning.tune(given.folder, given.budget, given.every, given.workers, given.seed, given.ray)
    print(
        json.dumps(
            {"reason": result.reason, "epochs": result.epochs, "best": None if result.no_best else result.best.loss}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
