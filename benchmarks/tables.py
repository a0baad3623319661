"""Real learning curves as tables: configurations, and the loss of every epoch of each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

import freezethaw as ft
from benchmarks import spaces
from freezethaw.model.specification import Geometry

SUITES = ("taskset", "lcbench", "deepobs", "arlbench")
LATEST_START = 0.36  # longest plateau in slow tables, as a share of all epochs


@dataclass(frozen=True)
class Table:
    """All runs of one problem. Losses are to be minimised; NaN or infinite where a run diverged."""

    name: str
    features: np.ndarray  # (configs, columns) in the unit cube, as the forecast benchmark takes them
    geometry: Geometry
    losses: np.ndarray  # (configs, seeds, epochs)
    seconds: np.ndarray | None = None  # (configs, epochs) of each epoch
    space: ft.Space | None = None  # the space of the rows; None for DeepOBS, which is not simulated
    configs: tuple[dict, ...] = ()  # the rows as configurations of the space

    @property
    def suite(self) -> str:
        return self.name.split("/")[0]

    @property
    def epochs(self) -> int:
        return self.losses.shape[2]

    @property
    def maximise(self) -> bool:
        """Whether the metric itself is to be maximised: ARLBench's return, whose negative is the loss here."""
        return self.suite.endswith("arlbench")


def data_folder() -> Path | None:
    """Where the data are: FREEZETHAW_DATA, or ../shared/data beside the project; None where there are none."""
    places = [os.environ.get("FREEZETHAW_DATA"), Path(__file__).parents[2] / "shared" / "data"]
    return next((Path(p) for p in places if p and Path(p).is_dir()), None)


