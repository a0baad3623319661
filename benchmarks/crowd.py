"""64 simulated workers on a study of 500 runs of 50 epochs: no duplicates, quick answers, hardly any idling.

python -m benchmarks.crowd                      three stages; benchmarks/results/crowd.json
python -m benchmarks.crowd --decisions 20

Training takes simulated time, decisions are real: each worker comes back when its epoch is over, waits until nobody
else is being answered, tells its loss and asks, on a study in SQLite. How much the workers idle follows from what
that took on this machine: by the clock, and by the seconds of one core, which is what it takes where nobody else wants
the machine. Stages: the study begins, or has a share of its 25,000 epochs already, of all lengths.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import freezethaw as ft
from freezethaw.records import StudyState
from freezethaw.store import Store

RESULTS = Path(__file__).parent / "results" / "crowd.json"
WORKERS, RUNS, EPOCHS = 64, 500, 50
SECONDS = 60.0  # of an epoch, give or take a quarter
ALLOWED = 0.02  # of the workers' time
Turn = tuple[float, float]  # seconds that an answer took, and the length of the epoch after it, 1 on average
SPACE = ft.Space(
    rate=ft.Float(1e-5, 1.0, log=True),
    decay=ft.Float(1e-6, 1e-1, log=True),
    units=ft.Int(16, 1024, log=True),
    dropout=ft.Float(0.0, 0.8),
    kind=ft.Choice("sgd", "adam"),
)


def loss(config: Any, epoch: int) -> float:
    """A curve that falls to a level, both smooth in the configuration; with a little noise."""
    cube = SPACE.unit(config)
    level = 0.2 + float(np.sum((cube - 0.4) ** 2))
    pace = 2.0 + 8.0 * float(cube[0])
    noise = np.random.default_rng([epoch, *(int(1e6 * x) for x in cube)]).normal()
    return level + 2.0 * (pace / (epoch + pace)) + 0.01 * float(noise)


def begun(store: str, share: float, seed: int) -> ft.Study:
    """A study in which about this share of all epochs was trained: few runs are long, as searches leave them."""
    rng = np.random.default_rng(seed)
    study = ft.Study(SPACE, EPOCHS, name="crowd", seed=seed)
    lengths = np.minimum(EPOCHS, 1 + rng.exponential(share * EPOCHS, size=RUNS)).astype(int) if share else []
    configs = [SPACE.sample(rng) for _ in lengths]
    runs = tuple(
        ft.Run(number, config, tuple(loss(config, e) for e in range(1, length + 1)), (SECONDS,) * length)
        for number, (config, length) in enumerate(zip(configs, map(int, lengths), strict=True), 1)
    )
    with Store(store) as made:
        made.save("crowd", StudyState(0, 1, study.definition.to_dict(), runs, decisions=len(runs)))
    return ft.Study.open(store, "crowd")


def simulate(share: float, decisions: int, seed: int = 0) -> dict[str, Any]:
    """Let the workers take so many decisions, after one each to begin with."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        study = begun(f"sqlite:///{folder}/study.db", share, seed)
        known, observed = len(study.runs), sum(run.epoch for run in study.runs)
        asks, turns, cores, waited = [], [], [], 0
        work: dict[int, ft.Decision] = {}
        free = [(0.0, worker) for worker in range(WORKERS)]  # when each comes back
        while len(turns) < WORKERS + decisions:
            came, worker = heapq.heappop(free)
            begin, of_core = time.perf_counter(), time.process_time()
            if worker in work:
                done = work.pop(worker)
                losses = [loss(done.config, e) for e in range(done.from_epoch + 1, done.to_epoch + 1)]
                study.tell(done, losses, seconds=[SECONDS] * len(losses))
            asked = time.perf_counter()
            try:
                work[worker] = study.ask()
            except ft.AllPending:
                waited += 1
            now = time.perf_counter()
            asks.append(now - asked)
            length = float(rng.uniform(0.75, 1.25))
            turns.append((now - begin, length))
            cores.append((time.process_time() - of_core, length))
            # who comes back next does not depend on how long answers take: with epochs of a minute that is little
            heapq.heappush(free, (came + length * SECONDS, worker))
        pending = [d.run for d in study.pending]
        runs = study.runs
        study.close()
    started = [json.dumps(dict(run.config), sort_keys=True) for run in runs]
    late = np.array(asks[WORKERS:])
    return {
        "observed_before": observed,
        "runs_before": known,
        "runs_after": len(runs),
        "decisions": len(late),
        "duplicates": sum(count - 1 for count in Counter(started).values()),
        "run_given_to_two": sum(count - 1 for count in Counter(pending).values()),
        "all_pending": waited,
        "ask_seconds": _quantiles(late),
        "first_asks_seconds": _quantiles(asks[:WORKERS]),
        "turn": _summary(turns[WORKERS:]),
        "turn_of_one_core": _summary(cores[WORKERS:]),
    }


def _summary(turns: Sequence[Turn]) -> dict[str, Any]:
    """What telling and asking took, and what that means for 64 workers."""
    return {
        "seconds": _quantiles([seconds for seconds, _ in turns]),
        "idle_share": round(idle(turns, SECONDS), 5),
        "shortest_epoch_seconds": shortest(turns),
    }


def idle(turns: Sequence[Turn], seconds: float) -> float:
    """The share of the workers' time that is spent waiting for an answer, where an epoch takes so long on average.

    The answers take as long as they did; one worker is answered at a time.
    """
    durations = [duration for duration, _ in turns]
    lengths = [seconds * length for _, length in turns]
    rounds = max(1, 5 * WORKERS // len(durations) + 1)
    free = [seconds * worker / WORKERS for worker in range(WORKERS)]  # as they have spread out by then
    heapq.heapify(free)
    decider = idling = working = 0.0
    for duration, length in zip(durations * rounds, lengths * rounds, strict=True):
        came = heapq.heappop(free)
        decider = max(came, decider) + duration
        idling, working = idling + decider - came, working + length
        heapq.heappush(free, decider + length)
    return idling / (idling + working)


def shortest(turns: Sequence[Turn]) -> float:
    """Seconds of the shortest epoch at which the workers idle no more than allowed."""
    low, high = 0.01, 10_000.0
    for _ in range(40):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if idle(turns, middle) <= ALLOWED else (middle, high)
    return round(high, 1)


def _quantiles(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    found = np.quantile(values, [0.5, 0.95, 1.0])
    return {name: round(float(value), 3) for name, value in zip(("median", "p95", "worst"), found, strict=True)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowd")
    parser.add_argument("--decisions", type=int, default=40, help="of each stage, after the first of each worker")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.1, 0.9])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    found: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count(), "workers": WORKERS}
    found |= {"commit": commit.stdout.strip(), "epoch_seconds": SECONDS, "seed": given.seed, "stages": []}
    for share in given.shares:
        load, begin = os.getloadavg()[0], time.perf_counter()
        stage = simulate(share, given.decisions, given.seed) | {"load_before": round(load, 1)}
        found["stages"].append(stage | {"seconds_in_all": round(time.perf_counter() - begin, 1)})
        print(found["stages"][-1], flush=True)
        given.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
