"""How long each of many processes waits for the right to decide, which is granted in the order of asking.

    python -m benchmarks.faults.fairness [--processes 64] [--seconds 40] [--databases sqlite postgresql]

`unordered` is how it was: each asks again after a pause that grows, and whoever comes at the right moment decides.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import freezethaw as ft
from benchmarks import records, servers
from freezethaw.errors import StoreError
from freezethaw.records import Lease
from freezethaw.store import Storage, Store, Watcher

RESULTS = Path(__file__).parents[1] / "results" / "faults_fairness.json"
DECIDING = 0.05  # seconds that a decision takes
SPACE = ft.Space(rate=ft.Float(0.0, 1.0))
Wait = Callable[[Storage, Watcher], Lease]
fork = multiprocessing.get_context("fork")


def in_order(study: Storage, watcher: Watcher) -> Lease:
    return study.wait_for_decision_lease(watcher, time.sleep)


def unordered(study: Storage, watcher: Watcher) -> Lease:
    pause = 0.02
    while (lease := study.acquire_decision_lease(watcher)) is None:
        time.sleep(pause)
        pause = min(2 * pause, 0.5)
    return lease


def measure(wait: Wait, url: str, processes: int, seconds: float) -> dict[str, Any]:
    """All ask at once, decide for a while, and ask again."""
    with Store(url) as store:
        store.create_or_open("fair", {"space": SPACE.to_dict(), "max_epochs": 1, "direction": "minimize"})
    ready, results = fork.Barrier(processes), fork.Queue()

    def work() -> None:
        waits, failed = [], ""
        try:
            study, watcher = Store(url).open("fair"), Watcher()
            ready.wait()
            end = time.perf_counter() + seconds
            while (begin := time.perf_counter()) < end:
                lease = wait(study, watcher)
                waits.append(time.perf_counter() - begin)
                time.sleep(DECIDING)
                study.release(lease)
        except (StoreError, RuntimeError) as error:
            failed = repr(error)
        results.put((waits, failed))
        results.close()
        results.join_thread()
        os._exit(0)  # what was inherited from the parent is not ours to close

    workers = [fork.Process(target=work) for _ in range(processes)]
    for worker in workers:
        worker.start()
    found = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    waits = [wait for part, _ in found for wait in part]
    return {
        "processes": processes,
        "decisions": len(waits),
        "median_wait": round(statistics.median(waits), 2),
        "longest_wait": round(max(waits), 2),
        "ratio": round(max(waits) / statistics.median(waits), 2),
        "fewest_of_a_process": min(len(part) for part, _ in found),
        "most_of_a_process": max(len(part) for part, _ in found),
        "failures": [failed for _, failed in found if failed],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.fairness")
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgresql"])
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    found: dict[str, Any] = {"cores": os.cpu_count(), "deciding_seconds": DECIDING, "seconds": given.seconds}
    for database in given.databases:
        for wait in (unordered, in_order):
            with ExitStack() as stack:
                if database == "sqlite":
                    url = f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/fair.db"
                else:
                    url = servers.fresh_database(stack.enter_context(servers.postgresql()))
                name = f"{database}/{wait.__name__}"
                found[name] = measure(wait, url, given.processes, given.seconds)
                print(f"{name:<22} {found[name]}", flush=True)
    records.write(given.output, found)


if __name__ == "__main__":
    main()
