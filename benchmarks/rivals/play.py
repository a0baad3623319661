"""Plays rivals on the tables and records their regret; see the package for how to run it."""

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
from benchmarks.rivals.seat import CAPS, Seat
from benchmarks.simulate import Game, Over

Plan = tuple[tuple[int, int | None, int], ...]  # budget in epochs, how many tables of each suite, seeds
QUICK: Plan = ((1000, None, 5),)
GAUSSIAN: Plan = ((300, None, 5), (1000, 4, 3))
SLOW: Plan = ((200, 4, 2),)  # minutes for each game


@dataclass(frozen=True)
class Method:
    """A rival: what it is called in the records, the function that plays it, the distribution it comes from."""

    label: str
    function: str  # module:function, imported when it is played: each needs its own libraries
    package: str
    maps: tuple[str, ...]  # modes in which proposals are mapped to the nearest row
    capped: bool = False
    plan: Plan = QUICK

    @property
    def same_in_both(self) -> bool:
        """Whether it plays the same game in both modes, since it cannot choose among candidates."""
        return "candidates" in self.maps


BOTH = ("candidates", "free")
METHODS = {
    "random": Method("random", "plain:random", "numpy", ("free",)),
    "asha-paper": Method("ASHA promotion (rule of the paper)", "plain:asha", "numpy", ("free",)),
    "asha": Method("ASHA promotion (Syne Tune)", "of_syne_tune:asha", "syne_tune", ("free",)),
    "tpe-hyperband": Method("TPE + Hyperband (Optuna)", "of_optuna:tpe_hyperband", "optuna", BOTH),
    "tpe-median": Method("TPE + median (Optuna)", "of_optuna:tpe_median", "optuna", BOTH),
    "dehb": Method("DEHB", "of_dehb:dehb", "dehb", BOTH),
    "gp-full": Method("GP-EI full runs (Optuna)", "of_optuna:gp_full", "optuna", BOTH, True, GAUSSIAN),
    "gp-median": Method("GP + median (Optuna)", "of_optuna:gp_median", "optuna", BOTH, True, GAUSSIAN),
    "mobster": Method("MOBSTER (Syne Tune)", "of_syne_tune:mobster", "syne_tune", ("free",), True, SLOW),
    "dyhpo": Method("DyHPO (Syne Tune)", "of_syne_tune:dyhpo", "syne_tune", ("free",), True, SLOW),
}


def play(key: str, name: str, seed: int, budget: int, mode: str) -> dict:
    """One game; the record of it."""
    method = METHODS[key]
    module, function = method.function.split(":")
    player = getattr(importlib.import_module(f"benchmarks.rivals.{module}"), function)
    game = Game(tables.load()[name], seed, budget)
    seat = Seat(game, mode)
    with suppress(Over):
        player(seat)
    cap = CAPS.get(game.table.suite) if method.capped else None
    return {
        "method": method.label,
        "version": f"{method.package} {importlib.metadata.version(method.package)}",
        "table": name,
        "seed": seed,
        "mode": mode,
        **game.result(rows_ran_out=True),
        "seconds": {"median": float(np.median(seat.seconds)), "p99": float(np.quantile(seat.seconds, 0.99))},
        "mapped": mode in method.maps,
        **({"capped": cap} if cap is not None else {}),
    }


def play_suite(key: str, names: list[str], seeds: int, budget: int, mode: str, folder: Path) -> None:
    """All games of a rival on a suite that are not recorded yet, each written as soon as it is played."""
    modes = list(BOTH) if METHODS[key].same_in_both else [mode]
    suite = names[0].split("/")[0]
    files = [folder / f"rival-{key}-{suite}-{m}.json" for m in modes]
    found = records.read(files[0])
    known = {(r["table"], r["seed"]) for r in found if r["budget"] >= budget}
    for seed in range(seeds):
        for name in names:
            if (name, seed) in known:
                continue
            record = play(key, name, seed, budget, modes[0])
            found = [r for r in found if (r["table"], r["seed"]) != (name, seed)] + [record]
            for m, file in zip(modes, files, strict=True):
                records.save(file, [r | {"mode": m} for r in found])
            print(key, name, seed, mode, record["regret"], record["seconds"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", nargs="+", default=[*METHODS, "ifbo"], choices=[*METHODS, "ifbo"])
    parser.add_argument("--suite", nargs="+", default=["taskset", "lcbench", "arlbench"])
    parser.add_argument("--mode", nargs="+", default=list(BOTH), choices=BOTH)
    parser.add_argument(
        "--budget", type=int, default=None, help="epochs; unless said, all that is planned for a method"
    )
    parser.add_argument("--tables", type=int, default=None, help="with --budget: only the first tables of each suite")
    parser.add_argument("--seeds", type=int, default=5, help="with --budget")
    parser.add_argument("--out", type=Path, default=records.FOLDER)
    args = parser.parse_args()
    if "ifbo" in args.method:
        records.save(args.out / "rival-ifbo.json", recorded.ifbo())
    for key in (k for k in args.method if k in METHODS):
        plan = METHODS[key].plan if args.budget is None else ((args.budget, args.tables, args.seeds),)
        for mode in args.mode:
            for suite in args.suite:
                names = [t.name for t in tables.load().values() if t.suite == suite]
                for budget, count, seeds in plan:
                    play_suite(key, names[:count], seeds, budget, mode, args.out)


if __name__ == "__main__":
    main()
