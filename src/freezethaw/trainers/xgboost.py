"""XGBoost: an epoch is a number of boosting rounds, and a thawed run continues its saved booster.

def train(run):
    boost(run, run.config | {"objective": "binary:logistic"}, dtrain, evals=[(dvalid, "valid")])

replaces `xgboost.train(params, dtrain, 100, evals=...)`. The loss is the last metric of the last set, as in
XGBoost's early stopping; the others are reported as metrics. A checkpoint is a model in JSON and cannot execute code.

Sampled rows and columns depend only on `run.seed` and the epoch. The random state of XGBoost is not accessible, so with
row or column sampling each epoch starts with a new booster, which costs one prediction of the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freezethaw.errors import TrainingError, extra
from freezethaw.trainers.protocol import TrainingRun

with extra("xgboost"):
    import xgboost

FILE = "model.json"


class BoosterState:
    """A booster with its data and parameters."""

    def __init__(self, seed: int, params: Mapping[str, Any], dtrain: Any, evals: Sequence[tuple[Any, str]]) -> None:
        self.seed, self.params, self.dtrain, self.evals = seed, dict(params), dtrain, list(evals)
        self.booster: Any = None

    def save(self, folder: Path) -> None:
        """Save to a checkpoint."""
        self.booster.save_model(folder / FILE)

    def load(self, folder: Path) -> None:
        """Load from a checkpoint."""
        self.booster = self._new_booster(0, folder / FILE)

    def train_epoch(self, epoch: int, rounds: int, objective: Callable[..., Any] | None = None) -> None:
        """Train `rounds` more rounds."""
        if self.booster is None:
            self.booster = self._new_booster(epoch)
        elif _samples(self.params):
            self.booster = self._new_booster(epoch, self.booster.save_raw("ubj"))
        for _ in range(rounds):
            self.booster.update(self.dtrain, self.booster.num_boosted_rounds(), fobj=objective)

    def metrics(self, custom: Callable[..., Any] | None = None) -> dict[str, float]:
        """The metrics by "set-metric", in the order of XGBoost."""
        _, *found = self.booster.eval_set(self.evals, feval=custom).split("\t")
        return {name: float(value) for name, _, value in (text.rpartition(":") for text in found)}

    def _new_booster(self, epoch: int, model: Any = None) -> Any:
        own = {"seed": int(np.random.SeedSequence([self.seed, epoch]).generate_state(1)[0] >> 1)}
        return xgboost.Booster(own | self.params, [self.dtrain, *(data for data, _ in self.evals)], model)


def boost(
    run: TrainingRun,
    params: Mapping[str, Any],
    dtrain: Any,
    evals: Sequence[tuple[Any, str]],
    rounds: int = 1,
    objective: Callable[..., Any] | None = None,
    custom_metric: Callable[..., Any] | None = None,
) -> None:
    """Train until the run is frozen, with `rounds` boosting rounds per epoch."""
    if not evals:
        raise TrainingError("evals=[(dvalid, 'valid')] is required: the last metric of the last set is the loss")
    state = BoosterState(run.seed, params, dtrain, evals)
    if run.checkpoint is not None:
        state.load(run.checkpoint)
    for epoch in run.epochs():
        state.train_epoch(epoch, rounds, objective)
        metrics = state.metrics(custom_metric)
        run.report(metrics.pop(list(metrics)[-1]), save=state.save, **metrics)


def _samples(params: Mapping[str, Any]) -> bool:
    """Whether rows, columns or trees are sampled."""
    parts = [value for name, value in params.items() if name.startswith(("subsample", "colsample"))]
    return any(part != 1 for part in parts) or params.get("booster") == "dart"
