"""What happens around a search: its database is restarted, the power fails, the disk is slow, epochs are long."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import servers
from benchmarks.faults import interruptions, tuning

EVERY = 3  # epochs between checkpoints
WORKERS = 2


def restarts(count: int, seed: int = 0, budget: int = 150) -> dict[str, Any]:
    """PostgreSQL is restarted in the middle of searches, away for 0.2 to 1.5 s: nothing ends, nothing is trained again.

    Half of the restarts are clean; the others are crashes, after which the server recovers.
    """
    with servers.postgresql_server() as server:

        def restart(study: interruptions.Target, rng: random.Random) -> bool:
            time.sleep(rng.uniform(0.5, 4.0))
            if study.process is None or study.process.poll() is not None or not study.workers():
                return False
            server.restart(rng.uniform(0.2, 1.5), rng.choice([signal.SIGINT, signal.SIGQUIT]))
            return True

        def new_environment() -> dict[str, str]:
            return {tuning.STORE: servers.fresh_database(server.url)}

        return interruptions.repeat(
            restart, count, again=0, seed=seed, budget=budget, every=EVERY, new_environment=new_environment
        )


def long_epochs(count: int, seconds: float, seed: int = 0, at_once: int = 10) -> dict[str, Any]:
    """SIGTERM to searches in the middle of long epochs, several searches at a time: nothing is trained again."""
    shares = [len(range(start, count, at_once)) for start in range(min(at_once, count))]

    def one(place: int) -> dict[str, Any]:
        return interruptions.repeat(
            interruptions.terminate_driver,
            shares[place],
            again=0,
            seed=seed + place,
            budget=4 * shares[place],
            every=10,
            seconds=seconds,
            replay=False,
        )

    with ThreadPoolExecutor(len(shares)) as pool:
        found = list(pool.map(one, range(len(shares))))
    sums = ("studies", "interruptions", "epochs", "acknowledged", "trained_again", "taken_over")
    return {"epoch_seconds": seconds, "seed": seed} | {key: sum(part[key] for part in found) for key in sums}


def power_losses(count: int, seed: int = 0, budget: int = 60) -> dict[str, Any]:
    """Copies of database and checkpoints, each of one instant, as after a power loss: each is continued to its end."""
    rng, reports = random.Random(seed), []
    while len(reports) < count:
        with (
            tempfile.TemporaryDirectory(prefix="freezethaw-copies-") as home,
            interruptions.target(budget, EVERY, seed + len(reports), 0.03) as study,
        ):
            copies: list[Path] = []
            process = study.start()
            while process.poll() is None and len(reports) + len(copies) < count:
                time.sleep(rng.uniform(0.1, 0.7))
                if study.workers():
                    copies.append(Path(home) / str(len(copies)))
                    with _stopped(process):
                        shutil.copytree(study.folder, copies[-1], ignore=shutil.ignore_patterns("*-shm"))
            study.finish()
            for copy in copies:
                again = interruptions.Target(copy, budget, EVERY, study.seed, study.seconds)
                again.start()
                again.finish()
                reports.append(interruptions.audit(again, allowed=WORKERS * EVERY, replay=False))
                print(f"  {len(reports)}/{count} {reports[-1]}", flush=True)
    total: dict[str, Any] = {key: sum(report[key] for report in reports) for key in reports[0]}
    return {"copies": len(reports), "seed": seed, "every": EVERY} | total


@contextmanager
def _stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    """All processes of a search stand still, so that a copy is of one instant."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    everyone = [process.pid, *map(int, children)]
    _signal(everyone, signal.SIGSTOP)
    try:
        time.sleep(0.02)
        yield
    finally:
        _signal(everyone, signal.SIGCONT)


def _signal(processes: list[int], number: signal.Signals) -> None:
    for pid in processes:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


SLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int fsync(int file) { usleep(DELAY); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file); }
int fdatasync(int file) { usleep(DELAY); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(file); }
"""


def slow_disk(kills: int, milliseconds: int = 50, seed: int = 0, budget: int = 60) -> dict[str, Any]:
    """A delay on every fsync, as on a disk behind a network, while workers are killed."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "slow.c", Path(folder) / "slow.so"
        source.write_text(SLOW)
        build = ["cc", "-shared", "-fPIC", f"-DDELAY={1000 * milliseconds}", "-o", library, source, "-ldl"]
        subprocess.run(build, check=True)
        begin = time.perf_counter()
        found = interruptions.repeat(
            interruptions.signal_worker(signal.SIGKILL),
            kills,
            again=EVERY,
            seed=seed,
            budget=budget,
            every=EVERY,
            replay=False,
            new_environment=lambda: {"LD_PRELOAD": str(library)},
        )
        took = time.perf_counter() - begin
    return found | {"fsync_ms": milliseconds, "epochs_per_second": round(found["epochs"] / took, 1)}
