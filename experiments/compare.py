"""Run the comparison: three problems, five methods, five seeds. What is kept already is not run again.

    python -m experiments.compare                                       all of it, on two cores
    python -m experiments.compare --problem pmf --method paper default  some of it
    python -m experiments.compare --quick                               a small version, in a few minutes
    python -m experiments.compare --processes 16 --minutes 9.5          begins no study that would not end in time

A study is kept as soon as it is over, as experiments/results/PROBLEM-METHOD-SEED.json. Only NumPy, SciPy and what
`ft.tune` itself imports are needed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from dataclasses import dataclass
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any

from experiments import results
from experiments.data import DataError
from experiments.methods import METHODS, study
from experiments.problems import PROBLEMS, QUICK

# about how long a study takes on one core, where none is kept yet that says so
MINUTES = {"lda": 8.0, "logistic": 6.0, "pmf": 3.5}
MARGIN = 1.15


@dataclass(frozen=True)
class Job:
    """One study to be run."""

    problem: str
    method: str
    seed: int
    quick: bool
    budget: int | None
    out: Path

    def run(self) -> dict[str, Any]:
        """Run it and keep it."""
        problem = (QUICK if self.quick else PROBLEMS)[self.problem]
        record = study(problem, self.method, self.seed, self.budget)
        results.write(self.out, record)
        return record


def _run(job: Job) -> dict[str, Any]:
    return job.run()


def missing(args: argparse.Namespace, out: Path) -> list[Job]:
    """Studies that are not kept yet, seed by seed, so that an early look covers everything."""
    folders = {out} if args.quick else {out, results.RESULTS}
    return [
        Job(problem, method, seed, args.quick, args.budget, out)
        for seed in range(args.seeds)
        for problem in args.problem
        for method in args.method
        if all(results.read(results.file_of(f, problem, method, seed)) is None for f in folders)
    ]


def expected_minutes(job: Job, known: dict[tuple[str, str], float]) -> float:
    """How long a study will take: as long as the longest of its kind, or as estimated."""
    if job.quick:
        return 0.0
    return known.get((job.problem, job.method), MINUTES[job.problem]) * MARGIN


def run_all(jobs: list[Job], processes: int, minutes: float) -> None:
    """Keep all processes busy, the longest study first that still ends in time."""
    began = time.monotonic()
    known: dict[tuple[str, str], float] = {}
    waiting = list(jobs)
    busy: list[tuple[Job, AsyncResult[dict[str, Any]]]] = []
    with multiprocessing.Pool(processes, maxtasksperchild=1) as pool:
        while waiting or busy:
            left = minutes - (time.monotonic() - began) / 60
            fitting = [job for job in waiting if expected_minutes(job, known) <= left]
            while fitting and len(busy) < processes:
                job = max(fitting, key=lambda j: expected_minutes(j, known))  # ties: the first
                fitting.remove(job)
                waiting.remove(job)
                busy.append((job, pool.apply_async(_run, (job,))))
            if not busy:
                print(f"{len(waiting)} studies would not end in time: run the same command again", flush=True)
                return
            for job, coming in [entry for entry in busy if entry[1].ready()]:
                busy.remove((job, coming))
                _tell(job, coming.get(), len(waiting) + len(busy))
                kind, took = (job.problem, job.method), coming.get()["wall"] / 60
                known[kind] = max(known.get(kind, 0.0), took)
            time.sleep(0.2)


def _tell(job: Job, record: dict[str, Any], left: int) -> None:
    lowest = min((loss for loss in record["losses"] if loss is not None), default=float("nan"))
    training, deciding = sum(record["training"]), sum(record["deciding"])
    print(
        f"{job.problem}, {job.method}, seed {job.seed}: lowest loss {lowest:.5g} in {record['epochs']} epochs of "
        f"{len(record['configs'])} runs; {record['wall']:.0f} s: training {training:.0f}, deciding {deciding:.0f}; "
        f"{left} to go",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--method", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=None, help="how many; 5, or 1 of the small version")
    parser.add_argument("--budget", type=int, default=None, help="epochs of a study, unless the problem's own")
    parser.add_argument("--quick", action="store_true", help="small problems and budgets")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing that would take longer")
    parser.add_argument("--out", type=Path, default=None, help="where to keep new studies")
    args = parser.parse_args()
    args.seeds = args.seeds or (1 if args.quick else 5)
    out = args.out or (results.QUICK_RESULTS if args.quick else results.RESULTS)
    try:
        for problem in args.problem:  # before the processes part, so that they share it
            PROBLEMS[problem].load_data()
    except DataError as error:
        sys.exit(str(error))
    run_all(missing(args, out), args.processes, args.minutes)


if __name__ == "__main__":
    main()
