"""How well later losses are forecast, among 20 to 80 other runs, on four suites of real curves.

    python -m benchmarks.forecast                 the suites: our models, and rivals that look at one curve at a time
    python -m benchmarks.forecast --ftpfn         the recorded contexts of FT-PFN, the transformer of ifBO

Contexts: runs drawn from a table, each observed for 1, 2, 5, 10, 20 or all of its epochs; losses capped at the median
first-epoch loss. Queries: the next loss, the loss at twice as many epochs, and the last, of the runs not yet at the
end; and the last loss of runs not in the context. Queries whose answer is the last loss seen, which are many where
losses are capped, are reported apart: they flatter. Log densities are those of the loss in units of the table's range.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import defaultdict
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from benchmarks import records, single_curve, tables
from benchmarks.scores import Scores, print_table, score
from freezethaw.losses import Forecast
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.loss_units import Observations
from freezethaw.model.sequential import from_scratch

RUNS = (20, 50, 80)
UNSEEN = 20
LENGTHS = (1, 2, 5, 10, 20)
MODELS = ("paper", "drift")
KINDS = ("later", "repeated", "unseen")  # of queries


@dataclass(frozen=True)
class Context:
    """What a forecaster sees, and what it is asked. A query is (row of the table, epochs seen, epoch asked)."""

    table: str
    losses: np.ndarray  # (configs, epochs) as they may be seen
    seen: tuple[tuple[int, int], ...]  # (row, epochs)
    queries: tuple[tuple[int, int, int], ...]
    unit: float
    seed: int

    def observations(self) -> Observations:
        table = tables.load()[self.table]
        rows = [row for row, _ in self.seen]
        curves = tuple(tuple(self.losses[row, :count]) for row, count in self.seen)
        return Observations(table.features[rows], curves, table.geometry, float(table.epochs))

    def answers(self) -> np.ndarray:
        return np.array([self.losses[row, epoch - 1] for row, _, epoch in self.queries])

    def kinds(self) -> np.ndarray:
        """Of each query: "unseen" configurations; "repeated" where the answer is the last loss seen; else "later"."""
        last = [self.losses[row, seen - 1] if seen else np.nan for row, seen, _ in self.queries]
        seen = np.array([seen for _, seen, _ in self.queries])
        return np.where(seen == 0, "unseen", np.where(self.answers() == last, "repeated", "later"))


def context(name: str, seed: int, count: int) -> Context:
    table = tables.load()[name]
    rng = np.random.default_rng([seed, *name.encode()])
    configs, seeds, T = table.losses.shape
    losses = table.losses[np.arange(configs), rng.integers(seeds, size=configs)]
    finite = np.isfinite(losses)
    cap = np.median(losses[finite[:, 0], 0])
    losses = np.where(finite, np.minimum(losses, cap), np.nan)
    seen, queries = [], []
    for place, row in enumerate(rng.permutation(configs)[: count + UNSEEN]):
        length = T if finite[row].all() else int(np.argmin(finite[row]))
        if place < count:
            k = min(int(rng.choice([*(k for k in LENGTHS if k < T), T])), length)
            if k:
                seen.append((int(row), k))
            if 0 < k < length:
                queries += [(int(row), k, e) for e in sorted({k + 1, min(2 * k, length), length})]
        elif length == T:
            queries.append((int(row), 0, T))
    return Context(name, losses, tuple(seen), tuple(queries), float(np.nanmax(losses) - np.nanmin(losses)), seed)


def recorded_contexts() -> list[tuple[Context, dict]]:
    """Those on which FT-PFN's forecasts were recorded, with the records."""
    names = {n.replace("FixedTextRNNClassification_imdb_", ""): n for n in tables.load()}
    with gzip.open(tables.data_folder() / "ftpfn_forecasts.json.gz") as file:
        records = json.load(file)
    found = []
    for number, record in enumerate(records):
        name = names[record["table"]]
        lengths = dict(zip(record["runs"], record["lengths"], strict=True))
        losses = tables.load()[name].losses[:, 0]
        queries = tuple((row, lengths.get(row, 0), epoch) for row, epoch in record["queries"])
        found.append((Context(name, losses, tuple(lengths.items()), queries, record["unit"], number), record))
    return found


def forecast(context: Context, model: str, samples: int = 10) -> Forecast:
    """Our model, fitted from scratch to the context."""
    observations = context.observations()
    rng = np.random.default_rng([context.seed, 7])
    forecaster = Forecaster.condition(from_scratch(observations, model, rng, samples), observations)
    index = {row: i for i, (row, _) in enumerate(context.seen)}
    features = tables.load()[context.table].features
    return forecaster.points([(index.get(row, features[row]), epoch) for row, _, epoch in context.queries])


def evaluate(job: tuple[Context, str]) -> tuple[Scores, np.ndarray, np.ndarray, float]:
    """Scores; for each query how many epochs had been seen, and its kind; and seconds."""
    ctx, method = job
    start = time.perf_counter()
    if method in MODELS:
        found = score(forecast(ctx, method), ctx.answers(), ctx.unit)
    else:
        ctx = single_curve.only_old(ctx)
        found = score(single_curve.forecast(ctx, method), ctx.answers(), ctx.unit)
    return found, np.array([k for _, k, _ in ctx.queries]), ctx.kinds(), time.perf_counter() - start


