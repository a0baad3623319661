"""Draw the pictures of the docs: `python -m docs.draw [FOLDER]`, or `make figures`. Seeded, so they come out the same.

The paper's figures 1 and 2 use `model="paper"` on curves drawn from that very model. One more shows the default model
on real curves of TaskSet, or, where the data folder is absent, on a synthetic family. Where it is there, two show what
forecasts for the pruned trials of an Optuna study are worth.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import optuna_import, tables

from docs.factor_graph import factor_graph
from freezethaw import figures
from freezethaw.figures import style
from freezethaw.model.correlation import correlation
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.kernels import exponential_decay
from freezethaw.model.loss_units import Observations
from freezethaw.model.sequential import from_scratch
from freezethaw.model.specification import Geometry

FORECASTS = Path(__file__).parents[1] / "benchmarks" / "results" / "forecast.json"
IMAGES = Path(__file__).parent / "images"
LENGTHS = (30, 4, 12, 3, 22, 7, 16, 2)
HORIZON = 40
TASKSET = 0  # which of its tables
NAMES = {"lcbench": "LCBench", "taskset": "TaskSet"}
CONTEXT, SHOWN = 40, 6  # runs that the model sees, and those that the picture shows


def from_the_paper(rng: np.random.Generator) -> Observations:
    """Eight runs of one hyperparameter, drawn from the paper's model: asymptotes, and falls with a positive start."""
    x = (np.arange(len(LENGTHS)) + rng.uniform(0.2, 0.8, len(LENGTHS)))[:, None] / len(LENGTHS)
    K = 0.6 * correlation(x / 0.35, x / 0.35) + 1e-9 * np.eye(len(x))
    asymptotes = np.linalg.cholesky(K) @ rng.standard_normal(len(x))
    t = np.arange(1.0, HORIZON + 1)
    K = exponential_decay(t, t, 1.5, 6.0)
    losses = []
    for asymptote, length in zip(asymptotes, LENGTHS, strict=True):
        values, vectors = np.linalg.eigh(K)
        fall = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(t)))
        fall += (abs(fall[0]) + 0.6 - fall[0]) * K[0] / K[0, 0]  # given a start above the asymptote
        y = asymptote + fall + 0.03 * rng.standard_normal(len(t))
        losses.append(tuple(float(loss) for loss in 0.45 + 0.12 * y[:length]))
    return Observations(x, tuple(losses), Geometry.plain(1), HORIZON)


