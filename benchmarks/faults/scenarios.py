"""What is done to the workers."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from benchmarks.faults.audit import Broken, audit
from benchmarks.faults.decider import definition
from benchmarks.faults.worker import Orders, serve
from freezethaw.errors import StoreError
from freezethaw.store import Store, leases, rows

NewUrl = Callable[[], str]
PATIENCE = 300.0  # seconds after which a scenario is given up


@contextmanager
def fresh(new_url: NewUrl, runs: int, max_epochs: int, **orders: Any) -> Iterator[Orders]:
    """A new study and an empty folder."""
    with tempfile.TemporaryDirectory(prefix="freezethaw-faults-") as folder:
        url = new_url()
        with Store(url) as store:
            store.create_or_open("faults", definition(runs, max_epochs))
        yield Orders(url, Path(folder), **orders)


def start(orders: Orders, prepare: Callable[[], object] = lambda: None) -> int:
    """A worker process; forked, so that nothing is imported again."""
    pid = os.fork()
    if pid:
        return pid
    try:
        prepare()
        os._exit(serve(orders))
    finally:
        os._exit(1)


def kills(new_url: NewUrl, count: int, workers: int = 8, seed: int = 0) -> dict[str, Any]:
    """Kill -9 among eight workers at random moments, study after study until all kills are done."""
    rng = random.Random(seed)
    done, reports, begin = 0, [], time.monotonic()
    while done < count:
        runs, max_epochs, here = 12, 40, 0
        with fresh(new_url, runs, max_epochs, epoch_seconds=0.01) as orders:
            processes = [start(orders) for _ in range(workers)]
            while processes:
                if done < count:
                    time.sleep(rng.uniform(0.0, 0.15))
                    victim = rng.choice(processes)
                    os.kill(victim, signal.SIGKILL)
                else:
                    time.sleep(0.05)
                for pid in list(processes):
                    if _ended(pid) is not None:
                        processes.remove(pid)
                        if _codes.pop(pid) == -signal.SIGKILL:
                            done, here = done + 1, here + 1
                            processes.append(start(orders))
                _give_up(begin, count)
            reports.append(audit(orders, runs, max_epochs, here) | {"kills": here})
    total = {key: sum(report[key] for report in reports) for key in reports[0]}
    return {"kills": total.pop("kills"), "workers": workers, "studies": len(reports), "seed": seed} | total


_codes: dict[int, int] = {}


def _ended(pid: int) -> int | None:
    """The exit code of a child that has ended."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if found:
        _codes[pid] = os.waitstatus_to_exitcode(status)
    return _codes.get(pid) if found else None


def _wait(pids: list[int]) -> list[int]:
    begin = time.monotonic()
    left = list(pids)
    while left:
        left = [pid for pid in left if _ended(pid) is None]
        time.sleep(0.02)
        if time.monotonic() - begin > PATIENCE:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            raise Broken(f"workers did not end within {PATIENCE:g} s")
    return [_codes.pop(pid) for pid in pids]


def _give_up(begin: float, count: int) -> None:
    if time.monotonic() - begin > PATIENCE + 3 * count:
        raise Broken("the scenario does not end")


