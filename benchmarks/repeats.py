"""The effect of `repeats` on ARLBench, where every start of a configuration draws a new seed.

    python -m benchmarks.repeats                        a table, and build/repeats.json
    python -m benchmarks.repeats --repeats 1 3 --seeds 2

Recommendations are scored by the mean over all seeds of the table, as in `benchmarks.regret`.
"""

from __future__ import annotations

import argparse
import json
from multiprocessing import Pool
from pathlib import Path

import numpy as np

import freezethaw as ft
from benchmarks import tables
from benchmarks.scores import print_table
from benchmarks.simulate import Simulation

AT = (50, 100, 200)


def simulate(job: tuple[str, int, int]) -> dict:
    """One simulation. A start of a row draws a seed that no other run of the row has, while there is one."""
    name, repeats, seed = job
    table = tables.load()[name]
    simulation = Simulation(table, seed, max(AT))  # for its configurations and the scale of the regret
    rng = np.random.default_rng([seed, 1, *name.encode()])
    sign = -1.0 if table.maximise else 1.0
    study = ft.Study(
        simulation.space,
        max_epochs=table.epochs,
        seed=seed,
        direction="maximize" if table.maximise else "minimize",
        candidates=simulation.configs,
        budget=max(AT),
        repeats=repeats,
    )
    rows = {simulation.space.key(config): row for row, config in enumerate(simulation.configs)}
    curves: dict[int, np.ndarray] = {}
    row_of: dict[int, int] = {}
    regret, spent = {}, 0
    while spent < max(AT):
        decision = study.ask()
        if decision.run not in curves:
            row = row_of[decision.run] = rows[simulation.space.key(decision.config)]
            place = sum(r == row for r in row_of.values()) - 1
            order = np.random.default_rng([seed, row]).permutation(table.losses.shape[1])
            pick = order[place] if place < len(order) else rng.integers(len(order))
            curves[decision.run] = sign * table.losses[row, pick]
        losses = curves[decision.run][decision.from_epoch : decision.to_epoch]
        losses = losses[: 1 + int(np.argmin(np.isfinite(losses)))] if not np.isfinite(losses).all() else losses
        study.tell(decision, [float(loss) for loss in losses])
        spent += len(losses)
        for at in AT:
            if at <= spent and at not in regret:
                best = study.recommended
                true = simulation.true[row_of[best.run], best.epoch - 1] if best else np.inf
                regret[at] = float(
                    np.clip((true - simulation.lowest) / (simulation.median - simulation.lowest), 0.0, 1.0)
                )
    started = np.bincount(list(row_of.values()))
    return {"table": name, "seed": seed, "repeats": repeats, "regret": regret, "most": int(started.max())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("build/repeats.json"))
    args = parser.parse_args()
    names = [t.name for t in tables.load().values() if t.suite == "arlbench" and t.losses.shape[1] > 1]
    jobs = [(name, repeats, seed) for seed in range(args.seeds) for name in names for repeats in args.repeats]
    with Pool(args.processes) as pool:
        found = pool.map(simulate, jobs, chunksize=1)
    rows = []
    for repeats in args.repeats:
        simulations = [g for g in found if g["repeats"] == repeats]
        means = [f"{np.mean([g['regret'][at] for g in simulations]):.3f}" for at in AT]
        often = np.mean([g["most"] for g in simulations])
        rows.append([str(repeats), str(len(simulations)), *means, f"{often:.1f}"])
    print_table(["repeats", "simulations", *map(str, AT), "most starts of one"], rows)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
