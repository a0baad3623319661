"""Regret with and without what earlier studies learnt: each table in turn, the earlier studies on other tables.

    python -m benchmarks.learn_from                       3 earlier studies of 100 epochs, TaskSet and LCBench
    python -m benchmarks.learn_from --earlier 10 --epochs 200 --seeds 5
    python -m benchmarks.learn_from --unrelated           earlier studies of problems that have nothing in common

Methods: alone; the best configuration of each earlier study is started first (enqueued); learn_from. With --unrelated
the earlier curves are given to other configurations, drawn at random. Prints the mean regret and paired differences to
the search alone, with standard errors clustered by table, and the time relative to it.
"""

from __future__ import annotations

import argparse
import json
import time
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

import freezethaw as ft
from benchmarks import records, tables
from benchmarks.ours import Setup, StudySimulator
from benchmarks.regret import chosen_tables
from benchmarks.scores import print_table

AT = ("25", "50", "100", "200")
METHODS = ("alone", "enqueued", "learn_from")
Job = tuple[str, int, int, int, int, bool]  # table, seed, earlier studies, their epochs, epochs, unrelated


def simulate(table: str, seed: int, budget: int, earlier: tuple[ft.Study, ...], method: str) -> dict[str, Any]:
    """One search; its regret by epochs, its seconds and its study."""
    simulator = StudySimulator(Setup(table, seed, budget))
    played = tables.load()[table]
    simulator.study = ft.Study(
        simulator.simulation.space,
        played.epochs,
        seed=seed,
        direction="maximize" if played.maximise else "minimize",
        candidates=simulator.simulation.configs,
        budget=budget,
        prices=ft.Prices(),
        learn_from=earlier if method == "learn_from" else (),
    )
    if method == "enqueued":
        best = [study.best.config for study in earlier if study.best is not None]
        for config in {simulator.simulation.space.key(c): c for c in best}.values():
            simulator.study.enqueue(config)
    begin = time.process_time()
    regret = simulator.run()["regret"]
    return {"regret": regret, "seconds": time.process_time() - begin, "study": simulator.study}


def job(given: Job) -> dict[str, Any]:
    table, seed, count, epochs, budget, unrelated = given
    names = [name for name in chosen_tables(table.split("/")[0]) if name != table]
    rng = np.random.default_rng([seed, chosen_tables(table.split("/")[0]).index(table)])
    others = rng.choice(names, size=min(count, len(names)), replace=False)
    earlier = tuple(simulate(str(name), 100 + seed, epochs, (), "alone")["study"] for name in others)
    if unrelated:
        earlier = tuple(_shuffled(study, rng) for study in earlier)
    found = {method: simulate(table, seed, budget, earlier, method) for method in METHODS}
    return {"table": table, "seed": seed} | {
        method: {"regret": each["regret"], "seconds": each["seconds"]} for method, each in found.items()
    }


def _shuffled(study: ft.Study, rng: np.random.Generator) -> ft.Study:
    """A study with the same curves, of configurations drawn at random."""
    space = study.definition.space
    found = ft.Study(space, study.definition.max_epochs, direction=study.definition.direction)
    for run in study.runs:
        if run.losses:
            found.add_run(space.sample(rng), run.losses)
    return found


def summarise(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for suite in dict.fromkeys(each["table"].split("/")[0] for each in found):
        mine = [each for each in found if each["table"].startswith(suite + "/")]
        for method in METHODS:
            row: dict[str, Any] = {"suite": suite, "method": method, "simulations": len(mine)}
            for at in AT:
                if at not in mine[0]["alone"]["regret"]:
                    continue
                row[at] = float(np.mean([each[method]["regret"][at] for each in mine]))
                differences: dict[str, list[float]] = {}
                for each in mine:
                    gap = each[method]["regret"][at] - each["alone"]["regret"][at]
                    differences.setdefault(each["table"], []).append(gap)
                by_table = np.array([np.mean(gaps) for gaps in differences.values()])
                error = float(by_table.std(ddof=1) / np.sqrt(len(by_table))) if len(by_table) > 1 else 0.0
                row[f"difference at {at}"] = [float(by_table.mean()), error]
            row["time"] = float(np.mean([each[method]["seconds"] / each["alone"]["seconds"] for each in mine]))
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", nargs="+", default=["taskset", "lcbench"])
    parser.add_argument("--tables", type=int, default=None, help="only the first tables of each suite")
    parser.add_argument("--earlier", type=int, default=3, help="number of earlier studies")
    parser.add_argument("--epochs", type=int, default=100, help="of each earlier study")
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--unrelated", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--out", type=Path, default=None, help="by default benchmarks/results/learn_from[_unrelated].json"
    )
    args = parser.parse_args()
    jobs = [
        (name, seed, args.earlier, args.epochs, args.budget, args.unrelated)
        for seed in range(args.seeds)
        for suite in args.suite
        for name in chosen_tables(suite, args.tables)
    ]
    raw = records.RAW.parent / "learn_from" / f"{args.earlier}-{args.epochs}-{args.budget}-{args.unrelated}.json"
    found = records.read(raw)  # what is recorded there is not repeated
    known = {(each["table"], each["seed"]) for each in found}
    with Pool(args.processes) as pool:
        for each in pool.imap_unordered(job, [given for given in jobs if given[:2] not in known]):
            found.append(each)
            records.save(raw, found)
            print(f"{len(found)} of {len(jobs)}: {each['table']}", flush=True)
    rows = summarise(found)
    shown = [at for at in AT if at in rows[0]]
    body = []
    for row in rows:
        cells = [
            f"{row[at]:.3f} ({row[f'difference at {at}'][0]:+.3f} ± {row[f'difference at {at}'][1]:.3f})"
            for at in shown
        ]
        body.append([row["suite"], row["method"], *cells, f"{row['time']:.2f}"])
    print_table(["suite", "method", *shown, "time"], body)
    kind = "_unrelated" if args.unrelated else ""
    out = args.out or records.RESULTS / f"learn_from{kind}.json"
    settings = {"earlier": args.earlier, "epochs": args.epochs, "budget": args.budget, "seeds": args.seeds}
    out.write_text(json.dumps({"commit": records.commit(), **settings, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
