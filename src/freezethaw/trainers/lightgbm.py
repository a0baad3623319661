"""LightGBM: an epoch is a number of boosting rounds, and a thawed run continues its saved booster.

def train(run):
    boost(run, run.config | {"objective": "binary"}, train_set, valid_sets=[valid_set])

replaces `lightgbm.train(params, train_set, 100, valid_sets=...)`. The loss is the first metric of the last set;
the others are reported as metrics. A checkpoint is LightGBM's text format and cannot execute code.

Sampled rows and columns depend only on `run.seed` and the epoch. The random state of LightGBM is not accessible, so
with row or column sampling each epoch starts with a new booster, which costs one prediction of the training data.
Datasets must keep their raw data (`free_raw_data=False`), which this prediction needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freezethaw.errors import TrainingError, extra
from freezethaw.trainers.protocol import TrainingRun

with extra("lightgbm"):
    import lightgbm

FILE = "model.txt"
SEEDS = ("bagging_seed", "feature_fraction_seed", "extra_seed")
BOOSTING = ("boosting", "boosting_type", "boost")
# parameters, with all aliases, that sample rows or columns unless they are 1 or False
FRACTIONS = (
    "bagging_fraction", "sub_row", "subsample", "bagging", "pos_bagging_fraction", "neg_bagging_fraction",
    "feature_fraction", "sub_feature", "colsample_bytree", "feature_fraction_bynode", "colsample_bynode",
    "extra_trees", "extra_tree", "data_sample_strategy",
)  # fmt: skip


class BoosterState:
    """A booster with its data and parameters."""

    def __init__(self, seed: int, params: Mapping[str, Any], train_set: Any, valid_sets: Sequence[Any]) -> None:
        self.seed, self.params, self.train_set, self.valid_sets = seed, dict(params), train_set, list(valid_sets)
        self.booster: Any = None
        self._new_booster = True  # whether the next epoch starts with a new booster

    def save(self, folder: Path) -> None:
        """Save to a checkpoint."""
        self.booster.save_model(folder / FILE, num_iteration=-1)

    def load(self, folder: Path) -> None:
        """Load from a checkpoint."""
        self.booster = lightgbm.Booster(model_file=folder / FILE)

    def train_epoch(self, epoch: int, rounds: int) -> None:
        """Train `rounds` more rounds."""
        if not self._new_booster:
            for _ in range(rounds):
                self.booster.update()
            return
        self._new_booster = _samples(self.params)
        seeds = np.random.SeedSequence([self.seed, epoch if self._new_booster else 0]).generate_state(len(SEEDS)) >> 1
        self.booster = lightgbm.train(
            dict(zip(SEEDS, seeds.tolist(), strict=True)) | {"seed": self.seed >> 1} | self.params,
            self.train_set,
            rounds,
            self.valid_sets,
            init_model=self.booster,
            keep_training_booster=True,
        )

    def metrics(self, custom: Callable[..., Any] | None = None) -> dict[str, float]:
        """The metrics by "set-metric", those of the last set first."""
        found = self.booster.eval_valid(custom)
        last = found[-1][0]
        ordered = [one for one in found if one[0] == last] + [one for one in found if one[0] != last]
        return {f"{name}-{metric}": float(value) for name, metric, value, *_ in ordered}


def boost(
    run: TrainingRun,
    params: Mapping[str, Any],
    train_set: Any,
    valid_sets: Sequence[Any],
    rounds: int = 1,
    custom_metric: Callable[..., Any] | None = None,
) -> None:
    """Train until the run is frozen, with `rounds` boosting rounds per epoch."""
    if not valid_sets:
        raise TrainingError("valid_sets=[valid_set] is required: the first metric of the last set is the loss")
    kind = next((params[name] for name in BOOSTING if name in params), "gbdt")
    if kind in ("dart", "rf", "random_forest"):
        raise TrainingError(f"LightGBM cannot continue a {kind!r} booster; use 'gbdt'")
    state = BoosterState(run.seed, params, train_set, valid_sets)
    if run.checkpoint is not None:
        state.load(run.checkpoint)
    for epoch in run.epochs():
        state.train_epoch(epoch, rounds)
        metrics = state.metrics(custom_metric)
        run.report(metrics.pop(next(iter(metrics))), save=state.save, **metrics)


def _samples(params: Mapping[str, Any]) -> bool:
    """Whether rows or columns are sampled."""
    return any(params[name] not in (1, 1.0, False, "bagging") for name in FRACTIONS if name in params)
