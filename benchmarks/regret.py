"""Normalised regret against epochs spent, on tables of real curves, beside recorded rivals.

    python -m benchmarks.regret --suite taskset --seeds 5          the table as candidates
    python -m benchmarks.regret --mode free                        proposals in the whole space, nearest unused row
    python -m benchmarks.regret --workers 8                        eight concurrent decisions
    python -m benchmarks.regret --suite lcbench --clock seconds    with the seconds of each epoch
    python -m benchmarks.regret --suite slow-lcbench --variant no-surprises --constant policy.surprise.SURPRISE=0
                                                                    real curves made harder; a changed constant
    python -m benchmarks.regret --all                              all of these, and 1000 epochs on four tables each
    python -m benchmarks.regret --report [--by-table]              the tables of the published summary
    python -m benchmarks.regret --floor 8                          the lowest possible regret with eight workers

Regret is (loss of the recommendation - best in the table) / (median final loss - best in the table), at most 1. If a
table has several seeds, one is drawn for each run, and a recommendation is scored by the mean over seeds. Raw records
are written to build/regret, and simulations that are recorded there are not repeated. `python -m benchmarks.records`
adds them to the summary, benchmarks/results/regret.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from benchmarks import records, report, tables
from benchmarks.ours import Setup, run_simulation
from benchmarks.report import HARDER, SUITES
from benchmarks.scores import print_table
from benchmarks.simulate import AT, Simulation


def chosen_tables(suite: str, first: int | None = None, wanted: Sequence[str] | None = None) -> list[str]:
    """Names of the tables of a suite: all, the first ones, or those with a given name or suffix."""
    harder, _, real = suite.rpartition("-")
    names = [f"{harder}-{t.name}" if harder else t.name for t in tables.load().values() if t.suite == real]
    if wanted:
        names = [n for n in names if any(n == w or n.endswith((f"/{w}", f"_imdb_{w}")) for w in wanted)]
    return names[:first]


def run(setups: Sequence[Setup], folder: Path, processes: int) -> None:
    """Run the simulations that are not recorded; each is recorded as soon as it ends."""
    found: dict[Path, list[dict]] = {}
    jobs = []
    for setup in setups:
        file = _file(setup, folder)
        if file not in found:
            found[file] = records.read(file)
        if not any((r["table"], r["seed"]) == (setup.table, setup.seed) for r in found[file]):
            jobs.append((setup, file))
    with Pool(processes, maxtasksperchild=8) as pool:
        for i, (file, record) in enumerate(pool.imap_unordered(_run, jobs, chunksize=1), 1):
            found[file].append(record)
            records.save(file, found[file])
            print(
                f"{i} of {len(jobs)}: {record['method']}, {record['table']}, seed {record['seed']}, {record['mode']}:"
            )
            print(f"  {record['regret']}", flush=True)


def _run(job: tuple[Setup, Path]) -> tuple[Path, dict]:
    return job[1], run_simulation(job[0])


def _file(setup: Setup, folder: Path) -> Path:
    suite = setup.table.split("/")[0]
    return folder / f"ours-{setup.label}-{suite}-{setup.mode}-{setup.budget}.json"


def parser_of(description: str) -> argparse.ArgumentParser:
    """Arguments that select simulations."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", nargs="+", default=list(SUITES), choices=SUITES + HARDER, metavar="SUITE")
    parser.add_argument("--tables", type=int, default=None, help="only the first tables of each suite")
    parser.add_argument("--table", nargs="+", default=None, help="only these tables, by name or suffix")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="the first seed; seeds that were not used for development are fairer"
    )
    parser.add_argument("--budget", type=int, default=300, help="epochs (clock seconds: mean epochs of the table)")
    parser.add_argument("--mode", nargs="+", default=["candidates"], choices=["candidates", "free"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=records.RAW)
    return parser


def selected(args: argparse.Namespace) -> list[tuple[str, int, str]]:
    """Table, seed and mode of each simulation, seed by seed, so that early results cover all tables."""
    return [
        (name, seed, mode)
        for seed in range(args.first_seed, args.first_seed + args.seeds)
        for mode in args.mode
        for suite in args.suite
        for name in chosen_tables(suite, args.tables, args.table)
    ]


def constants(texts: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Changed constants from NAME=VALUE, such as policy.surprise.SPREAD=0.5."""
    pairs = [text.partition("=") for text in texts]
    return tuple((name, float(value)) for name, _, value in pairs)


def every_kind(args: argparse.Namespace) -> list[Setup]:
    """The complete benchmark: both modes, eight workers, seconds, and long simulations on a few tables."""
    simulations = [(name, seed) for name, seed, mode in selected(args) if mode == args.mode[0]]
    setups = [Setup(name, seed, args.budget, mode) for mode in ("candidates", "free") for name, seed in simulations]
    setups += [Setup(name, seed, args.budget, workers=8) for name, seed in simulations]
    setups += [
        Setup(name, seed, args.budget, clock="seconds") for name, seed in simulations if name.startswith("lcbench/")
    ]
    few = [name for suite in args.suite for name in chosen_tables(suite, args.tables, args.table)[:4]]
    return setups + [Setup(name, seed, 1000) for name, seed in simulations if name in few and seed < 3]


def print_floor(args: argparse.Namespace) -> None:
    """Print the lowest possible regret: with W workers no run can have more than 1 / W of all epochs."""
    body = []
    for suite in args.suite:
        simulations = [Simulation(t, 0, 1) for t in tables.load().values() if t.suite == suite]
        means = [np.mean([simulation.floor(at // args.floor) for simulation in simulations]) for at in AT]
        body.append([suite, *(f"{mean:.3f}" for mean in means)])
    print_table([f"floor of {args.floor} workers", *map(str, AT)], body)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--policy", default=None, help="by default that of the study")
    parser.add_argument("--model", default=None, help="by default that of the study")
    parser.add_argument("--variant", default=None, help="a name for these simulations")
    parser.add_argument(
        "--constant", nargs="+", default=[], metavar="NAME=VALUE", help="change constants of the package, by full name"
    )
    parser.add_argument("--workers", type=int, default=1, help="number of concurrent decisions")
    parser.add_argument("--clock", default="epochs", choices=["epochs", "seconds"])
    parser.add_argument("--all", action="store_true", help="all kinds of simulations, on the selected tables and seeds")
    parser.add_argument(
        "--report", action="store_true", help="only print the published summary, or with --out the raw records"
    )
    parser.add_argument(
        "--by-table", action="store_true", help="with the report: table by table, against the best rival"
    )
    parser.add_argument("--baseline", default=report.OURS, help="with the report: the method to compare with")
    parser.add_argument("--floor", type=int, help="only print the lowest possible regret with this number of workers")
    args = parser.parse_args()
    if args.floor is not None:
        if not 1 <= args.floor <= min(AT):
            parser.error(f"--floor takes 1 to {min(AT)} workers, not {args.floor}")
        print_floor(args)
        return
    if not args.report:
        chosen = (args.policy, args.model, args.workers, args.clock, args.variant)
        setups = (
            every_kind(args)
            if args.all
            else [
                Setup(name, seed, args.budget, mode, *chosen, constants(args.constant))
                for name, seed, mode in selected(args)
            ]
        )
        run(setups, args.out, args.processes)
    found = records.published() if args.report and args.out == records.RAW else records.everything(args.out)
    summary = report.report(found, args.baseline, args.by_table)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
