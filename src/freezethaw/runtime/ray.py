"""Ray: each worker an actor, on any node of a cluster. The store remains the truth; Ray starts, places and watches.

A worker that dies, alone or with its node, is replaced where there is room; its run is taken over from its last
checkpoint. When the driver dies, Ray ends its actors, and the same call again continues.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from freezethaw.errors import StudyError, extra
from freezethaw.runtime import shipping
from freezethaw.runtime.crew import PATIENCE, Toll
from freezethaw.runtime.deaths import Cause
from freezethaw.runtime.seat import Seat
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.worker import FINISHED as ENDED
from freezethaw.runtime.worker import check_hope
from freezethaw.runtime.worker_process import BROKEN, FINISHED, LEFT, Place, logs_in
from freezethaw.study import Study
from freezethaw.trainers.protocol import Train

POLL = 0.1
SLOW = 60.0  # seconds without any worker, after which somebody should be told
CALLS = "calls"  # a thread for them, beside the one that trains
AUTHENTICATION = "RAY_AUTH_MODE"


@dataclass(frozen=True)
class RayEngine:
    """Workers as actors of Ray: `ft.tune(..., workers=8, engine=ft.RayEngine(resources={"CPU": 1}))`.

    `resources`: of each worker. `address`: of a cluster; None is the one that this process is connected to, or that
    RAY_ADDRESS names, or that runs on this machine, or else a new one on this machine. `dashboard`: of a new one.
    `runtime_env`: what Ray prepares for each worker. Ray's authentication by token is on unless RAY_AUTH_MODE says
    otherwise.
    """

    resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1})
    address: str | None = None
    dashboard: bool = False
    runtime_env: Mapping[str, Any] | None = None

    def options(self) -> dict[str, Any]:
        """As Ray takes them for an actor."""
        named = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
        found: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "concurrency_groups": {CALLS: 1}}
        found |= {named[name]: amount for name, amount in self.resources.items() if name in named}
        found["resources"] = {name: amount for name, amount in self.resources.items() if name not in named}
        return found if self.runtime_env is None else found | {"runtime_env": dict(self.runtime_env)}


@dataclass(frozen=True)
class _Member:
    actor: Any
    who: Any  # a promise of its name, kept once it has been placed
    work: Any  # a promise of how it ended


class RayCrew:
    """So many actors."""

    def __init__(self, engine: RayEngine, place: Place, train: Train, workers: int) -> None:
        folder = place.folder if "://" in place.folder else str(Path(place.folder).absolute())
        self._engine, self._place, self._count = engine, replace(place, folder=folder), workers
        self._parcel, self._ray = shipping.parcel(train), library()
        self._members: dict[int, _Member] = {}  # by their number, from 1

    def run(self, study: Study, look: Callable[[], None]) -> str:
        """Until the study ends or a signal asks to leave; returns why. `look` is called now and then."""
        leaving, toll, begun = Leaving(), Toll(study), time.monotonic()
        with self._connected(), on_signals(leaving), self._running():
            waiting = True  # for the first worker
            while self._members and not leaving():
                look()
                self._ray.wait([member.work for member in self._members.values()], timeout=POLL)
                for number, member in self._ended():
                    if not leaving():
                        self._settle(study, toll, number, member)
                waiting = waiting and not any(map(self._placed, self._members.values()))
                if waiting and time.monotonic() - begun > SLOW:
                    waiting = False
                    self._say_that_nobody_works()
        if leaving():
            raise KeyboardInterrupt(leaving.why)
        return study.shared.last_event(ENDED) or "all workers have ended"

    def _settle(self, study: Study, toll: Toll, number: int, member: _Member) -> None:
        """Replace a worker that ended before the study did; raises StudyError where another would fare no better."""
        try:
            code, said = self._ray.get(member.work)
        except self._ray.exceptions.RayError as error:
            check_hope(study)  # its process may have been ended for an epoch that took too long
            toll.add(number, self._name(member), _manner(error), _cause(error), f"{logs_in(self._place.folder)}")
            code, said = LEFT, ""
        if code == BROKEN:
            raise StudyError(said)
        if code == LEFT:
            self._start(number)
        elif code == FINISHED:  # so will the others find, but for those that have not begun
            for other in [n for n, m in self._members.items() if not self._placed(m)]:
                self._ray.kill(self._members.pop(other).actor)

    def _ended(self) -> list[tuple[int, _Member]]:
        """Workers that have ended since."""
        ended = [(number, member) for number, member in self._members.items() if self._ready(member.work)]
        for number, member in ended:
            del self._members[number]
            self._ray.kill(member.actor)
        return ended

    def _start(self, number: int) -> None:
        home = None if "working_dir" in (self._engine.runtime_env or {}) else str(Path.cwd())
        actor = self._ray.remote(**self._engine.options())(Seat).remote(self._place, self._parcel, home)
        self._members[number] = _Member(actor, actor.who.options(concurrency_group=CALLS).remote(), actor.work.remote())

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        self._check_machines()
        try:
            for number in range(1, self._count + 1):
                self._start(number)
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        """Ask all to save and leave; kill whoever does not."""
        placed = [member for member in self._members.values() if self._placed(member)]
        for member in placed:
            member.actor.leave.options(concurrency_group=CALLS).remote("the engine leaves")
        if placed:
            self._ray.wait([member.work for member in placed], num_returns=len(placed), timeout=PATIENCE)
        for member in self._members.values():
            self._ray.kill(member.actor)
        self._members.clear()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """To the cluster that this process uses already, or to one for as long as this context lasts."""
        if self._ray.is_initialized():
            yield
            return
        try:
            self._ray.init(self._engine.address, include_dashboard=self._engine.dashboard, log_to_driver=False)
        except (ConnectionError, RuntimeError, self._ray.exceptions.RayError) as error:
            raise StudyError(f"cannot connect to a Ray cluster: {error}") from error
        try:
            yield
        finally:
            self._ray.shutdown()

    def _check_machines(self) -> None:
        hosts = {node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}
        if len(hosts) > 1 and self._place.store.startswith("sqlite"):
            raise StudyError(
                f"the Ray cluster has {len(hosts)} machines, and a store in SQLite is for one; give a PostgreSQL URL "
                "as store, and a folder that all machines share (or a URL such as s3://...) for the checkpoints"
            )

    def _say_that_nobody_works(self) -> None:
        wanted, there = dict(self._engine.resources), self._ray.cluster_resources()
        sys.stderr.write(f"freezethaw: no worker could start yet; each needs {wanted}, and the cluster has {there}\n")

    def _placed(self, member: _Member) -> bool:
        return self._ready(member.who)

    def _ready(self, promise: Any) -> bool:
        return bool(self._ray.wait([promise], timeout=0)[0])

    def _name(self, member: _Member) -> str:
        """Of a worker that may be dead; empty where it was never placed."""
        if self._placed(member):
            with contextlib.suppress(self._ray.exceptions.RayError):
                return str(self._ray.get(member.who))
        return ""


def library() -> Any:
    """Ray, imported here and nowhere else. Its authentication by token is on unless the user said otherwise.

    Ray reads how on import. Where the user has imported it before, it decides by itself when a cluster is started: a
    new one on this machine has tokens.
    """
    if "ray" not in sys.modules:
        os.environ.setdefault(AUTHENTICATION, "token")
    with extra("ray"):
        import ray

    return ray


def _cause(error: Exception) -> Cause:
    """Why an actor died, as far as Ray says."""
    if type(error).__name__ == "OutOfMemoryError":
        return "out of memory"
    if type(error).__name__ == "NodeDiedError" or "node has died" in str(error):
        return "killed"
    return "unknown"


def _manner(error: Exception) -> str:
    """How an actor died, in words."""
    return f"died: {' '.join(str(error).split())[:500]}"
