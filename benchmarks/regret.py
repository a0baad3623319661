"""Normalised regret against epochs spent, on tables of real curves, beside recorded rivals.

    python -m benchmarks.regret --suite taskset --seeds 5          ours, the table as candidates
    python -m benchmarks.regret --report                           the table of all that is recorded

Regret is (loss of what is recommended - best in the table) / (median final loss - best in the table), at most 1; where
a table has several seeds each run draws one, and a recommendation is scored by the mean over seeds.
"""

from __future__ import annotations

import argparse
import json
import time
from multiprocessing import Pool
from pathlib import Path

import numpy as np

import freezethaw as ft
from benchmarks import tables
from benchmarks.scores import print_table
from benchmarks.simulate import AT, Game

RESULTS = Path(__file__).parent / "results" / "regret"


def as_space(table: tables.Table) -> ft.Space:
    """The columns of a table as a space; columns of one choice stay apart columns, which only candidates need."""
    return ft.Space({f"x{i}": ft.Float(0.0, 1.0) for i in range(table.features.shape[1])})


def play(job: tuple[str, int, int, str, str, str]) -> dict:
    """One game of ours; the record of it."""
    name, seed, budget, policy, model, mode = job
    game = Game(tables.load()[name], seed, budget)
    space = as_space(game.table)
    configs = [{f"x{i}": float(v) for i, v in enumerate(row)} for row in game.features]
    rows = {space.key(c): r for r, c in enumerate(configs)}
    study = ft.Study(
        space,
        max_epochs=game.table.epochs,
        seed=seed,
        policy=policy,
        model=model,
        candidates=configs if mode == "candidates" else None,
        budget=budget,
    )
    row_of: dict[int, int] = {}
    seconds = []
    while game.spent < budget:
        start = time.perf_counter()
        try:
            decision = study.ask()
        except ft.StudyFinished:
            break
        if decision.run not in row_of:
            config = decision.config
            row = rows.get(space.key(config)) if mode == "candidates" else None
            if row is None:
                row = game.nearest_unused(space.features(config), set(row_of.values()))
            row_of[decision.run] = row
        loss = game.train(row_of[decision.run])
        study.tell(decision, loss)
        seconds.append(time.perf_counter() - start)
        if game.table.losses.shape[1] > 1:
            best = study.best
            if best is not None:
                game.recommend(row_of[best.run], best.epoch)
    return {
        "method": policy if model == "drift" else f"{policy} ({model})",
        "table": name,
        "seed": seed,
        "mode": mode,
        "regret": game.regrets(),
        "seconds": {"median": float(np.median(seconds)), "p99": float(np.quantile(seconds, 0.99))},
        "runs": len(row_of),
        "diverged": int(game.diverged.sum()),
    }


def records(folder: Path) -> list[dict]:
    """All recorded games, ours and rivals'."""
    return [record for file in sorted(folder.glob("*.json")) for record in json.loads(file.read_text())]


def report(found: list[dict], baseline: str = "improvement_rate") -> None:
    """Mean regret over each suite, and the paired difference from ours with its standard error."""
    for mode in ("candidates", "free"):
        for suite in tables.SUITES:
            mine = [r for r in found if r["mode"] == mode and r["table"].startswith(suite)]
            if not mine:
                continue
            games: dict[str, dict[tuple[str, int], dict]] = {}
            for r in mine:
                games.setdefault(r["method"], {})[r["table"], r["seed"]] = r["regret"]
            body = []
            for method, played in sorted(games.items()):
                row = [method, str(len(played))]
                for at in AT:
                    values = [v[str(at)] for v in played.values() if str(at) in v]
                    row.append(f"{np.mean(values):.3f}" if values else "")
                row += [_paired(played, games.get(baseline, {}), str(at)) for at in (50, 100, 200, 300)]
                body.append(row)
            print(f"\n{suite}, {mode}")
            print_table(["method", "games", *map(str, AT), *(f"d{at}" for at in (50, 100, 200, 300))], body)


def _paired(theirs: dict, ours: dict, at: str) -> str:
    both = [k for k in theirs if k in ours and at in theirs[k] and at in ours[k]]
    if len(both) < 2 or theirs is ours:
        return ""
    difference = np.array([theirs[k][at] - ours[k][at] for k in both])
    return f"{difference.mean():+.3f}±{difference.std(ddof=1) / np.sqrt(len(both)):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", nargs="+", default=["taskset", "lcbench", "arlbench"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--policy", default="improvement_rate")
    parser.add_argument("--model", default="drift")
    parser.add_argument("--mode", default="candidates", choices=["candidates", "free"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="only print what is recorded")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if not args.report:
        run(args)
    report(records(args.out))


def run(args: argparse.Namespace) -> None:
    """Play what is not recorded yet, suite by suite; each game is kept as soon as it is over."""
    args.out.mkdir(parents=True, exist_ok=True)
    with Pool(args.processes, maxtasksperchild=8) as pool:
        for suite in args.suite:
            file = args.out / f"ours-{args.policy}-{args.model}-{suite}-{args.mode}-{args.budget}.json"
            found = json.loads(file.read_text()) if file.exists() else []
            known = {(r["table"], r["seed"]) for r in found}
            names = [t.name for t in tables.load().values() if t.suite == suite]
            jobs = [
                (n, s, args.budget, args.policy, args.model, args.mode)
                for s in range(args.seeds)
                for n in names
                if (n, s) not in known
            ]
            for record in pool.imap_unordered(play, jobs, chunksize=1):
                found.append(record)
                print(f"{suite} {len(found)} {record['table']} seed {record['seed']}: {record['regret']}", flush=True)
                file.write_text(json.dumps(sorted(found, key=lambda r: (r["table"], r["seed"])), indent=0))


if __name__ == "__main__":
    main()