def unit_cube(values: np.ndarray, log: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Positions between the bounds, on each column's own scale."""

    def scale(x: np.ndarray) -> np.ndarray:
        return np.where(log, np.log(np.where(log, x, 1.0)), x)

    return np.clip((scale(values) - scale(low)) / (scale(high) - scale(low)), 0.0, 1.0)


def _rectangular(folder: Path, file: str, suite: str) -> list[Table]:
    with np.load(folder / file) as z:
        features = unit_cube(z["hp"].astype(float), z["hp_log"].astype(bool), z["hp_lower"], z["hp_upper"])
        geometry = Geometry.plain(features.shape[1])
        seconds = _of_each_epoch(z["seconds"].astype(float)) if "seconds" in z else [None] * len(z["loss"])
        columns = [z[key] for key in ("hp_names", "hp_log", "hp_int", "hp_lower", "hp_upper", "hp")]
        space, configs = spaces.rectangular(*columns)
        return [
            Table(f"{suite}/{name}", features, geometry, loss[:, None, :].astype(float), time, space, tuple(configs))
            for name, loss, time in zip(z["task_names"], z["loss"], seconds, strict=True)
        ]


def _of_each_epoch(cumulative: np.ndarray) -> np.ndarray:
    """Seconds of single epochs. The sums are rounded coarsely: no epoch takes less than 1 % of the table's mean."""
    seconds = np.diff(cumulative, prepend=0.0)
    return np.maximum(seconds, 0.01 * seconds.mean(axis=(1, 2), keepdims=True))


def _deepobs(folder: Path) -> list[Table]:
    tables = []
    with np.load(folder / "deepobs_baselines" / "deepobs_baselines.npz") as z:
        for problem in sorted({key.split("/")[0] for key in z}):
            rate, optimizer = np.log(z[f"{problem}/lr"]), z[f"{problem}/optimizer"]
            x = (rate - rate.min()) / (rate.max() - rate.min())
            one_hot = (optimizer[:, None] == np.unique(optimizer)[None, :]) / np.sqrt(2)
            geometry = Geometry((0, *(1,) * one_hot.shape[1]), (True, *(False,) * one_hot.shape[1]))
            losses = z[f"{problem}/test_losses"][:, None, 1:].astype(float)  # index 0 is before training
            tables.append(Table(f"deepobs/{problem}", np.column_stack([x, one_hot]), geometry, losses))
    return tables


def _arlbench(folder: Path) -> list[Table]:
    tables = []
    for file in sorted((folder / "arlbench").glob("*.npz")):
        with np.load(file) as z:
            hp, performance = z["hp"].astype(float), z["performance"].astype(float)
            space, configs = spaces.arlbench(z["hp_names"], json.loads(str(z["categorical"])), hp)
        low, high = np.nanmin(hp, axis=0), np.nanmax(hp, axis=0)
        log = (low > 0) & (high / np.maximum(low, 1e-300) > 50)
        varied = high > low
        filled = np.where(np.isfinite(hp), hp, low)[:, varied]
        features = unit_cube(filled, log[varied], low[varied], high[varied])
        features[~np.isfinite(hp[:, varied])] = 0.5  # inactive: the same for all that lack it
        geometry = Geometry.plain(features.shape[1])
        tables.append(
            Table(f"arlbench/{file.stem}", features, geometry, -performance, space=space, configs=tuple(configs))
        )
    return tables


@cache
def load() -> dict[str, Table]:
    """All tables by name, of those suites whose files are there."""
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError("no data: set FREEZETHAW_DATA to the folder that holds taskset.npz and the others")
    found: list[Table] = []
    if (folder / "taskset.npz").exists():
        found += _rectangular(folder, "taskset.npz", "taskset")
    if (folder / "lcbench_surrogate.npz").exists():
        found += _rectangular(folder, "lcbench_surrogate.npz", "lcbench")
    if (folder / "deepobs_baselines").is_dir():
        found += _deepobs(folder)
    return {table.name: table for table in found + _arlbench(folder)}


# Real curves made harder. Their suites are named slow-taskset, noisy-lcbench and so on.


def _slow(table: Table, rng: np.random.Generator) -> np.ndarray:
    """Each curve begins with a plateau of two epochs or more, whose length depends on the configuration.

    The plateau is the median first loss, with a noise of 2 % of the interquartile range of first losses.
    """
    losses, features = table.losses, table.features
    first = losses[:, :, 0]
    low, level, high = np.nanquantile(np.where(np.isfinite(first), first, np.nan), [0.25, 0.5, 0.75])
    score = features @ rng.standard_normal(features.shape[1]) + 0.3 * rng.standard_normal(len(features))
    share = score.argsort().argsort() / max(len(score) - 1, 1)
    latest = max(LATEST_START * losses.shape[2], 2.0)
    plateau = np.round(2 + (latest - 2) * share).astype(int)
    found = level + 0.02 * (high - low) * rng.standard_normal(losses.shape)
    for row, count in enumerate(plateau):
        found[row, :, count:] = losses[row, :, : losses.shape[2] - count]
    return found


def _noisy(table: Table, rng: np.random.Generator) -> np.ndarray:
    """Noise of half the interquartile range of last losses; two seeds with opposite noise, so the mean is the loss."""
    true = table.losses.mean(axis=1, keepdims=True)
    last = true[:, :, -1]
    low, high = np.nanquantile(np.where(np.isfinite(last), last, np.nan), [0.25, 0.75])
    noise = 0.5 * (high - low) * rng.standard_normal(true.shape)
    return np.concatenate([true + noise, true - noise], axis=1)


def _stepped(table: Table, rng: np.random.Generator) -> np.ndarray:
    """Losses that change at a few random epochs only, equally spaced in log time on average: a step-like fall."""
    losses, epochs = table.losses, np.arange(1, table.epochs + 1)
    changes = rng.random((len(losses), len(epochs))) < np.minimum(1.0, 2.0 / epochs)
    changes[:, 0] = True
    since = np.maximum.accumulate(np.where(changes, np.arange(len(epochs)), 0), axis=1)
    return np.take_along_axis(losses, np.broadcast_to(since[:, None, :], losses.shape), axis=2)


HARDER: dict[str, Callable[[Table, np.random.Generator], np.ndarray]] = {
    "slow": _slow,
    "noisy": _noisy,
    "stepped": _stepped,
}


@cache
def find(name: str) -> Table:
    """The table of this name, or a harder one made of it."""
    kind, _, of = name.partition("-")
    if kind not in HARDER:
        return load()[name]
    table = load()[of]
    rng = np.random.default_rng([*name.encode()])
    return replace(table, name=name, losses=HARDER[kind](table, rng))
