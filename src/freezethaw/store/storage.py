"""The storage protocol: one study, kept in memory (`memory`) or in a SQL database (`sql_storage`).

How a worker uses it:

    lease = storage.acquire_decision_lease(watcher)       # None while another process decides
    state = storage.load(state)                           # only what changed since; decide outside any transaction
    decision, run_lease = storage.commit(lease, draft, state.change, samples)
    storage.record(run_lease, Report(epoch, (loss,), (seconds,)), checkpoint)     # raises LeaseLost: stop training
    storage.record(run_lease, close="told")               # or together with the last losses

Every method is one transaction. A write carries the fencing token of its lease, and an old token raises `LeaseLost`.
A replay of decision n reads `load(at=decision(n).basis)` and `samples(before=n)`.

A `Heartbeat` sends the heartbeats of the leases that this process holds; a `Watcher` observes those of others.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from freezethaw.errors import LeaseLost, StoreError
from freezethaw.records import (
    Checkpoint,
    Closing,
    Config,
    Decision,
    DecisionDraft,
    DecisionRecord,
    Event,
    History,
    Lease,
    Recorded,
    Report,
    StudyState,
)
from freezethaw.store.documents import printable

Definition = Mapping[str, Any]
LEASE_SECONDS = 60.0
BEATS = 4  # per lease time: three may be late or fail before another process may take the lease over
DECIDING = 0  # stands for the run in the decision lease; runs count from 1
DROP_REASONS = ("replaced", "evicted", "damaged")  # why a checkpoint no longer exists


class Storage(Protocol):
    """One study. Everything that a method writes appears together or not at all."""

    @property
    def name(self) -> str:
        """The study's name."""

    @property
    def uid(self) -> str:
        """A unique identifier, which names the folder of its checkpoints."""

    @property
    def durable(self) -> bool:
        """Whether what is recorded must survive a crash of the machine."""

    @property
    def shared(self) -> bool:
        """Whether other processes can use the study too."""

    def close(self) -> None:
        """Close connections. Leases stay as they are."""

    # Reading.

    def load(self, known: StudyState | None = None, at: int | None = None) -> StudyState:
        """The state now, reading only what changed since `known`; or the state at an earlier change."""

    def change(self) -> int:
        """The study's change counter."""

    def definition(self, version: int) -> Definition:
        """One version of the definition."""

    def history(self, known: History | None = None) -> History:
        """All decisions and epochs, reading only what changed since `known`."""

    def decision(self, number: int) -> DecisionRecord:
        """One decision with its basket."""

    def decisions(self, last: int, before: int | None = None) -> tuple[DecisionRecord, ...]:
        """The newest decisions, or the newest before another one, oldest first, without baskets."""

    def deciding_seconds(self) -> float:
        """Seconds that all decisions took."""

    def samples(self, before: int | None = None) -> Any:
        """The newest hyperparameter samples as plain numbers, or those that decision `before` started from."""

    def metrics(self, run: int) -> tuple[Mapping[str, Any], ...]:
        """Other metrics of a run, one dict for each epoch."""

    def checkpoints(self, run: int | None = None) -> tuple[Checkpoint, ...]:
        """Checkpoints that exist, oldest first."""

    def events(self, after: int = 0, most: int = 1000) -> tuple[Event, ...]:
        """Events with a number greater than `after`, oldest first."""

    def last_events(self, last: int) -> tuple[Event, ...]:
        """The newest events, oldest first."""

    def leases(self) -> tuple[LeaseState, ...]:
        """Leases that are held, and those of pending decisions that nobody holds."""

    def last_holder(self, run: int) -> Process | None:
        """The process that holds the lease of a run, or held it last."""

    # Leases.

    def acquire_decision_lease(self, watcher: Watcher) -> Lease | None:
        """The decision lease, if it is available now and nobody waits; else None: ask again with the same watcher."""

    def wait_for_decision_lease(self, watcher: Watcher, pause: Callable[[float], object]) -> Lease:
        """The decision lease, granted in the order of asking. `pause` waits for some seconds between two checks."""

    def take_over(self, watcher: Watcher) -> tuple[Decision, Lease] | None:
        """A pending decision whose worker is gone, with a new lease; None if there is none."""

    def beat(self, lease: Lease) -> None:
        """Advance the heartbeat counter. Raises LeaseLost."""

    def release(self, lease: Lease) -> None:
        """Release a lease. Its decision stays pending, and any process may take it over at once."""

    # Writing.

    def commit(
        self,
        decision_lease: Lease,
        draft: DecisionDraft,
        basis: int,
        samples: Any = None,
        keep_lease: bool = False,
        closing: Lease | None = None,
        checkpoint: Checkpoint | None = None,
        replaced: Sequence[int] = (),
    ) -> tuple[Decision, Lease]:
        """Commit a decision, the lease of its run and the samples after it.

        `basis` is the change of the state that was decided on. `closing` is the lease of a decision, whose losses are
        all recorded, that ends as told; `checkpoint` is the new checkpoint of that run, and `replaced` are numbers of
        checkpoints that it replaces. The decision lease is released unless `keep_lease`. Raises LeaseLost if another
        process decides by now.
        """

    def record(
        self,
        lease: Lease,
        report: Report | None = None,
        checkpoint: Checkpoint | None = None,
        close: Closing | None = None,
        replaced: Sequence[int] = (),
        deciding: Watcher | None = None,
    ) -> Recorded:
        """Record losses, the checkpoint that belongs to them, and the end of the decision.

        `close` is None while training continues. `replaced`: numbers of the run's checkpoints that this replaces;
        remove their files afterwards. `deciding`: acquire the decision lease too, if it is available. Raises LeaseLost
        or TellError; then nothing is recorded.
        """

    def add_runs(self, curves: Iterable[tuple[Config, Report]]) -> list[int]:
        """Add imported learning curves; returns the numbers of their runs."""

    def drop_checkpoints(self, numbers: Iterable[int], why: str, holder: Lease | None = None) -> tuple[Checkpoint, ...]:
        """Mark checkpoints as replaced, evicted or damaged. Remove the files of those returned afterwards.

        Those of leased runs stay, unless `holder` is that lease.
        """

    def request(self, run: int | None, config: Config | None, to_epoch: int) -> int:
        """Queue a request to start a configuration or to thaw a run; returns its number."""

    def amend(self, changes: Definition) -> None:
        """Change entries of the definition, such as the budget: a new version, which workers follow from then on."""

    def set_tags(self, tags: Iterable[str]) -> None:
        """Replace the study's tags."""

    def set_disk_budget(self, gb: float | None) -> None:
        """Record the disk budget of the checkpoints, for display."""

    def set_training(self, training: Mapping[str, str]) -> None:
        """Record the name and the hash of what trains the study, to notice another one."""

    def add_event(
        self,
        kind: str,
        text: str,
        run: int | None = None,
        epoch: int | None = None,
        details: Mapping[str, Any] | None = None,
        once: bool = False,
    ) -> None:
        """Record an event; `once`: unless the newest one of its kind has the same details."""