def crash_after(points: int) -> None:
    """Die by SIGKILL before the given SQL statement, commit, or change to a file, counted together."""
    left = [points]

    def count(*_: Any, **__: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", count)
    event.listen(Engine, "commit", count)
    changes = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}

    def watch(name: str, arguments: tuple[Any, ...]) -> None:
        if name in changes or (name == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wxa")):
            count()

    sys.addaudithook(watch)


def every_write(new_url: NewUrl, stride: int = 1, offset: int = 0) -> dict[str, Any]:
    """A kill between every pair of writes in turn, until a worker gets through without being killed."""
    runs, max_epochs, tried, point = 2, 5, 0, 1 + offset
    while True:
        with fresh(new_url, runs, max_epochs, every=2, epoch_seconds=0.0) as orders:
            [code] = _wait([start(orders, lambda at=point: crash_after(at))])  # type: ignore[misc]
            if code == 0:
                return {"points": point, "kills": tried}
            if code != -signal.SIGKILL:
                raise Broken(f"the worker that was to be killed at point {point} ended with {code}: {_errors(orders)}")
            [code] = _wait([start(orders)])
            try:
                audit(orders, runs, max_epochs, 1)
            except AssertionError as error:
                raise Broken(f"killed at point {point}: {error}") from error
        tried, point = tried + 1, point + stride


def _errors(orders: Orders) -> str:
    return "".join(path.read_text() for path in orders.folder.glob("*.error"))


def _writing(url: str) -> bool:
    """Whether a process is in a transaction."""
    try:
        with Store(url, wait=0.3) as store, store._database.writing() as connection:
            leases.lock_all(connection, 1)
            rows.lock_study(connection, 1)
    except StoreError:
        return True
    return False


def _held(url: str) -> bool:
    """Whether somebody holds the lease of a run."""
    with Store(url) as store:
        return any(lease.held and lease.run for lease in store.open("faults").leases())


def stopped(new_url: NewUrl, count: int, seed: int = 0) -> dict[str, Any]:
    """Stop a worker past its lease, let another finish its run, continue it: its late write must be refused."""
    rng, lost = random.Random(seed), 0
    for _ in range(count):
        with fresh(new_url, 1, 60, epoch_seconds=0.05, lease_seconds=1.0, every=7) as orders:
            sleeper = start(orders)
            while not any(path.read_text().count("recorded") for path in orders.folder.glob("*.log")):
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.3))
            os.kill(sleeper, signal.SIGSTOP)
            while _writing(orders.url) or not _held(orders.url):
                # resume it: it has no lease, or it has SQLite's lock, which cannot be taken from a stopped process
                os.kill(sleeper, signal.SIGCONT)
                time.sleep(0.01)
                os.kill(sleeper, signal.SIGSTOP)
            [code] = _wait([start(orders)])
            os.kill(sleeper, signal.SIGCONT)
            codes = [code, *_wait([sleeper])]
            if codes != [0, 0]:
                raise Broken(f"workers ended with {codes}: {_errors(orders)}")
            report = audit(orders, 1, 60, kills=1)
            if report["taken_over"] < 1:
                raise Broken("no worker took over the lease of the stopped one")
            lost += report["lost"]
    if lost == 0:
        raise Broken("no late write was refused")
    return {"stops": count, "late_writes_refused": lost}


def moved_clock(new_url: NewUrl) -> dict[str, Any]:
    """Workers whose clocks are an hour ahead and an hour behind: no lease expires by it."""
    if not shutil.which("faketime"):
        raise FileNotFoundError("faketime is not installed: apt-get install faketime")
    with fresh(new_url, 6, 30, epoch_seconds=0.01, lease_seconds=3.0) as orders:
        settings = ["--every", "5", "--epoch-seconds", "0.01", "--lease-seconds", "3.0"]
        command = [sys.executable, "-m", "benchmarks.faults", "--worker", orders.url, str(orders.folder), *settings]
        workers = [
            subprocess.Popen([*prefix, *command])
            for prefix in (["faketime", "-f", "+1h"], ["faketime", "-f", "-1h"], [])
        ]
        codes = [worker.wait(timeout=PATIENCE) for worker in workers]
        if codes != [0, 0, 0]:
            raise Broken(f"workers ended with {codes}: {_errors(orders)}")
        report = audit(orders, 6, 30, kills=0)
        if report["taken_over"]:
            raise Broken(f"{report['taken_over']} leases expired wrongly")
        busy = sum("recorded" in path.read_text() for path in orders.folder.glob("*.log"))
        return {"workers": 3, "workers_that_recorded": busy, "expired_wrongly": 0}