def real_runs(rng: np.random.Generator) -> tuple[str, Observations, list[tuple[float, ...]]]:
    """Runs of a real table cut at random epochs, and what came afterwards."""
    if tables.data_folder() is None:
        name, configs, curves, geometry = synthetic_runs(rng)
    else:
        table = [t for key, t in tables.load().items() if key.startswith("taskset/")][TASKSET]
        finite = np.flatnonzero(np.isfinite(table.losses).all(axis=(1, 2)) & (table.losses.max(axis=(1, 2)) < 5))
        rows = rng.choice(finite, CONTEXT, replace=False)
        name, configs, curves, geometry = "real (TaskSet)", table.features[rows], table.losses[rows, 0], table.geometry
    horizon = curves.shape[1]
    cuts = rng.integers(3, horizon // 2 + 1, CONTEXT)
    # most runs of the table stay at chance level; those with the lowest losses *seen* come first
    order = np.argsort([curve[:cut].min() for curve, cut in zip(curves, cuts, strict=True)])
    configs, curves, cuts = configs[order], curves[order], cuts[order]
    seen = tuple(tuple(float(y) for y in curve[:cut]) for curve, cut in zip(curves, cuts, strict=True))
    later = [tuple(float(y) for y in curve[cut:]) for curve, cut in zip(curves, cuts, strict=True)]
    return name, Observations(configs, seen, geometry, float(horizon)), later


def synthetic_runs(rng: np.random.Generator) -> tuple[str, np.ndarray, np.ndarray, Geometry]:
    """Power laws that fall to an asymptote and sometimes rise again, smooth in two hyperparameters."""
    x, t = rng.random((CONTEXT, 2)), np.arange(1.0, 51.0)
    end = 0.2 + 0.5 * np.sum((x - 0.4) ** 2, axis=1)
    fall = 0.6 * (1 + t[None] / (0.5 + 6 * x[:, :1])) ** -1.0
    rise = 0.05 * np.maximum(x[:, 1:] - 0.5, 0) * np.log(t)[None]
    curves = end[:, None] + fall + rise + 0.006 * rng.standard_normal((CONTEXT, len(t)))
    return "synthetic", x, curves, Geometry.plain(2)


def pruned_trials(found: optuna_import.Pruned, where: str) -> Any:
    """Forecasts of the last loss of pruned trials against what it would have been, beside their last losses."""
    low, median, high = found.quantiles
    edges = np.quantile(found.truth, [0.01, 0.99])  # a few trials end far off, and would squeeze all others together
    figure = style.empty_figure(
        f"{len(found.truth)} pruned trials of an Optuna study, {where}",
        f"forecast from the losses before pruning (median {np.median(found.seen):.0f} epochs)",
        "loss at the last epoch, had it not been pruned",
        "forecast, with 90 % interval",
    )
    figure.add_scatter(x=edges, y=edges, mode="lines", line={"color": style.FAINT, "dash": "dot"}, name="exact")
    bars = {"symmetric": False, "array": high - median, "arrayminus": median - low, "width": 0, "thickness": 1}
    dots = {"color": style.colour(0), "size": 6}
    bars["color"] = style.faded(style.colour(0), 0.25)
    figure.add_scatter(x=found.truth, y=median, error_y=bars, mode="markers", marker=dots, name="forecast")
    plain = {"color": style.SOFT, "size": 5, "symbol": "x-thin-open"}
    figure.add_scatter(x=found.truth, y=found.last, mode="markers", marker=plain, name="last loss seen")
    span = edges[1] - edges[0]
    figure.update_xaxes(range=[edges[0] - 0.05 * span, edges[1] + 0.05 * span])
    return figure.update_yaxes(range=[edges[0] - 0.3 * span, edges[1] + 0.3 * span])


def main(folder: Path = IMAGES) -> list[Path]:
    """Write every picture into the folder."""
    small = {"width": 620, "height": 460, "scale": 2}
    written = [
        figures.write_png(figures.kernel_basis(), folder / "kernel_basis.png", **small),
        figures.write_png(figures.prior_draws(), folder / "prior_draws.png", **small),
        figures.write_png(figures.realistic_draws(), folder / "realistic_draws.png", **small),
    ]
    written.append(figures.write_png(factor_graph(), folder / "factor_graph.png", 900, 500, scale=2))
    rng = np.random.default_rng(3)
    observations = from_the_paper(rng)
    forecaster = Forecaster.condition(from_scratch(observations, "paper", rng), observations)
    title = "Runs and their forecasts, the paper's model"
    curves = figures.curves_with_forecasts(forecaster, observations, title=title)
    written.append(figures.write_png(curves, folder / "paper_forecasts.png", 1000, 600, scale=2))
    ends = figures.asymptotes(forecaster, observations, title="Where the runs would end, the paper's model")
    written.append(figures.write_png(ends, folder / "paper_asymptotes.png", 820, 520, scale=2))
    rng = np.random.default_rng(2014)
    name, observations, later = real_runs(rng)
    forecaster = Forecaster.condition(from_scratch(observations, "drift", rng), observations)
    curves = figures.curves_with_forecasts(
        forecaster, observations, range(SHOWN), later[:SHOWN], title=f"The default model on {name} curves"
    )
    written.append(figures.write_png(curves, folder / "drift_forecasts.png", 900, 580, scale=2))
    kept = json.loads(FORECASTS.read_text())["results"]
    histograms = {suite: found["later"]["drift"]["pit"] for suite, found in kept.items()}
    written.append(figures.write_png(figures.calibration(histograms), folder / "calibration.png", 820, 480, scale=2))
    for suite, table in first_tables().items():
        found, _ = optuna_import.forecast_pruned(table)
        name = folder / f"optuna_{suite}.png"
        written.append(figures.write_png(pruned_trials(found, NAMES[suite]), name, 640, 560, scale=2))
    return written


def first_tables() -> dict[str, tables.Table]:
    """Of each suite that the pruned trials are drawn for; none where there are no data."""
    known = {} if tables.data_folder() is None else tables.load()
    return {
        suite: next(t for key, t in known.items() if key.startswith(suite)) for suite in optuna_import.TABLES if known
    }


if __name__ == "__main__":
    for path in main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES):
        print(f"{path} ({path.stat().st_size // 1024} kB)")
