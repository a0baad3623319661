"""Workers as actors of Ray, on any node of a cluster. The study's state is in the store; Ray starts the workers.

A worker that dies, alone or with its node, is replaced when resources are free; its run is taken over from its last
checkpoint. If the driver dies, Ray ends its actors, and the same call again continues.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from freezethaw.errors import FreezeThawError, StudyError, extra
from freezethaw.runtime import serialization
from freezethaw.runtime.signals import Leaving, on_signals
from freezethaw.runtime.worker import FINISHED as ENDED
from freezethaw.runtime.worker import INTERRUPTED, check_failures
from freezethaw.runtime.worker_failures import Cause, WorkerFailures
from freezethaw.runtime.worker_process import BROKEN, FINISHED, LEFT, WorkerSpec, logs_in, work
from freezethaw.store import Process
from freezethaw.study import StudySession
from freezethaw.trainers.protocol import Train

POLL = 0.1
SLOW = 60.0  # seconds without any worker, after which a message is printed
CALLS = "calls"  # a concurrency group with a thread of its own, beside the one that trains
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


@dataclass
class _Worker:
    actor: Any
    who: Any  # a future with its name, ready once the actor is placed
    work: Any = None  # a future with how it ended; None until it is asked to work


class RayWorker:
    """One worker, as an actor. It is created in the main thread of its process and trains in another thread.

    SIGTERM and SIGUSR1, which schedulers send before they take a machine away, make it save and leave.
    """

    def __init__(self, spec: WorkerSpec, message: bytes, home: str | None = None) -> None:
        self._spec, self._message, self._leaving = spec, message, Leaving()
        self._signals = contextlib.ExitStack()
        self._signals.enter_context(on_signals(self._leaving))
        if home is not None:  # where the user called `tune`, if this machine has that folder
            with contextlib.suppress(OSError):
                os.chdir(home)

    def who(self) -> str:
        """Its name in leases."""
        return str(Process.current())

    def work(self) -> tuple[int, str]:
        """Until the study ends or this worker is asked to stop; returns an exit code and why."""
        try:
            result = work(self._spec, serialization.receive(io.BytesIO(self._message)), self._leaving)
        except FreezeThawError as error:
            return BROKEN, str(error)
        return (LEFT if result.left else FINISHED), result.reason

    def leave(self, why: str) -> None:
        """Save at the next epoch, and return."""
        self._leaving.ask(why)


class RayWorkers:
    """Workers as actors of one cluster."""

    def __init__(self, engine: RayEngine, spec: WorkerSpec, train: Train, workers: int) -> None:
        folder = spec.folder if "://" in spec.folder else str(Path(spec.folder).absolute())
        self._engine, self._spec, self._count = engine, replace(spec, folder=folder), workers
        self._message, self._ray = serialization.message(train), library()
        self._workers: dict[int, _Worker] = {}  # by their number, from 1

    def run(self, session: StudySession, leaving: Leaving, update: Callable[[], None]) -> str:
        """Until the study ends or it is asked to stop; returns why. `update` is called several times a second."""
        failures, begun = WorkerFailures(session), time.monotonic()
        with self._connected(), on_signals(leaving), self._running():  # Ray has set a handler of its own
            waiting = True  # for the first worker
            while self._workers and not leaving():
                update()
                self._assign_work()
                self._ray.wait([worker.work or worker.who for worker in self._workers.values()], timeout=POLL)
                for number, worker in self._ended():
                    if not leaving():
                        self._handle_end(session, failures, number, worker)
                waiting = waiting and not any(worker.work for worker in self._workers.values())
                if waiting and time.monotonic() - begun > SLOW:
                    waiting = False
                    self._warn_that_nothing_runs()
        return INTERRUPTED if leaving() else session.last_event(ENDED) or "all workers have ended"

    def _handle_end(self, session: StudySession, failures: WorkerFailures, number: int, worker: _Worker) -> None:
        """Replace a worker that ended before the study did; raises StudyError if another would fail likewise."""
        try:
            code, said = self._ray.get(worker.work)
        except self._ray.exceptions.RayError as error:
            check_failures(session)  # its process may have been ended for an epoch that took too long
            failures.add(
                number,
                self._name(worker),
                _manner(error),
                _cause(error),
                f"{logs_in(self._spec.folder, session.storage)}",
            )
            code, said = LEFT, ""
        if code == BROKEN:
            raise StudyError(said)
        if code == LEFT:
            self._start(number)
        elif code == FINISHED:  # the other workers will notice too, except those that have not started
            for other in [n for n, m in self._workers.items() if m.work is None]:
                self._ray.kill(self._workers.pop(other).actor)

    def _ended(self) -> list[tuple[int, _Worker]]:
        """Workers that have ended since."""
        ended = [(n, worker) for n, worker in self._workers.items() if worker.work and self._ready(worker.work)]
        for number, worker in ended:
            del self._workers[number]
            self._ray.kill(worker.actor)
        return ended

    def _start(self, number: int) -> None:
        home = None if "working_dir" in (self._engine.runtime_env or {}) else str(Path.cwd())
        actor = self._ray.remote(**self._engine.options())(RayWorker).remote(self._spec, self._message, home)
        self._workers[number] = _Worker(actor, actor.who.options(concurrency_group=CALLS).remote())

    def _assign_work(self) -> None:
        """Ask workers that have been placed since to work: one that is not known to run can be killed at any moment."""
        for worker in self._workers.values():
            if worker.work is None and self._ready(worker.who):
                worker.work = worker.actor.work.remote()

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
        """Ask all workers to save and leave; kill those that do not."""
        working = [worker for worker in self._workers.values() if worker.work]
        for worker in working:
            worker.actor.leave.options(concurrency_group=CALLS).remote("the engine leaves")
        if working:
            self._ray.wait([worker.work for worker in working], num_returns=len(working), timeout=self._spec.grace)
        for worker in self._workers.values():
            self._ray.kill(worker.actor)
        self._workers.clear()

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
        if len(hosts) > 1 and self._spec.store.startswith("sqlite"):
            raise StudyError(
                f"the Ray cluster has {len(hosts)} machines, and a store in SQLite is for one; give a PostgreSQL URL "
                "as store, and a folder that all machines share (or a URL such as s3://...) for the checkpoints"
            )

    def _warn_that_nothing_runs(self) -> None:
        wanted, there = dict(self._engine.resources), self._ray.cluster_resources()
        sys.stderr.write(f"freezethaw: no worker could start yet; each needs {wanted}, and the cluster has {there}\n")

    def _ready(self, future: Any) -> bool:
        return bool(self._ray.wait([future], timeout=0)[0])

    def _name(self, worker: _Worker) -> str:
        """The name of a worker that may be dead; empty if it was never placed."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            return str(self._ray.get(worker.who))
        return ""


def library() -> Any:
    """The only import of Ray. Its authentication by token is on unless the user said otherwise.

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
    """How an actor died, for people."""
    return f"died: {' '.join(str(error).split())[:500]}"
