"""LightGBM: boosting rounds are the epochs, and a thawed run goes on from its saved booster.

def train(run):
    boost(run, run.config | {"objective": "binary"}, train_set, valid_sets=[valid_set])

in the place of `lightgbm.train(params, train_set, 100, valid_sets=...)`. The loss is the first metric of the last set;
the others are kept as metrics. A checkpoint is LightGBM's own text of a model: nothing in it is executed.

What rows and columns are drawn depends on `run.seed` and the epoch alone. LightGBM keeps its generators to itself, so
where a parameter asks for draws, each epoch begins with a new booster: it costs a prediction of the training data.
Datasets must keep their raw data (`free_raw_data=False`): a booster is continued from what it predicts for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freezethaw.errors import TrainingError
from freezethaw.trainers.needing import extra
from freezethaw.trainers.protocol import TrainingRun

with extra("lightgbm"):
    import lightgbm

FILE = "model.txt"
SEEDS = ("bagging_seed", "feature_fraction_seed", "extra_seed")
BOOSTING = ("boosting", "boosting_type", "boost")
# parameters, by all their names, that ask for rows or columns to be drawn unless they are 1 or False
FRACTIONS = (
    "bagging_fraction", "sub_row", "subsample", "bagging", "pos_bagging_fraction", "neg_bagging_fraction",
    "feature_fraction", "sub_feature", "colsample_bytree", "feature_fraction_bynode", "colsample_bynode",
    "extra_trees", "extra_tree", "data_sample_strategy",
)  # fmt: skip


class BoosterState:
    """A booster, its data, and how to make it anew."""

    def __init__(self, seed: int, params: Mapping[str, Any], train_set: Any, valid_sets: Sequence[Any]) -> None:
        self.seed, self.params, self.train_set, self.valid_sets = seed, dict(params), train_set, list(valid_sets)
        self.booster: Any = None
        self._anew = True  # whether the next epoch begins with a new booster

    def save(self, folder: Path) -> None:
        """Into a checkpoint."""
        self.booster.save_model(folder / FILE, num_iteration=-1)

    def load(self, folder: Path) -> None:
        """From a checkpoint."""
        self.booster = lightgbm.Booster(model_file=folder / FILE)

    def train_epoch(self, epoch: int, rounds: int) -> None:
        """So many rounds more."""
        if not self._anew:
            for _ in range(rounds):
                self.booster.update()
            return
        self._anew = _draws(self.params)
        seeds = np.random.SeedSequence([self.seed, epoch if self._anew else 0]).generate_state(len(SEEDS)) >> 1
        self.booster = lightgbm.train(
            dict(zip(SEEDS, seeds.tolist(), strict=True)) | {"seed": self.seed >> 1} | self.params,
            self.train_set,
            rounds,
            self.valid_sets,
            init_model=self.booster,
            keep_training_booster=True,
        )

    def metrics(self, custom: Callable[..., Any] | None = None) -> dict[str, float]:
        """By "set-metric", those of the last set first."""
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
    """Boost until the run is frozen, so many `rounds` an epoch."""
    if not valid_sets:
        raise TrainingError("give valid_sets=[valid_set]: the first metric of the last set is the loss")
    kind = next((params[name] for name in BOOSTING if name in params), "gbdt")
    if kind in ("dart", "rf", "random_forest"):
        raise TrainingError(f"LightGBM cannot continue a booster of the kind {kind!r}; 'gbdt' can be frozen")
    state = BoosterState(run.seed, params, train_set, valid_sets)
    if run.checkpoint is not None:
        state.load(run.checkpoint)
    for epoch in run.epochs():
        state.train_epoch(epoch, rounds)
        metrics = state.metrics(custom_metric)
        run.report(metrics.pop(next(iter(metrics))), save=state.save, **metrics)


def _draws(params: Mapping[str, Any]) -> bool:
    """Whether a parameter asks for rows or columns to be drawn."""
    return any(params[name] not in (1, 1.0, False, "bagging") for name in FRACTIONS if name in params)
