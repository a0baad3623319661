"""Commits per second and the worst wait with many processes on one store, against the bare driver in the same run.

Every process records one loss after the other for a run of its own, while a reader stays open. `bare` writes the same
rows through the driver alone: for SQLite with WAL, BEGIN IMMEDIATE and synchronous=FULL. Also: how long it takes to
open a study of 1,000 runs of 100 epochs, and to look again after one more loss.

    python -m benchmarks.store [--processes 64] [--seconds 10] [--rounds 3]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import queue
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import freezethaw as ft
from benchmarks import servers
from freezethaw.records import DecisionDraft, Report
from freezethaw.store import Storage, Store, Watcher

RESULTS = Path(__file__).parent / "results" / "store.json"
MAX_EPOCHS = 1_000_000
SPACE = ft.Space(rate=ft.Float(1e-6, 1.0, log=True), units=ft.Int(1, 100))
CONFIG = {"rate": 0.1, "units": 10}
Write = Callable[[int], object]  # records one epoch
fork = multiprocessing.get_context("fork")  # nothing is imported again


def new_study(url: str, name: str) -> Storage:
    definition = {"space": SPACE.to_dict(), "max_epochs": MAX_EPOCHS, "direction": "minimize", "seed": 0}
    return Store(url).create_or_open(name, definition)


def ours(url: str, run: int) -> Write:
    """Record through the store, under a lease."""
    study = Store(url).open("bench")
    watcher = Watcher()
    while (deciding := study.acquire_decision_lease(watcher)) is None:
        time.sleep(0.05)
    _, lease = study.commit(deciding, DecisionDraft(None, CONFIG, MAX_EPOCHS, f"process {run}"), 0)
    return lambda epoch: study.record(lease, Report(epoch, (1.0 / epoch,), (0.1,)))


BARE_ROWS = (
    "UPDATE freezethaw_leases SET beat = beat + 1 WHERE study = 1 AND run = {run} AND token = 1",
    "INSERT INTO freezethaw_epochs VALUES (1, {run}, {epoch}, {loss}, 0.1, NULL, {epoch})",
    "UPDATE freezethaw_runs SET epochs = {epoch}, change = {epoch} WHERE study = 1 AND run = {run}",
    "UPDATE freezethaw_studies SET change = change + 1 WHERE id = 1",
)


def bare_sqlite(url: str, run: int) -> Write:
    """The same rows through sqlite3 alone."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60.0, isolation_level=None)
    connection.execute("PRAGMA synchronous=FULL")

    def write(epoch: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for row in BARE_ROWS:
            connection.execute(row.format(run=run, epoch=epoch, loss=1.0 / epoch))
        connection.execute("COMMIT")

    return write


def bare_postgresql(url: str, run: int) -> Write:
    """The same rows through psycopg alone."""
    import psycopg

    connection = psycopg.connect(url.replace("+psycopg", ""))

    def write(epoch: int) -> None:
        for row in BARE_ROWS:
            connection.execute(row.format(run=run, epoch=epoch, loss=1.0 / epoch))  # type: ignore[call-overload]
        connection.commit()

    return write


def prepare_bare(url: str, processes: int) -> None:
    """Runs and leases for the bare writers."""
    study = Store(url).open("bench")
    watcher = Watcher()
    for number in range(processes):
        deciding = study.acquire_decision_lease(watcher)
        assert deciding is not None
        study.commit(deciding, DecisionDraft(None, CONFIG, MAX_EPOCHS, f"process {number}"), 0)


def measure(make: Callable[[str, int], Write], url: str, processes: int, seconds: float) -> dict[str, Any]:
    """Let the processes write all at once for so long; what they managed, and how long the slowest commit took."""
    ready, results = fork.Barrier(processes + 1), fork.Queue()

    def work(run: int) -> None:
        waits, failed = [], ""
        try:
            write = make(url, run)
            ready.wait()
            end = time.perf_counter() + seconds
            while (begin := time.perf_counter()) < end:
                write(len(waits) + 1)
                waits.append(time.perf_counter() - begin)
        except Exception as error:
            failed = repr(error)
        results.put((waits, failed))
        results.close()
        results.join_thread()
        os._exit(0)  # what was inherited from the parent is not ours to close

    workers = [fork.Process(target=work, args=(run + 1,)) for run in range(processes)]
    for worker in workers:
        worker.start()
    with Store(url)._database.reading() as reader:

        def look() -> None:
            """A server ends transactions that are idle for long, and 64 processes may take long to start and to end."""
            reader.exec_driver_sql("SELECT 1").scalar()

        reader.exec_driver_sql("SELECT count(*) FROM freezethaw_epochs").scalar()
        while ready.n_waiting < processes:
            look()
            time.sleep(0.05)
        ready.wait()
        begin, found = time.perf_counter(), []
        while len(found) < processes:
            with contextlib.suppress(queue.Empty):
                found.append(results.get(timeout=1.0))
            look()
        took = time.perf_counter() - begin
    for worker in workers:
        worker.join()
    waits = [wait for part, _ in found for wait in part]
    failures = [failed for _, failed in found if failed]
    return {
        "commits": len(waits),
        "commits_per_second": len(waits) / took,
        "median_wait": statistics.median(waits),
        "worst_wait": max(waits),
        "fewest_of_a_process": min(len(part) for part, _ in found),
        "failures": failures,
    }


def contest(kind: str, new_url: Callable[[], str], processes: int, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """The store against the bare driver, in turn."""
    bare = bare_sqlite if kind == "sqlite" else bare_postgresql
    rows = []
    for turn in range(rounds):
        for name, make in (("bare", bare), ("freezethaw", ours)):
            url = new_url()
            new_study(url, "bench")
            if name == "bare":
                prepare_bare(url, processes)
            row = {"database": kind, "writer": name, "round": turn} | measure(make, url, processes, seconds)
            rows.append(row)
            print(
                f"{kind:<11} {name:<11} {row['commits_per_second']:>8.0f} commits/s   "
                f"wait: worst {row['worst_wait']:.2f} s, median {1000 * row['median_wait']:.0f} ms   "
                f"failed {len(row['failures'])}",
                flush=True,
            )
    return rows


def opening(kind: str, url: str, runs: int = 1000, epochs: int = 100) -> dict[str, Any]:
    """Seconds to open and load a large study, and to look again after one more loss."""
    study = new_study(url, "large")
    for run in range(runs):
        losses = tuple(1.0 / (e + 1) for e in range(epochs))
        study.add_runs([({"rate": (run + 1) / runs, "units": 10}, Report(1, losses))])
    deciding = study.acquire_decision_lease(Watcher())
    assert deciding is not None
    _, lease = study.commit(deciding, DecisionDraft(None, CONFIG, epochs, "one more"), 0)
    begin = time.perf_counter()
    study = Store(url).open("large")
    known = study.load()
    loaded = time.perf_counter() - begin
    study.record(lease, Report(1, (0.5,)))
    begin = time.perf_counter()
    again = study.load(known)
    row = {"database": kind, "runs": runs, "epochs": epochs, "load": loaded, "refresh": time.perf_counter() - begin}
    assert again.runs[-1].losses == (0.5,)
    print(
        f"{kind:<11} {runs} runs of {epochs} epochs: loaded in {loaded:.2f} s, again in {1000 * row['refresh']:.0f} ms"
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=1000, help="of the study that is opened")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = (f"sqlite:///{folder}/{number}.db" for number in range(1000))
        sizes = given.processes, given.seconds, given.rounds
        commits = contest("sqlite", lambda: next(names), *sizes)
        opened = [opening("sqlite", next(names), given.runs)]
        server = stack.enter_context(servers.postgresql())
        commits += contest("postgresql", lambda: servers.fresh_database(server), *sizes)
        opened += [opening("postgresql", servers.fresh_database(server), given.runs)]
    machine = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version, "cores": os.cpu_count()}
    result = {"processes": given.processes, "seconds": given.seconds, "machine": machine}
    given.output.write_text(json.dumps(result | {"commits": commits, "opening": opened}, indent=1) + "\n")


if __name__ == "__main__":
    main()
