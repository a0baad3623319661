"""scikit-learn: estimators that are trained in parts, by `partial_fit` or `warm_start`.

def train(run):
    model = SGDClassifier(random_state=run.seed, **run.config)
    state = thawed(run, model)                         # loads, where there is a checkpoint
    for epoch in run.epochs():
        train_epoch(model, epoch, X, y, classes)       # or model.partial_fit(X, y, classes)
        run.report(log_loss(...), save=state.save)

A checkpoint is written by skops: arrays and JSON, of which only known types are made again. Nothing in it is executed.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freezethaw.errors import TrainingError
from freezethaw.trainers.needing import extra
from freezethaw.trainers.protocol import TrainingRun
from freezethaw.trainers.random_states import load_random_states, save_random_states, seed_random_states

with extra("sklearn"):
    import skops.io
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.exceptions import ConvergenceWarning

FILE = "estimators.skops"
GROWN = ("n_estimators", "max_iter")  # a parameter that says how far to train
# parts of scikit-learn's own estimators that skops does not know yet; they hold arrays and numbers
TRUSTED = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
)


class EstimatorState:
    """Estimators, saved and loaded together. `trusted`: types of your own in them, by their full names."""

    def __init__(self, *estimators: Any, trusted: Sequence[str] = ()) -> None:
        self.estimators, self.trusted = estimators, (*TRUSTED, *trusted)

    def save(self, folder: Path) -> None:
        """Into a checkpoint; whatever could not be loaded again is refused now, not later."""
        data = skops.io.dumps(list(self.estimators))
        unknown = set(skops.io.get_untrusted_types(data=data)) - set(self.trusted)
        if unknown:
            raise TrainingError(f"to save {', '.join(sorted(unknown))}, say so: thawed(..., trusted=[its full name])")
        _write_in_order(data, folder / FILE)
        save_random_states(folder)

    def load(self, folder: Path) -> None:
        """From a checkpoint, into the same objects."""
        loaded = skops.io.load(folder / FILE, trusted=list(self.trusted))
        if [type(one) for one in loaded] != [type(one) for one in self.estimators]:
            raise TrainingError(f"the checkpoint holds {loaded}; this training has {list(self.estimators)}")
        for estimator, state in zip(self.estimators, loaded, strict=True):
            vars(estimator).clear()
            vars(estimator).update(vars(state))
        load_random_states(folder)


def thawed(run: TrainingRun, *estimators: Any, trusted: Sequence[str] = ()) -> EstimatorState:
    """The estimators as they were when the run was frozen; as they are, where it starts."""
    state = EstimatorState(*estimators, trusted=trusted)
    if run.checkpoint is None:
        seed_random_states(run.seed)
    else:
        state.load(run.checkpoint)
    return state


def train_epoch(estimator: Any, epoch: int, X: Any, y: Any = None, classes: Any = None, rounds: int = 1) -> None:
    """One more epoch: a pass of `partial_fit`, or so many `rounds` more of what `warm_start` continues."""
    if hasattr(estimator, "partial_fit"):
        estimator.partial_fit(X, y, **({} if classes is None else {"classes": classes}))
        return
    parameters = estimator.get_params(deep=False)
    grown = next((name for name in GROWN if name in parameters), None)
    if grown is None or "warm_start" not in parameters:
        raise TrainingError(f"{type(estimator).__name__} trains in one go: it has neither partial_fit nor warm_start")
    whole = grown == "n_estimators" or isinstance(
        estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor
    )  # others count from where they are
    estimator.set_params(**{"warm_start": True, grown: rounds * epoch if whole else rounds})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # there is more to come
        estimator.fit(X, y)


def _write_in_order(data: bytes, file: Path) -> None:
    """What skops wrote, with names and numbers in the order of their appearance.

    skops names things by where they are in memory; now the same state is the same bytes, and `check` can compare.
    """
    numbers: dict[Any, int] = {}
    names: dict[str, str] = {}

    def renumber(node: Any) -> None:
        if isinstance(node, list):
            for held in node:
                renumber(held)
        if not isinstance(node, dict):
            return
        if "__id__" in node:  # plain values are never shared: whether they are one object is chance
            key = (len(numbers),) if node.get("__loader__") == "JsonNode" else node["__id__"]
            node["__id__"] = numbers.setdefault(key, len(numbers))
        if isinstance(node.get("file"), str):
            node["file"] = names.setdefault(node["file"], f"{len(names)}{Path(node['file']).suffix}")
        for held in node.values():
            renumber(held)

    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        schema = json.loads(old.read("schema.json"))
        renumber(schema)
        for name, renamed in names.items():
            new.writestr(zipfile.ZipInfo(renamed), _without_padding(old.read(name)))
        new.writestr(zipfile.ZipInfo("schema.json"), json.dumps(schema))


def _without_padding(data: bytes) -> bytes:
    """An array of records (the nodes of a tree) without what happened to be in memory between its fields."""
    if not data.startswith(np.lib.format.MAGIC_PREFIX):
        return data
    array = np.load(io.BytesIO(data), allow_pickle=False)
    if array.dtype.names is None:
        return data
    clean = np.zeros_like(array)
    for name in array.dtype.names:
        clean[name] = array[name]
    file = io.BytesIO()
    np.save(file, clean, allow_pickle=False)
    return file.getvalue()