def suites(seeds: int, methods: list[str], only: str, pool) -> dict:
    chosen = [t for t in tables.load().values() if t.suite in (only or tables.SUITES)]
    # every suite weighs about the same: the more tables, the fewer seeds for each
    per_table = {s: max(1, round(6 * seeds / sum(t.suite == s for t in chosen))) for s in {t.suite for t in chosen}}
    contexts = [context(t.name, seed, RUNS[seed % 3]) for t in chosen for seed in range(per_table[t.suite])]
    results: dict = defaultdict(dict)
    body = []
    for method in methods:
        found = pool.map(evaluate, [(c, method) for c in contexts], chunksize=1)
        for suite in tables.SUITES:
            mine = [f for f, c in zip(found, contexts, strict=True) if c.table.startswith(suite)]
            if not mine:
                continue
            scores, seen = Scores.together([f[0] for f in mine]), np.concatenate([f[1] for f in mine])
            kinds = np.concatenate([f[2] for f in mine])
            for what in KINDS:
                mask = kinds == what
                if not mask.any():
                    continue
                part = scores.where(mask)
                entry = part.summary() | {"pit": part.pit_histogram(), "contexts": len(mine)}
                entry["seconds"] = float(np.mean([f[3] for f in mine]))
                entry["spread"] = float(np.std([f[0].log_density.mean() for f in mine]) / np.sqrt(len(mine)))
                if what == "later":
                    entry["by_epochs_seen"] = {
                        str(k): scores.where(mask & (seen == k)).summary()
                        for k in LENGTHS
                        if (mask & (seen == k)).any()
                    }
                results[suite].setdefault(what, {})[method] = entry
                body.append([f"{suite} {what}", method, *_cells(entry)])
    print_table(["queries", "method", *_HEAD], sorted(body))
    return results


_HEAD = ["LL", "+-", "CRPS e-3", "SE e-3", "90 %", "50 %", "s/fit"]


def _cells(e: dict) -> list[str]:
    return [
        f"{e['log_likelihood']:.2f}",
        f"{e.get('spread', 0):.2f}",
        f"{1e3 * e['crps']:.1f}",
        f"{1e3 * e['squared_error']:.2f}",
        f"{e['covered_90']:.2f}",
        f"{e['covered_50']:.2f}",
        f"{e.get('seconds', 0):.1f}",
    ]


def against_ftpfn(every: int, methods: list[str], pool) -> dict:
    recorded = recorded_contexts()[::every]
    results: dict = defaultdict(dict)
    body = []
    found = {m: pool.map(evaluate, [(c, m) for c, _ in recorded], chunksize=1) for m in methods}
    for suite in ("taskset", "lcbench"):
        mine = [i for i, (c, _) in enumerate(recorded) if c.table.startswith(suite)]
        kinds = np.concatenate([recorded[i][0].kinds() for i in mine])
        log_p = np.concatenate([np.maximum(recorded[i][1]["logp"], -10.0) for i in mine])
        # means were recorded in units of the table too
        error = np.concatenate(
            [(np.array(recorded[i][1]["mean"]) - recorded[i][0].answers()) / recorded[i][0].unit for i in mine]
        )
        for what in KINDS:
            mask = kinds == what
            if not mask.any():
                continue
            entry = {"ft-pfn": {"log_likelihood": log_p[mask].mean(), "squared_error": (error[mask] ** 2).mean()}}
            for m in methods:
                entry[m] = Scores.together([found[m][i][0] for i in mine]).where(mask).summary()
            for m, e in entry.items():
                body.append([f"{suite} {what}", m, f"{e['log_likelihood']:.3f}", f"{1e3 * e['squared_error']:.2f}"])
            results[suite][what] = entry
    print_table(["queries", "method", "LL", "SE e-3"], body)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ftpfn", action="store_true", help="the recorded contexts of FT-PFN")
    parser.add_argument("--every", type=int, default=1, help="use every n-th recorded context")
    parser.add_argument("--seeds", type=int, default=4, help="contexts for each TaskSet table; other suites alike")
    parser.add_argument("--suite", default="", help="one suite only")
    parser.add_argument("--methods", nargs="+", default=["last", "power", *MODELS])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    code = records.commit()
    with Pool(args.processes) as pool:
        if args.ftpfn:
            ours = [m for m in args.methods if m in MODELS]
            name, results = "forecast_ftpfn", against_ftpfn(args.every, ours, pool)
        else:
            name, results = "forecast", suites(args.seeds, args.methods, args.suite, pool)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{name}.json").write_text(
        json.dumps(
            {"commit": code, "arguments": {k: v for k, v in vars(args).items() if k != "out"}, "results": results},
            indent=1,
            default=str,
        )
    )
    print(f"written to {args.out / name}.json")


if __name__ == "__main__":
    main()
