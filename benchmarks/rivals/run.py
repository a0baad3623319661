"""Run simulations of rivals on the tables and record their regret; see the package for the command."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import records, tables
from benchmarks.rivals import recorded
from benchmarks.rivals.session import CAPS, Session
from benchmarks.simulate import Simulation, SimulationEnded

Plan = tuple[tuple[int, int | None, int], ...]  # budget in epochs, how many tables of each suite, seeds
QUICK: Plan = ((1000, None, 5),)
GAUSSIAN: Plan = ((300, None, 5), (1000, 4, 3))
SLOW: Plan = ((200, 4, 2),)  # minutes per simulation


@dataclass(frozen=True)
class Method:
    """A rival: its name in reports, its function and its distribution."""

    label: str
    function: str  # module:function, imported on use: each needs its own libraries
    package: str
    maps: tuple[str, ...]  # modes in which proposals are mapped to the nearest row
    capped: bool = False
    plan: Plan = QUICK

    @property
    def same_in_both(self) -> bool:
        """Whether both modes are the same, since it cannot choose among candidates."""
        return "candidates" in self.maps


BOTH = ("candidates", "free")
METHODS = {
    "random": Method("random", "plain:random", "numpy", ("free",)),
    "asha-paper": Method("ASHA promotion (rule of the paper)", "plain:asha", "numpy", ("free",)),
    "asha": Method("ASHA promotion (Syne Tune)", "syne_tune:asha", "syne_tune", ("free",)),
    "tpe-hyperband": Method("TPE + Hyperband (Optuna)", "optuna:tpe_hyperband", "optuna", BOTH),
    "tpe-median": Method("TPE + median (Optuna)", "optuna:tpe_median", "optuna", BOTH),
    "dehb": Method("DEHB", "dehb:dehb", "dehb", BOTH),
    "gp-full": Method("GP-EI full runs (Optuna)", "optuna:gp_full", "optuna", BOTH, True, GAUSSIAN),
    "gp-median": Method("GP + median (Optuna)", "optuna:gp_median", "optuna", BOTH, True, GAUSSIAN),
    "mobster": Method("MOBSTER (Syne Tune)", "syne_tune:mobster", "syne_tune", ("free",), True, SLOW),
    "dyhpo": Method("DyHPO (Syne Tune)", "syne_tune:dyhpo", "syne_tune", ("free",), True, SLOW),
}


def run_simulation(key: str, name: str, seed: int, budget: int, mode: str) -> dict:
    """Run one simulation and return its record."""
    method = METHODS[key]
    module, function = method.function.split(":")
    simulator = getattr(importlib.import_module(f"benchmarks.rivals.{module}"), function)
    simulation = Simulation(tables.find(name), seed, budget)
    session = Session(simulation, mode)
    with suppress(SimulationEnded):
        simulator(session)
    cap = CAPS.get(simulation.table.suite) if method.capped else None
    return {
        "method": method.label,
        "version": f"{method.package} {importlib.metadata.version(method.package)}",
        "table": name,
        "seed": seed,
        "mode": mode,
        **simulation.result(rows_ran_out=True),
        "seconds": {"median": float(np.median(session.seconds)), "p99": float(np.quantile(session.seconds, 0.99))},
        "mapped": mode in method.maps,
        **({"capped": cap} if cap is not None else {}),
    }


def run_suite(key: str, names: list[str], seeds: int, budget: int, mode: str, folder: Path) -> None:
    """Run the simulations of a rival on a suite that are not recorded; each is recorded as soon as it ends."""
    modes = list(BOTH) if METHODS[key].same_in_both else [mode]
    suite = names[0].split("/")[0]
    files = [folder / f"rival-{key}-{suite}-{m}.json" for m in modes]
    found = records.read(files[0])
    known = {(r["table"], r["seed"]) for r in found if r["budget"] >= budget}
    for seed in range(seeds):
        for name in names:
            if (name, seed) in known:
                continue
            record = run_simulation(key, name, seed, budget, modes[0])
            found = [r for r in found if (r["table"], r["seed"]) != (name, seed)] + [record]
            for m, file in zip(modes, files, strict=True):
                records.save(file, [r | {"mode": m} for r in found])
            print(key, name, seed, mode, record["regret"], record["seconds"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", nargs="+", default=[*METHODS, "ifbo"], choices=[*METHODS, "ifbo"])
    parser.add_argument("--suite", nargs="+", default=["taskset", "lcbench", "arlbench"])
    parser.add_argument("--mode", nargs="+", default=list(BOTH), choices=BOTH)
    parser.add_argument("--budget", type=int, default=None, help="epochs; by default the plan of each method")
    parser.add_argument("--tables", type=int, default=None, help="with --budget: only the first tables of each suite")
    parser.add_argument("--seeds", type=int, default=5, help="with --budget")
    parser.add_argument("--out", type=Path, default=records.RAW)
    args = parser.parse_args()
    if "ifbo" in args.method:
        records.save(args.out / "rival-ifbo.json", recorded.ifbo())
    for key in (k for k in args.method if k in METHODS):
        plan = METHODS[key].plan if args.budget is None else ((args.budget, args.tables, args.seeds),)
        for mode in args.mode:
            for suite in args.suite:
                names = [t.name for t in tables.load().values() if t.suite == suite]
                for budget, count, seeds in plan:
                    run_suite(key, names[:count], seeds, budget, mode, args.out)


if __name__ == "__main__":
    main()
