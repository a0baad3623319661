"""Fault tests of the Ray engine on a real cluster of two nodes on this machine, and its overhead.

python -m benchmarks.faults.ray                     all of it; benchmarks/results/ray.json
python -m benchmarks.faults.ray --only interruptions --share 0.1

The nodes are processes of one machine, so that a dead worker is known to be dead at once; on several machines its run
is taken over when its lease has been silent for a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import freezethaw as ft
from benchmarks.faults import interruptions, overhead, tuning
from freezethaw.runtime.ray import library
from freezethaw.trainers.protocol import TrainingRun

RESULTS = Path(__file__).parents[1] / "results" / "ray.json"
EVERY = 3  # epochs between checkpoints
FIGURES = "FREEZETHAW_RAY_FIGURES"  # environment: a folder for the figures of workers


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """Two nodes for a number of workers each, and a head without workers, with a token of its own."""
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    library()
    from ray.cluster_utils import Cluster

    quiet = {"include_dashboard": False, "object_store_memory": 100_000_000}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **quiet})
    try:
        for _ in range(2):
            found.add_node(num_cpus=workers, **quiet)
        yield found
    finally:
        found.shutdown()


def with_kills(
    place: Any, budget: int, workers: int, kills: int, drivers: int, seconds: str, seed: int = 0, replay: bool = True
) -> dict[str, Any]:
    """A study in which actors, a node with all of its actors, and the driver are killed; and everything checked."""
    rng, arguments = random.Random(seed), ("--ray", place.address, "--workers", str(workers))
    begin = time.monotonic()
    with interruptions.target(budget, EVERY, seed, seconds, arguments) as study:
        study.start()
        planned = [_kill_actor] * kills + [_kill_driver] * drivers + [_kill_node]
        rng.shuffle(planned)
        lost = 0
        for number, interrupt in enumerate(planned, 1):
            _wait(study, budget * number // (len(planned) + 2))
            ended = interrupt(study, place, rng)
            print(f"  {interrupt.__name__}: {ended} worker(s)", flush=True)
            lost += ended
            study.watch()
        study.finish()
        found = interruptions.audit(study, lost * EVERY, replay)
    killed = {"actors_killed": kills, "nodes_killed": 1, "drivers_killed": drivers, "workers_lost": lost}
    return {"workers": workers, "epoch_seconds": seconds, "seed": seed} | killed | found | _pace(begin, budget)


def _pace(begin: float, epochs: int) -> dict[str, float]:
    seconds = time.monotonic() - begin
    return {"seconds": round(seconds, 1), "epochs_per_second": round(epochs / seconds, 2)}


def _wait(study: interruptions.Target, epochs: int) -> None:
    """Until so many epochs were acknowledged."""
    end = time.monotonic() + interruptions.PATIENCE
    while _acknowledged(study) < epochs:
        if time.monotonic() > end:
            raise interruptions.Broken(f"no {epochs} epochs within {interruptions.PATIENCE} s: {study.errors()}")
        if study.process is None or study.process.poll() is not None:
            raise interruptions.Broken(f"the driver ended: {study.errors()}")
        time.sleep(0.1)


def _acknowledged(study: interruptions.Target) -> int:
    return sum(log.read_text().count("recorded") for log in study.folder.glob("*.log"))


def _workers(study: interruptions.Target) -> list[int]:
    """Processes that have had a loss acknowledged and live."""
    known = [int(log.stem) for log in study.folder.glob("*.log") if "recorded" in log.read_text()]
    return [process for process in known if _runs(process)]


def _runs(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _some_workers(study: interruptions.Target) -> list[int]:
    """At least one: after the driver or a node was killed, the new workers are still starting."""
    end = time.monotonic() + interruptions.PATIENCE
    while not (pids := _workers(study)):
        if time.monotonic() > end or study.process is None or study.process.poll() is not None:
            raise interruptions.Broken(f"there is no worker to kill: {study.errors()}")
        time.sleep(0.1)
    return pids


def _kill_actor(study: interruptions.Target, _: Any, rng: random.Random) -> int:
    os.kill(rng.choice(_some_workers(study)), signal.SIGKILL)
    return 1


def _kill_node(study: interruptions.Target, place: Any, _: random.Random) -> int:
    """With all of its actors; a new one comes in its place."""
    node = min(place.worker_nodes, key=lambda n: n.node_id)
    cpus = node.get_resource_and_label_spec().num_cpus
    before = _workers(study)
    place.remove_node(node, allow_graceful=False)
    time.sleep(1.0)  # its actors notice, and end
    gone = [process for process in before if not _runs(process)]
    place.add_node(num_cpus=cpus, include_dashboard=False, object_store_memory=100_000_000)
    return len(gone)


def _kill_driver(study: interruptions.Target, _: Any, __: random.Random) -> int:
    """Kill -9 of the process that the user started, with which Ray ends its actors; then the same command again."""
    pids = _some_workers(study)
    assert study.process is not None
    study.process.kill()
    study.process.communicate()
    study.start()
    return len(pids)


@cache
def _measure() -> None:
    """Once in each process."""
    overhead._measure_all()


def measured(run: TrainingRun) -> None:
    """What the workers run when the overhead is measured; their timings are written after each decision."""
    _measure()
    if os.environ.get(tuning.SECONDS):
        overhead.EPOCH = tuning.seconds(run.number)
    overhead.train(run)
    overhead._spent["wall"] = time.perf_counter() - overhead._first[0]
    (Path(os.environ[FIGURES]) / f"{os.getpid()}.json").write_text(json.dumps(overhead._spent))


def cost(place: Any, epochs: int, workers: int, seconds: str) -> dict[str, Any]:
    """Milliseconds an epoch besides training and deciding, of all workers together."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {FIGURES: folder, tuning.SECONDS: seconds}
        engine = ft.RayEngine(address=place.address, runtime_env={"env_vars": environment})
        begin = time.monotonic()
        store = f"sqlite:///{folder}/study.db"
        ft.tune(measured, overhead.SPACE, 50, epochs, store=store, workers=workers, engine=engine)
        pace = _pace(begin, epochs)
        total: dict[str, float] = {}
        for file in Path(folder).glob("*.json"):
            for name, value in json.loads(file.read_text()).items():
                total[name] = total.get(name, 0.0) + value
        (Path(folder) / "total").write_text(json.dumps(total))
        return {"workers": workers, "epoch_seconds": seconds} | overhead._broken_down(Path(folder) / "total") | pace


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.ray")
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--long-epoch", type=float, default=60.0, help="seconds of a long epoch")
    parser.add_argument("--only", nargs="+", help="parts; the results of others are kept")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    from benchmarks.faults import ray as parts  # noqa: PLW0406 - under its own name, as the workers import it

    found: dict[str, Any] = json.loads(given.output.read_text()) if given.only and given.output.exists() else {}
    found |= {"python": platform.python_version(), "cores": os.cpu_count(), "ray": library().__version__}
    count = lambda full: max(8, round(full * given.share))  # noqa: E731
    kills = {"kills": 4, "drivers": 1, "seconds": "0.1 1.0", "seed": given.seed}
    with parts.cluster(workers=4) as place:
        plan: dict[str, Callable[[], dict[str, Any]]] = {
            "overhead_one": lambda: parts.cost(place, count(500), 1, "0.001"),
            "overhead_eight": lambda: parts.cost(place, count(400), 8, "0.1 1.0"),
            "interruptions": lambda: parts.with_kills(place, count(1000), 8, **kills),
            "long_epochs": lambda: parts.with_kills(place, count(32), 8, 1, 1, str(given.long_epoch), given.seed),
        }
        for name, scenario in plan.items():
            if given.only and name not in given.only:
                continue
            print(name, flush=True)
            load = os.getloadavg()[0]
            found[name] = scenario() | {"load_before": round(load, 1), "share": given.share, "commit": _commit()}
            print(f"  {found[name]}", flush=True)
            given.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
