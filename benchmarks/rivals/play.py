"""Plays rivals on the tables and records their regret; see the package for how to run it."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import tables
from benchmarks.rivals import recorded
from benchmarks.rivals.seat import CAPS, Seat
from benchmarks.simulate import Game, Over

RESULTS = Path(__file__).parents[1] / "results" / "regret"


@dataclass(frozen=True)
class Method:
    """A rival: what it is called in the records, the function that plays it, the distribution it comes from."""

    label: str
    function: str  # module:function, imported when it is played: each needs its own libraries
    package: str
    maps: tuple[str, ...]  # modes in which proposals are mapped to the nearest row
    capped: bool = False

    @property
    def same_in_both(self) -> bool:
        """Whether it plays the same game in both modes, since it cannot choose among candidates."""
        return "candidates" in self.maps


METHODS = {
    "random": Method("random", "plain:random", "numpy", ("free",)),
    "asha-paper": Method("ASHA promotion (rule of the paper)", "plain:asha", "numpy", ("free",)),
    "asha": Method("ASHA promotion (Syne Tune)", "of_syne_tune:asha", "syne_tune", ("free",)),
    "tpe-hyperband": Method("TPE + Hyperband (Optuna)", "of_optuna:tpe_hyperband", "optuna", ("candidates", "free")),
    "tpe-median": Method("TPE + median (Optuna)", "of_optuna:tpe_median", "optuna", ("candidates", "free")),
    "gp-full": Method("GP-EI full runs (Optuna)", "of_optuna:gp_full", "optuna", ("candidates", "free"), True),
    "mobster": Method("MOBSTER (Syne Tune)", "of_syne_tune:mobster", "syne_tune", ("free",), True),
    "dyhpo": Method("DyHPO (Syne Tune)", "of_syne_tune:dyhpo", "syne_tune", ("free",), True),
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
    spent = game.spent
    game.curve += [game.curve[-1]] * (budget - spent)  # whoever has used all rows keeps the recommendation
    cap = CAPS.get(game.table.suite) if method.capped else None
    return {
        "method": method.label,
        "version": f"{method.package} {importlib.metadata.version(method.package)}",
        "table": name,
        "seed": seed,
        "mode": mode,
        "regret": game.regrets(),
        "seconds": {"median": float(np.median(seat.seconds)), "p99": float(np.quantile(seat.seconds, 0.99))},
        "runs": len(seat.used),
        "diverged": int(game.diverged.sum()),
        "budget": budget,
        "spent": spent,
        "mapped": mode in method.maps,
        **({"capped": cap} if cap is not None else {}),
    }


def save(file: Path, found: list[dict]) -> None:
    """Writes the records of one file whole, so that what is there can always be read."""
    draft = file.with_suffix(".part")
    draft.write_text(json.dumps(sorted(found, key=lambda r: (r["table"], r["seed"])), indent=0))
    draft.replace(file)


def play_suite(key: str, names: list[str], suite: str, seeds: int, budget: int, mode: str) -> None:
    """All games of a rival on a suite that are not recorded yet, each written as soon as it is played."""
    modes = ["candidates", "free"] if METHODS[key].same_in_both else [mode]
    files = [RESULTS / f"rival-{key}-{suite}-{m}.json" for m in modes]
    found = json.loads(files[0].read_text()) if files[0].exists() else []
    known = {(r["table"], r["seed"]) for r in found if r["budget"] >= budget}
    for seed in range(seeds):
        for name in names:
            if (name, seed) in known:
                continue
            record = play(key, name, seed, budget, modes[0])
            found = [r for r in found if (r["table"], r["seed"]) != (name, seed)] + [record]
            for m, file in zip(modes, files, strict=True):
                save(file, [r | {"mode": m} for r in found])
            print(key, name, seed, mode, record["regret"], record["seconds"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", nargs="+", default=list(METHODS), choices=[*METHODS, "ifbo"])
    parser.add_argument("--suite", nargs="+", default=["taskset", "lcbench", "arlbench"])
    parser.add_argument("--tables", type=int, default=None, help="only the first tables of each suite")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--mode", default="candidates", choices=["candidates", "free"])
    args = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    if "ifbo" in args.method:
        save(RESULTS / "rival-ifbo.json", recorded.ifbo())
    for key in (k for k in args.method if k in METHODS):
        for suite in args.suite:
            names = [t.name for t in tables.load().values() if t.suite == suite][: args.tables]
            play_suite(key, names, suite, args.seeds, args.budget, args.mode)


if __name__ == "__main__":
    main()
