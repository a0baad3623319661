"""Fault tests of the runtime, and its overhead: real processes of `ft.tune` that are killed or stopped.

python -m benchmarks.faults.runtime                 all of it; benchmarks/results/faults_runtime.json
python -m benchmarks.faults.runtime --only kill_parent --share 0.1
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import records, servers
from benchmarks.faults import interruptions, outages, overhead, tuning

RESULTS = Path(__file__).parents[1] / "results" / "faults_runtime.json"
EVERY = 3  # epochs between checkpoints, while processes are killed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.runtime")
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="parts; the results of others are kept")
    parser.add_argument("--long-epoch", type=float, default=60.0, help="seconds of a long epoch")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    found: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count()}
    if given.only and given.output.exists():
        found = json.loads(given.output.read_text()) | found

    def count(full: int) -> int:
        return max(1, round(full * given.share))

    terminate, kill = interruptions.signal_worker(signal.SIGTERM), interruptions.signal_worker(signal.SIGKILL)
    plan: dict[str, Callable[[], dict[str, Any]]] = {
        "kill_parent": lambda: interruptions.repeat(
            interruptions.kill_parent(), count(30), again=0, seed=given.seed, every=EVERY
        ),
        "kill_parent_postgresql": lambda: _on_postgresql(interruptions.kill_parent(), count(30), given.seed),
        "terminate_worker": lambda: interruptions.repeat(terminate, count(50), again=0, seed=given.seed, every=EVERY),
        "kill_worker": lambda: interruptions.repeat(kill, count(50), again=EVERY, seed=given.seed, every=EVERY),
        "restart_postgresql": lambda: outages.restarts(count(20), given.seed),
        "terminate_in_long_epochs": lambda: outages.long_epochs(count(20), given.long_epoch, given.seed),
        "power_losses": lambda: outages.power_losses(count(20), given.seed),
        "slow_disk": lambda: outages.slow_disk(count(10), seed=given.seed),
        "overhead_inline": lambda: _apart(overhead.inline, count(500)),
        "overhead_process": lambda: overhead.process(count(500)),
        "two_workers": lambda: overhead.two_workers(count(60)),
        "large": lambda: _apart(overhead.large, count(1000)),
    }
    for name, scenario in plan.items():
        if given.only and name not in given.only:
            continue
        print(name, flush=True)
        begin, load = time.perf_counter(), os.getloadavg()[0]
        result = scenario()
        busy = {"load_before": round(load, 1), "share": given.share}
        found[name] = result | busy | {"seconds_in_all": round(time.perf_counter() - begin, 1)}
        print(f"  {found[name]}", flush=True)
        records.write(given.output, found)
    return 0


def _on_postgresql(interrupt: interruptions.Interrupt, count: int, seed: int) -> dict[str, Any]:
    """Interruptions of studies that are on a PostgreSQL server."""
    with servers.postgresql() as server:
        new = lambda: {tuning.STORE: servers.fresh_database(server)}  # noqa: E731
        return interruptions.repeat(interrupt, count, again=0, seed=seed, every=EVERY, new_environment=new)


def _apart(measure: Callable[[int], dict[str, Any]], size: int) -> dict[str, Any]:
    """In a process of its own, which may be patched and whose memory is fresh."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (size,))


if __name__ == "__main__":
    sys.exit(main())