# Leases, as other processes see them.


@dataclass(frozen=True)
class LeaseState:
    """A lease as other processes see it."""

    run: int
    token: int
    beat: int
    held: bool
    decision: int
    holder: Process

    def __str__(self) -> str:
        return "the decision lease" if self.run == DECIDING else f"the lease of run {self.run}"


class Watcher:
    """One process's own observations of heartbeat counters. No wall clock is compared."""

    def __init__(
        self,
        seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        here: Process | None = None,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self.here = here or Process.current()
        self._seen: dict[Hashable, tuple[int, int, float]] = {}  # token, beat, when first seen so

    def may_take(self, study: Hashable, lease: LeaseState) -> bool:
        """Whether the lease is free, its holder is dead, or its counter has not changed for the lease time."""
        if not lease.held or lease.holder.is_dead(self.here):
            return True
        now, key = self._clock(), (study, lease.run)
        token, beat, since = self._seen.get(key, (-1, -1, now))
        if (token, beat) != (lease.token, lease.beat):
            self._seen[key] = lease.token, lease.beat, now
            return False
        return now - since >= self.seconds


class Heartbeat:
    """A thread that sends heartbeats for leases while their holder trains or decides.

    `lost` has those that another process took over: stop training those runs.
    """

    def __init__(self, beat: Callable[[Lease], None], *leases: Lease, seconds: float = LEASE_SECONDS) -> None:
        self._beat, self._pause = beat, seconds / BEATS
        self._held, self._lost = set(leases), set[Lease]()
        self._lock, self._leave = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="freezethaw-heartbeat", daemon=True)
        self.trouble: StoreError | None = None  # of the last heartbeat, if it failed

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join()

    @property
    def lost(self) -> frozenset[Lease]:
        """Leases that others have taken over."""
        with self._lock:
            return frozenset(self._lost)

    def add(self, lease: Lease) -> None:
        """Send heartbeats for this lease too."""
        with self._lock:
            self._held.add(lease)

    def remove(self, lease: Lease) -> None:
        """Send no more heartbeats for a lease; call this before releasing it."""
        with self._lock:
            self._held.discard(lease)

    def _go_on(self) -> None:
        while not self._leave.wait(self._pause):
            with self._lock:
                held = sorted(self._held, key=lambda lease: lease.run)
            for lease in held:
                self._beat_for(lease)

    def _beat_for(self, lease: Lease) -> None:
        try:
            self._beat(lease)
            self.trouble = None
        except LeaseLost:
            with self._lock:
                if lease in self._held and not self._leave.is_set():  # else its holder released it meanwhile
                    self._lost.add(lease)
                self._held.discard(lease)
        except StoreError as error:
            self.trouble = error  # the server may be unavailable for a moment only


# The process that holds a lease, and whether it is known to be dead.
#
# Only a process of the same boot and the same process namespace can be looked up by its number; two containers of one
# machine share the boot but not the numbers. The start time tells a process from a later one with a recycled number.


@dataclass(frozen=True)
class Process:
    """A process anywhere. `boot` is unique to a boot and its process namespace; empty where unknown."""

    host: str
    boot: str
    pid: int
    started: str  # as the system counts it; only compared with itself

    @classmethod
    def current(cls) -> Process:
        """The process that calls this."""
        pid = os.getpid()
        return cls(printable(socket.gethostname()), _boot(), pid, _started(pid) or "")

    def is_dead(self, here: Process) -> bool:
        """Whether it is known to have ended, seen from process `here`; False if that is unknown."""
        if not self.boot or self.boot != here.boot or not self.started:
            return False
        return _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _boot() -> str:
    try:
        if sys.platform == "darwin":
            return _output("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process started; None if it does not run."""
    if sys.platform == "darwin":
        state, _, started = _output("/bin/ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)).partition(" ")
        return None if state[:1] in ("", "Z") else started.strip()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may contain blanks and brackets
    return None if fields[0] in "ZX" else fields[19]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603 - ours
