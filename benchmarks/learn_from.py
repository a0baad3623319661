"""Regret with and without what earlier studies learnt: each table in turn, the earlier studies on other tables.

    python -m benchmarks.learn_from                                        3 earlier studies of 200 epochs, one seed
    python -m benchmarks.learn_from --earlier 3 10 --seeds 5 --processes 16
    python -m benchmarks.learn_from --kind shuffled permuted flipped arlbench --method learn_from --seeds 5
    python -m benchmarks.learn_from --report                               print and write what is recorded; run nothing

Methods: `alone`; `enqueued`, where the best configuration of each earlier study is started first; `learn_from`.

Kinds of earlier studies: `related`, of other tables of the suite; and unrelated ones, which must not hurt: `shuffled`
(the same curves, of configurations drawn at random), `permuted` (the values of each parameter are those of another
one), `flipped` (the signs of all losses are changed), `arlbench` (studies of reinforcement learning; only the learning
rate has the same name).

An earlier study of a table is simulated once for each seed and used by all tables, kinds and methods. It is written to
build/learn_from/earlier (--work changes the folder). Each search is added to build/learn_from/searches.jsonl when it
ends; what is recorded is not repeated, so the same command continues after a kill. The report gives the mean regret and
the paired differences to the search alone, with standard errors clustered by table, the time relative to it, and the
mean weight of an earlier study in the model after 25, 50, 100 and 200 epochs.

A suite with fewer other tables than --earlier gives all of them: TaskSet has five.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import freezethaw as ft
from benchmarks import records, tables
from benchmarks.ours import Setup, StudySimulator
from benchmarks.regret import chosen_tables
from benchmarks.scores import print_table
from freezethaw.decide.earlier import relevance
from freezethaw.errors import StudyError
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.study import session_of

WORK = records.RAW.parent / "learn_from"
AT = ("25", "50", "100", "200")
METHODS = ("alone", "enqueued", "learn_from")
KINDS = ("related", "shuffled", "permuted", "flipped", "arlbench")
EARLIER_SEED = 100  # added to the seed of the search


@dataclass(frozen=True)
class EarlierJob:
    """An earlier study of one table."""

    table: str
    seed: int
    epochs: int

    def file(self, work: Path) -> Path:
        return work / "earlier" / f"{self.table.replace('/', '-')}-{self.seed}-{self.epochs}.json"


@dataclass(frozen=True)
class Search:
    """One search with earlier studies of a kind. A search alone has no kind and no earlier studies."""

    table: str
    seed: int
    budget: int
    method: str
    kind: str = ""
    earlier: int = 0
    epochs: int = 0

    def needs(self) -> list[EarlierJob]:
        """The earlier studies. Those of a larger number include those of a smaller one."""
        if self.method == "alone":
            return []
        suite = self.table.split("/")[0]
        names = [name for name in chosen_tables("arlbench" if self.kind == "arlbench" else suite) if name != self.table]
        order = np.random.default_rng([self.seed, *self.table.encode()]).permutation(len(names))
        return [EarlierJob(names[i], EARLIER_SEED + self.seed, self.epochs) for i in order[: self.earlier]]


def simulate_earlier(job: EarlierJob, work: Path) -> None:
    """Simulate an earlier study and write its runs."""
    study = _simulator(job.table, job.seed, job.epochs)
    study.run()
    runs = [{"config": run.config, "losses": run.losses} for run in study.study.runs if run.losses]
    file = job.file(work)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".part")
    draft.write_text(json.dumps({"commit": records.commit(), "runs": runs}))
    draft.replace(file)


def simulate(search: Search, work: Path) -> dict[str, Any]:
    """One search: its regret by epochs, its seconds, and the weights of the earlier studies by epochs."""
    rng = np.random.default_rng([search.seed, 1, *search.table.encode()])
    earlier = [_earlier_study(job, search.kind, rng, work) for job in search.needs()]
    if search.method == "learn_from":
        simulator = _learning(search, earlier)
    else:
        simulator = _simulator(search.table, search.seed, search.budget)
    if search.method == "enqueued":
        _enqueue_best(simulator, earlier)
    begin = time.process_time()
    regret = simulator.run()["regret"]
    seconds = time.process_time() - begin
    return asdict(search) | {
        "regret": regret,
        "seconds": seconds,
        "weights": _weights(simulator.study),
        "commit": records.commit(),
    }


def _simulator(table: str, seed: int, budget: int, learn_from: Sequence[ft.Study] = ()) -> StudySimulator:
    simulator = StudySimulator(Setup(table, seed, budget))
    found = tables.load()[table]
    simulator.study = ft.Study(
        simulator.simulation.space,
        found.epochs,
        seed=seed,
        direction="maximize" if found.maximise else "minimize",
        candidates=simulator.simulation.configs,
        budget=budget,
        prices=ft.Prices(),
        learn_from=tuple(learn_from),
    )
    return simulator


def _earlier_study(job: EarlierJob, kind: str, rng: np.random.Generator, work: Path) -> ft.Study:
    """The recorded study, changed according to the kind."""
    table = tables.load()[job.table]
    space = table.space
    assert space is not None
    study = ft.Study(space, table.epochs, name=job.table, direction="maximize" if table.maximise else "minimize")
    order = np.roll(np.arange(len(space)), 1 + int(rng.integers(len(space) - 1)))
    for run in json.loads(job.file(work).read_text())["runs"]:
        config, losses = run["config"], run["losses"]
        if kind == "shuffled":
            config = space.sample(rng)
        elif kind == "permuted":
            config = space.config(np.asarray(space.unit(config))[order])
        elif kind == "flipped":
            losses = [-loss for loss in losses]
        study.add_run(config, losses)
    return study


def _learning(search: Search, studies: Sequence[ft.Study]) -> StudySimulator:
    """The search with those of the studies from which something can be learnt; the others are an error."""
    arguments = (search.table, search.seed, search.budget)
    try:
        return _simulator(*arguments, studies)
    except StudyError:
        usable = []
        for study in studies:
            with suppress(StudyError):
                _simulator(*arguments, [study])
                usable.append(study)
        return _simulator(*arguments, usable)


def _enqueue_best(simulator: StudySimulator, studies: Sequence[ft.Study]) -> None:
    """Start with the best configuration of each earlier study, as far as the space has its parameters."""
    space, found = simulator.simulation.space, {}
    for study in studies:
        if study.best is not None and set(study.best.config) == set(space.parameters):
            found[space.key(study.best.config)] = study.best.config
    for config in found.values():
        simulator.study.enqueue(config)


def _weights(study: ft.Study) -> dict[str, list[float]]:
    """The weight of each earlier study after so many epochs."""
    spreads = [earlier.spread for earlier in study.definition.learn_from]
    if not spreads:
        return {}
    storage, history = session_of(study).storage, session_of(study).history()
    after = {record.decision.number: history.epochs_at(record.basis) for record in history.decisions}
    found = {}
    for at in (at for at in AT if int(at) <= len(history.epochs)):
        later = [number for number, epochs in after.items() if epochs >= int(at)]
        plain = storage.samples(min(later) if later else None)
        weights = relevance(HyperparameterSamples.from_dict(plain), spreads)
        found[at] = [round(float(weight), 4) for weight in weights]
    return found


def run(searches: Sequence[Search], work: Path, processes: int) -> None:
    """Run what is not recorded. A search begins when its earlier studies are there."""
    known = {_key(record) for record in read(work)}
    waiting = [search for search in searches if tuple(asdict(search).values()) not in known]
    needed = dict.fromkeys(job for search in waiting for job in search.needs() if not job.file(work).exists())
    total, done = len(waiting) + len(needed), 0
    running: dict[Future[Any], EarlierJob | Search] = {}
    work.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(processes) as pool:
        for job in needed:
            running[pool.submit(simulate_earlier, job, work)] = job
        while waiting or running:
            ready = [s for s in waiting if all(job.file(work).exists() for job in s.needs())]
            waiting = [s for s in waiting if s not in ready]
            running |= {pool.submit(simulate, search, work): search for search in ready}
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job, result, done = running.pop(future), future.result(), done + 1
                if result is not None:
                    with (work / "searches.jsonl").open("a") as file:
                        file.write(json.dumps(result) + "\n")
                print(f"{done} of {total}: {' '.join(map(str, asdict(job).values()))}", flush=True)


def read(work: Path) -> list[dict[str, Any]]:
    """All recorded searches; a line that a kill cut short is left out."""
    found, file = [], work / "searches.jsonl"
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def _key(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in Search.__dataclass_fields__)


def summarise(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each suite, budget, kind, number of earlier studies and method, against the searches alone."""
    alone = {(r["table"], r["seed"], r["budget"]): r for r in found if r["method"] == "alone"}
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for record in found:
        if record["method"] != "alone" and (record["table"], record["seed"], record["budget"]) in alone:
            group = (record[name] for name in ("budget", "kind", "earlier", "epochs", "method"))
            groups[record["table"].split("/")[0], *group].append(record)
    rows = []
    for group, mine in sorted(groups.items()):
        row = dict(zip(("suite", "budget", "kind", "earlier", "epochs", "method"), group, strict=True))
        row |= {"searches": len(mine), "tables": len({r["table"] for r in mine})}
        pairs = [(r, alone[r["table"], r["seed"], r["budget"]]) for r in mine]
        for at in AT:
            if at in mine[0]["regret"]:
                row[at] = _against(pairs, at)
        row["time"] = round(float(np.mean([r["seconds"] / other["seconds"] for r, other in pairs])), 3)
        weights = {at: [np.mean(r["weights"][at]) for r in mine if r["weights"].get(at)] for at in AT}
        row["weight"] = {at: round(float(np.mean(values)), 4) for at, values in weights.items() if values}
        row["commits"] = sorted({r["commit"] for r, _ in pairs} | {other["commit"] for _, other in pairs})
        rows.append(row)
    return rows


