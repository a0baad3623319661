"""Run the comparison: three problems, five methods, five seeds. Studies that have results are not repeated.

    python -m experiments.compare                                       all of it, on two cores
    python -m experiments.compare --problem pmf --method paper default  some of it
    python -m experiments.compare --quick                               a small version, in a few minutes
    python -m experiments.compare --processes 16 --minutes 9            stop after nine minutes; run again to continue

The record of a study is written when it ends, as build/paper-results/PROBLEM-METHOD-SEED.json, and added to the summary
by `python -m experiments.results`. While a study runs, its state is in build/paper; after an interruption it continues
from there. Only NumPy, SciPy and the imports of `ft.tune` are needed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import results
from experiments.data import DataError
from experiments.methods import METHODS, study
from experiments.problems import PROBLEMS, QUICK, Problem

WORK = Path("build/paper")
MAX_WAIT = 3600.0  # seconds
# approximate seconds of an epoch, including decisions: the longest studies are run first
SECONDS = {"lda": 1.7, "logistic": 0.4, "pmf": 0.2}
CHEAPER = {"paper": 1.0, "default": 0.9, "baseline": 0.8, "random": 0.8, "asha": 0.7}


@dataclass(frozen=True)
class Job:
    """One study to be run."""

    problem: str
    method: str
    seed: int
    quick: bool
    budget: int | None
    out: Path
    work: Path

    def run(self) -> dict[str, Any]:
        """Run it, or continue it, and write its record."""
        folder = self.work / f"{self.problem}-{self.method}-{self.seed}{'-quick' * self.quick}"
        record: dict[str, Any] = study(self._problem, self.method, self.seed, self.budget, folder)
        results.write(self.out, record)
        return record

    @property
    def length(self) -> float:
        """About how many seconds it takes."""
        return (self.budget or self._problem.budget) * SECONDS[self.problem] * CHEAPER[self.method]

    @property
    def _problem(self) -> Problem:
        return (QUICK if self.quick else PROBLEMS)[self.problem]


def _run(job: Job) -> dict[str, Any]:
    return job.run()


def missing(args: argparse.Namespace, out: Path) -> list[Job]:
    """Studies without results, seed by seed, so that early results cover everything."""
    known = set() if args.quick else {(s.problem, s.method, s.seed) for s in results.published().studies}
    return [
        Job(problem, method, seed, args.quick, args.budget, out, args.work)
        for seed in range(args.seeds)
        for problem in args.problem
        for method in args.method
        if (problem, method, seed) not in known and results.read(results.file_of(out, problem, method, seed)) is None
    ]


def run_all(jobs: list[Job], processes: int, minutes: float = float("inf")) -> int:
    """Run studies, the longest first, and stop after some minutes. Returns the number of studies left."""
    until = time.monotonic() + 60 * minutes
    left = len(jobs)
    with multiprocessing.Pool(processes, maxtasksperchild=1) as pool:
        coming = pool.imap_unordered(_run, sorted(jobs, key=lambda job: -job.length), chunksize=1)
        while left:
            try:
                record = coming.next(timeout=min(until - time.monotonic(), MAX_WAIT))
            except multiprocessing.TimeoutError:
                if time.monotonic() >= until:
                    break
                continue
            left -= 1
            _tell(record, left)
    return left  # closing the pool stops the running studies


def _tell(record: dict[str, Any], left: int) -> None:
    lowest = min((loss for loss in record["losses"] if loss is not None), default=float("nan"))
    training, deciding = sum(record["training"]), sum(record["deciding"])
    name = f"{record['problem']}, {record['method']}, seed {record['seed']}"
    print(
        f"{name}: lowest loss {lowest:.5g} in {record['epochs']} epochs of "
        f"{len(record['configs'])} runs; {record['wall']:.0f} s: training {training:.0f}, deciding {deciding:.0f}; "
        f"{left} to go",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--method", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument(
        "--seeds", type=int, default=None, help="number of seeds; by default 5, or 1 for the small version"
    )
    parser.add_argument("--budget", type=int, default=None, help="epochs of a study; by default that of the problem")
    parser.add_argument("--quick", action="store_true", help="small problems and budgets")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--work", type=Path, default=WORK, help="folder for the state of running studies")
    parser.add_argument("--out", type=Path, default=None, help="folder for new records")
    args = parser.parse_args()
    args.seeds = args.seeds or (1 if args.quick else 5)
    out = args.out or (results.QUICK_RESULTS if args.quick else results.RAW)
    try:
        for problem in args.problem:  # before forking, so that processes share the data
            PROBLEMS[problem].load_data()
    except DataError as error:
        sys.exit(str(error))
    left = run_all(missing(args, out), args.processes, args.minutes)
    if left:
        print(f"{left} studies are not finished: the same command continues them")


if __name__ == "__main__":
    main()
