"""XGBoost: boosting rounds are the epochs, and a thawed run goes on from its saved booster.

def train(run):
    boost(run, run.config | {"objective": "binary:logistic"}, dtrain, evals=[(dvalid, "valid")])

in the place of `xgboost.train(params, dtrain, 100, evals=...)`. The loss is the last metric of the last set, as for
XGBoost's early stopping; the others are kept as metrics. A checkpoint is a model in JSON: nothing in it is executed.

What rows and columns are drawn depends on `run.seed` and the epoch alone. XGBoost keeps its generators to itself, so
where a parameter asks for draws, each epoch begins with a new booster: it costs a prediction of the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freezethaw.errors import TrainingError
from freezethaw.trainers.needing import extra
from freezethaw.trainers.protocol import TrainingRun

with extra("xgboost"):
    import xgboost

FILE = "model.json"


class BoosterState:
    """A booster, its data, and how to make it anew."""

    def __init__(self, seed: int, params: Mapping[str, Any], dtrain: Any, evals: Sequence[tuple[Any, str]]) -> None:
        self.seed, self.params, self.dtrain, self.evals = seed, dict(params), dtrain, list(evals)
        self.booster: Any = None

    def save(self, folder: Path) -> None:
        """Into a checkpoint."""
        self.booster.save_model(folder / FILE)

    def load(self, folder: Path) -> None:
        """From a checkpoint."""
        self.booster = self._made(0, folder / FILE)

    def train_epoch(self, epoch: int, rounds: int, objective: Callable[..., Any] | None = None) -> None:
        """So many rounds more."""
        if self.booster is None:
            self.booster = self._made(epoch)
        elif _draws(self.params):
            self.booster = self._made(epoch, self.booster.save_raw("ubj"))
        for _ in range(rounds):
            self.booster.update(self.dtrain, self.booster.num_boosted_rounds(), fobj=objective)

    def metrics(self, custom: Callable[..., Any] | None = None) -> dict[str, float]:
        """By "set-metric", in XGBoost's order."""
        _, *found = self.booster.eval_set(self.evals, feval=custom).split("\t")
        return {name: float(value) for name, _, value in (text.rpartition(":") for text in found)}

    def _made(self, epoch: int, model: Any = None) -> Any:
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
    """Boost until the run is frozen, so many `rounds` an epoch."""
    if not evals:
        raise TrainingError("give evals=[(dvalid, 'valid')]: the last metric of the last set is the loss")
    state = BoosterState(run.seed, params, dtrain, evals)
    if run.checkpoint is not None:
        state.load(run.checkpoint)
    for epoch in run.epochs():
        state.train_epoch(epoch, rounds, objective)
        metrics = state.metrics(custom_metric)
        run.report(metrics.pop(list(metrics)[-1]), save=state.save, **metrics)


def _draws(params: Mapping[str, Any]) -> bool:
    """Whether a parameter asks for rows, columns or trees to be drawn."""
    parts = [value for name, value in params.items() if name.startswith(("subsample", "colsample"))]
    return any(part != 1 for part in parts) or params.get("booster") == "dart"