def _against(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], at: str) -> dict[str, float]:
    """Mean regret, that of the search alone, and the difference with its standard error over tables."""
    by_table: dict[str, list[float]] = defaultdict(list)
    for record, other in pairs:
        by_table[record["table"]].append(record["regret"][at] - other["regret"][at])
    means = np.array([np.mean(differences) for differences in by_table.values()])
    error = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else float("nan")
    return {
        "regret": round(float(np.mean([r["regret"][at] for r, _ in pairs])), 4),
        "alone": round(float(np.mean([other["regret"][at] for _, other in pairs])), 4),
        "difference": round(float(means.mean()), 4),
        "error": round(error, 4),
    }


def report(work: Path, out: Path) -> None:
    """Print the summary and write it."""
    rows = summarise(read(work))
    shown = [at for at in AT if any(at in row for row in rows)]
    body = []
    for row in rows:
        cells = []
        for at in shown:
            r = row.get(at)
            cells.append(f"{r['regret']:.3f} ({r['difference']:+.3f} ± {r['error']:.3f})" if r else "")
        about = [row["suite"], row["kind"], f"{row['earlier']} x {row['epochs']}", row["method"], str(row["searches"])]
        weights = " ".join(f"{weight:.3f}" for weight in row["weight"].values())
        body.append([*about, *cells, f"{row['time']:.2f}", weights])
    print_table(["suite", "kind", "earlier", "method", "searches", *shown, "time", "weight of each"], body)
    out.parent.mkdir(parents=True, exist_ok=True)
    commits = ", ".join(sorted({commit for row in rows for commit in row["commits"]}))
    out.write_text(json.dumps({"commit": commits, "rows": rows}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", nargs="+", default=["taskset", "lcbench"])
    parser.add_argument("--tables", type=int, default=None, help="only the first tables of each suite")
    parser.add_argument("--kind", nargs="+", default=["related"], choices=KINDS)
    parser.add_argument("--method", nargs="+", default=["enqueued", "learn_from"], choices=METHODS[1:])
    parser.add_argument("--earlier", nargs="+", type=int, default=[3], help="numbers of earlier studies")
    parser.add_argument("--epochs", type=int, default=200, help="of each earlier study")
    parser.add_argument("--budget", type=int, default=200, help="epochs of the search")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="only print and write what is recorded")
    parser.add_argument("--work", type=Path, default=WORK, help="the folder of the raw records")
    parser.add_argument("--out", type=Path, default=records.RESULTS / "learn_from.json")
    args = parser.parse_args()
    if not args.report:
        searches = [
            search
            for seed in range(args.first_seed, args.first_seed + args.seeds)
            for suite in args.suite
            for name in chosen_tables(suite, args.tables)
            for search in [
                Search(name, seed, args.budget, "alone"),
                *(
                    Search(name, seed, args.budget, method, kind, count, args.epochs)
                    for kind in args.kind
                    for count in args.earlier
                    for method in args.method
                ),
            ]
        ]
        run(searches, args.work, args.processes)
    report(args.work, args.out)


if __name__ == "__main__":
    main()
