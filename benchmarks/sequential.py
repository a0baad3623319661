"""Whether samples updated from loss to loss are as good as samples from scratch.

    python -m benchmarks.sequential        ratios for each context, and benchmarks/results/sequential.json

A context's losses arrive one by one in random order, and the samples are updated after each. At the end its predictive
medians are compared with those of three sets from scratch, of the same size and in the same units: by how much more do
they differ from them than these differ among each other?
"""

from __future__ import annotations

import argparse
import math
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from benchmarks import records, tables
from benchmarks.forecast import context
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.hyperparameter_samples import HyperparameterSamples, unstacked
from freezethaw.model.inference import Target, sample
from freezethaw.model.loss_units import Observations, gather, specify
from freezethaw.model.sequential import initialise, update

SETS = 3


def prefix(observations: Observations, counts: list[int]) -> Observations:
    """The first so many losses of each run; runs without any are left out."""
    kept = [i for i, n in enumerate(counts) if n]
    losses = tuple(observations.losses[i][: counts[i]] for i in kept)
    return Observations(observations.configs[kept], losses, observations.geometry, observations.horizon)


def stream(observations: Observations, model: str, rng: np.random.Generator) -> HyperparameterSamples:
    """Begin with one loss and update the samples after each further one, in random order."""
    lengths = [len(c) for c in observations.losses]
    order = rng.permutation([i for i, n in enumerate(lengths) for _ in range(n)])
    counts = [0] * len(lengths)
    counts[order[0]] = 1
    samples = initialise(prefix(observations, counts), model, rng)
    for run in order[1:]:
        counts[run] += 1
        samples, _ = update(samples, prefix(observations, counts), rng)
    return samples


def compare(name: str, seed: int = 0, runs: int = 20) -> tuple[float, float]:
    """Root mean squared differences: of updated from scratch, and among sets from scratch; in units of the table."""
    ctx = context(name, seed, runs)
    observations, index = ctx.observations(), {row: i for i, (row, _) in enumerate(ctx.seen)}
    features = tables.load()[name].features
    queries = [(index.get(row, features[row]), epoch) for row, _, epoch in ctx.queries]
    samples = stream(observations, "drift", np.random.default_rng([seed, 1]))
    spec = specify("drift", samples.units, observations.geometry, observations.horizon)
    target = Target(gather(observations, samples.units.transform), spec, observations.geometry)
    count = len(samples.values)

    def medians(b: HyperparameterSamples) -> np.ndarray:
        return Forecaster.condition(b, observations).points(queries).quantile([0.5])[0] / ctx.unit

    def rms(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.sqrt(np.mean((a - b) ** 2)))

    equal = (-math.log(count),) * count
    fresh = [sample(target, count, np.random.default_rng([seed, 2, i])) for i in range(SETS)]
    scratch = [medians(HyperparameterSamples("drift", samples.units, unstacked(values), equal, ())) for values in fresh]
    updated = medians(samples)
    among = np.mean([rms(scratch[i], scratch[j]) for i in range(SETS) for j in range(i)])
    return float(np.mean([rms(updated, s) for s in scratch])), float(among)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=2, help="use every n-th table of TaskSet and LCBench")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    names = [n for n in tables.load() if n.startswith(("taskset", "lcbench"))][:: args.every]
    with Pool(args.processes) as pool:
        found = pool.map(compare, names, chunksize=1)
    for name, (updated, among) in zip(names, found, strict=True):
        print(f"{name:70s} {updated:.4f} / {among:.4f} = {updated / among:.2f}")
    pooled = sum(c for c, _ in found) / sum(a for _, a in found)
    typical = float(np.exp(np.mean([np.log(c / a) for c, a in found])))
    print(f"all together {pooled:.2f}, geometric mean of the ratios {typical:.2f}")
    results = {"tables": dict(zip(names, found, strict=True)), "pooled": pooled, "geometric_mean": typical}
    records.write(args.out / "sequential.json", results)


if __name__ == "__main__":
    main()
