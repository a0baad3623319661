"""The space that each table's rows were drawn from, and the rows as its configurations.

ARLBench's file says which columns are coded labels and where a column is inactive; its bounds and scales are those of
the search spaces that its authors published. What differs between its problems follows from the rows: the batch sizes,
and the upper ends of three whole numbers. A column that does not vary is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

import freezethaw as ft

BATCHES = ("buffer_batch_size", "minibatch_size")  # powers of two, in order
PARENTS = {  # column: (the choice it hangs on, its value)
    "buffer_alpha": ("buffer_prio_sampling", True),
    "buffer_beta": ("buffer_prio_sampling", True),
    "buffer_epsilon": ("buffer_prio_sampling", True),
    "target_update_interval": ("use_target_network", True),
    "tau": ("use_target_network", True),
}
FLOATS = {  # column: low, high, log
    "learning_rate": (1e-6, 1e-1, True),
    "initial_epsilon": (0.5, 1.0, False),
    "target_epsilon": (1e-3, 0.2, False),
    "buffer_alpha": (0.01, 1.0, False),
    "buffer_beta": (0.01, 1.0, False),
    "reward_scale": (0.1, 10.0, True),
    "tau": (0.01, 1.0, False),
    "clip_eps": (0.0, 0.5, False),
    "vf_clip_eps": (0.0, 0.5, False),
    "ent_coef": (0.0, 0.5, False),
    "gae_lambda": (0.8, 0.9999, False),
    "max_grad_norm": (0.0, 1.0, False),
    "vf_coef": (0.0, 1.0, False),
}


def rectangular(
    names: np.ndarray, log: np.ndarray, whole: np.ndarray, low: np.ndarray, high: np.ndarray, rows: np.ndarray
) -> tuple[ft.Space, list[dict]]:
    """The space of columns that are all active, with bounds and scales as given."""
    entries = {}
    for i, name in enumerate(map(str, names)):
        if whole[i]:
            entries[name] = ft.Int(round(low[i]), round(high[i]), log=bool(log[i]))
        else:
            entries[name] = ft.Float(float(low[i]), float(high[i]), log=bool(log[i]))
    return ft.Space(entries), [_config(entries, row) for row in rows.tolist()]


def arlbench(names: np.ndarray, categorical: Mapping[str, list[str]], rows: np.ndarray) -> tuple[ft.Space, list[dict]]:
    """The space of one problem of ARLBench."""
    entries = {}
    for name, column in zip(map(str, names), rows.T, strict=True):
        values = np.unique(column[np.isfinite(column)])
        if len(values) < 2:
            continue
        parent = PARENTS.get(name)
        when = {parent[0]: parent[1]} if parent is not None and not np.isfinite(column).all() else None
        entries[name] = _parameter(name, values, categorical.get(name), when)
    kept = [i for i, name in enumerate(names) if str(name) in entries]
    return ft.Space(entries), [_config(entries, row) for row in rows[:, kept].tolist()]


def _parameter(name: str, values: np.ndarray, labels: list[str] | None, when: dict | None) -> object:
    low, high = float(values[0]), float(values[-1])
    if labels is not None:
        return ft.Choice(*(json.loads(label.lower()) for label in labels), when=when)
    if name in BATCHES:
        return ft.Choice(*(int(v) for v in values), ordered=True, when=when)
    if name == "buffer_epsilon":  # from 1e-7 to 1e-3 for DQN, from 1e-9 to 1e-4 for SAC
        return ft.Float(10.0 ** np.floor(np.log10(low)), 10.0 ** np.ceil(np.log10(high)), log=True, when=when)
    if name == "learning_starts":  # between powers of two
        return ft.Int(2 ** int(np.log2(low)), 2 ** int(np.ceil(np.log2(high))), when=when)
    if name in ("buffer_size", "target_update_interval"):  # up to a round number
        unit = 10.0 ** (np.floor(np.log10(high)) - 1)
        return ft.Int({"buffer_size": 1024}.get(name, 1), round(np.ceil(high / unit) * unit), when=when)
    return ft.Float(*FLOATS[name][:2], log=FLOATS[name][2], when=when)


def _config(entries: Mapping[str, object], row: list[float]) -> dict:
    """A row as a configuration: labels for codes, whole numbers where they are, nothing where it is inactive."""
    config: dict = {}
    for (name, parameter), value in zip(entries.items(), row, strict=True):
        if np.isnan(value):
            continue
        if isinstance(parameter, ft.Float):
            config[name] = min(max(value, parameter.low), parameter.high)
        elif isinstance(parameter, ft.Int) or parameter.ordered:
            config[name] = round(value)
        else:
            config[name] = parameter.values[round(value)]
    return config
