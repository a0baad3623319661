"""Frozen values that the store takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from freezethaw.records import Config, Decision, Run, Wish
from freezethaw.store.processes import Process

Definition = Mapping[str, Any]
Closing = Literal["told", "diverged", "interrupted", "out_of_memory", "failed"]
CLOSINGS: tuple[Closing, ...] = ("told", "diverged", "interrupted", "out_of_memory", "failed")


@dataclass(frozen=True)
class Lease:
    """The right to advance a run, or to decide (run 0). Every write shows the token; an old one is refused."""

    run: int
    token: int
    decision: int = 0  # that the run is advanced for


@dataclass(frozen=True)
class LeaseState:
    """A lease as others see it."""

    run: int
    token: int
    beat: int
    held: bool
    decision: int
    holder: Process


@dataclass(frozen=True)
class Proposal:
    """A decision before it is committed: `run` None starts a new run."""

    run: int | None
    config: Config
    to_epoch: int
    reason: str
    basket: tuple[Mapping[str, Any], ...] = ()
    wish: int | None = None  # the wish that it fulfils


@dataclass(frozen=True)
class Committed:
    """A decision in the store, and the lease to carry it out."""

    decision: Decision
    lease: Lease


@dataclass(frozen=True)
class StoredDecision:
    """A decision with all that was kept of it."""

    decision: Decision
    basket: tuple[Mapping[str, Any], ...]
    basis: int  # the change up to which the decider had seen the store
    definition: int  # version
    state: str  # pending, told, cancelled
    outcome: str
    reached: int | None
    committed: int  # the change that brought it
    closed: int | None  # the change that ended it; the same brought the next one where that goes on with the run


@dataclass(frozen=True)
class Report:
    """Losses of consecutive epochs and what belongs to them."""

    first_epoch: int
    losses: tuple[float, ...]  # finite
    seconds: tuple[float, ...] = ()  # NaN where not told; empty: none told
    metrics: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class NewCheckpoint:
    """A checkpoint that lies complete in its place and waits to be recorded."""

    epoch: int
    place: str  # relative to the folder of all checkpoints
    sha256: str
    bytes: int


@dataclass(frozen=True)
class StoredCheckpoint:
    """A recorded checkpoint."""

    number: int
    run: int
    epoch: int
    place: str
    sha256: str
    bytes: int
    state: str = "kept"


@dataclass(frozen=True)
class Recorded:
    """What became of a report."""

    change: int
    epoch: int  # the run's last one now
    repeated: tuple[int, ...] = ()  # epochs that were recorded before: the first loss stayed
    different: tuple[int, ...] = ()  # those of them whose loss was another one this time


@dataclass(frozen=True)
class Event:
    """Something worth telling a person."""

    number: int
    kind: str
    text: str
    run: int | None = None
    epoch: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""


@dataclass(frozen=True)
class StoredHistory:
    """All decisions, without their baskets, and every epoch with the change that brought it, in that order."""

    change: int
    decisions: tuple[StoredDecision, ...] = field(repr=False, default=())
    epochs: tuple[tuple[int, int, int], ...] = field(repr=False, default=())  # change, run, epoch


@dataclass(frozen=True)
class StudyInfo:
    """One line of the list of studies."""

    name: str
    runs: int
    epochs: int
    decisions: int
    created: str
    tags: tuple[str, ...] = ()
    uid: str = ""


@dataclass(frozen=True)
class Snapshot:
    """Everything a decider needs to know of a study, as of one change."""

    change: int
    version: int  # of the definition
    definition: Definition = field(repr=False)
    runs: tuple[Run, ...] = field(repr=False, default=())  # numbers from 1; pending ones with what is recorded so far
    pending: tuple[Decision, ...] = ()
    decisions: int = 0  # taken so far
    wishes: tuple[Wish, ...] = ()  # in order
    checkpoints: tuple[StoredCheckpoint, ...] = field(repr=False, default=())  # those kept
