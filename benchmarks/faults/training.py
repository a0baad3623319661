"""A training whose state can be checked: every epoch hashes the state before it, and the loss is read from the hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class State:
    """A model in training."""

    run: int
    epoch: int
    chain: str

    @classmethod
    def begin(cls, run: int) -> State:
        return cls(run, 0, hashlib.sha256(f"run {run}".encode()).hexdigest())

    @classmethod
    def at(cls, run: int, epoch: int) -> State:
        """Uninterrupted from the start."""
        state = cls.begin(run)
        for _ in range(epoch):
            state = state.trained()
        return state

    def trained(self) -> State:
        """One epoch on."""
        chain = hashlib.sha256(f"{self.chain} {self.epoch + 1}".encode()).hexdigest()
        return State(self.run, self.epoch + 1, chain)

    @property
    def loss(self) -> float:
        return int(self.chain[:12], 16) / 16**12 + 1.0 / self.epoch

    def save(self, folder: Path) -> None:
        (folder / "state.json").write_text(json.dumps([self.run, self.epoch, self.chain]))
        (folder / "weights").write_bytes(bytes.fromhex(self.chain) * 8)

    @classmethod
    def load(cls, folder: Path, run: int, epoch: int) -> State:
        """Raises WrongState where this is not exactly what an uninterrupted training would have here."""
        state = cls(*json.loads((folder / "state.json").read_text()))
        if state != cls.at(run, epoch) or (folder / "weights").read_bytes() != bytes.fromhex(state.chain) * 8:
            raise WrongState(f"loaded {state} for run {run} at epoch {epoch}")
        return state


class WrongState(Exception):  # noqa: N818
    """The worst: a checkpoint that is not what it says."""
