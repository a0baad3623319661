"""Ten thousand decisions in one study, one after the other: seconds of each, and memory, as the study grows.

    python -m benchmarks.endurance                 a table, and benchmarks/results/endurance.json
    python -m benchmarks.endurance --decisions 500 --out build/endurance.json

Nothing is enqueued: the study grows as its own decisions make it. Curves are those of `benchmarks.latency`.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

import freezethaw as ft
from benchmarks import records
from benchmarks.latency import DIMENSIONS, MAX_EPOCHS, curve, space
from benchmarks.scores import print_table

RESULTS = Path(__file__).parent / "results" / "endurance.json"
COLUMNS = ["decisions", "runs", "median", "p99", "worst", "megabytes"]


def megabytes() -> float:
    """Memory in use now, not the most there ever was: what leaks does not come back."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def endure(decisions: int, every: int, seed: int = 0):
    """After every so many decisions: how long they took, and what the study then holds."""
    rng = np.random.default_rng(seed)
    study = ft.Study(space(), max_epochs=MAX_EPOCHS, seed=seed)
    seconds: list[float] = []
    for count in range(1, decisions + 1):
        start = time.perf_counter()
        decision = study.ask()
        x = np.array([decision.config[f"x{i}"] for i in range(DIMENSIONS)])
        study.tell(decision, curve(x, decision.to_epoch, rng)[decision.from_epoch :])
        seconds.append(time.perf_counter() - start)
        if count % every == 0:
            yield {
                "decisions": count,
                "runs": len(study.runs),
                "median": float(np.median(seconds)),
                "p99": float(np.quantile(seconds, 0.99)),
                "worst": max(seconds),
                "megabytes": megabytes(),
            }
            seconds.clear()


def main() -> None:
    """Run, print and keep; what was measured so far is kept if it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=500, help="decisions between two lines (default 500)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    found = []
    for line in endure(args.decisions, args.every):
        found.append(line)
        print(json.dumps(line), flush=True)
        records.write(args.out, {"rows": found})
    print_table(COLUMNS, [[f"{line[column]:.4g}" for column in COLUMNS] for line in found])


if __name__ == "__main__":
    main()
