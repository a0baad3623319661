"""scikit-learn: estimators with `partial_fit` or `warm_start`.

def train(run):
    model = SGDClassifier(random_state=run.seed, **run.config)
    state = thawed(run, model)                         # loads the checkpoint, if there is one
    for epoch in run.epochs():
        train_epoch(model, epoch, X, y, classes)       # or model.partial_fit(X, y, classes)
        run.report(log_loss(...), save=state.save)

A checkpoint is written by skops as arrays and JSON. Only known types are loaded, so it cannot execute code.
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

from freezethaw.errors import TrainingError, extra
from freezethaw.trainers.protocol import TrainingRun
from freezethaw.trainers.random_states import load_random_states, save_random_states, seed_random_states

with extra("sklearn"):
    import skops.io
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.exceptions import ConvergenceWarning

FILE = "estimators.skops"
GROWN = ("n_estimators", "max_iter")  # the parameter with the number of iterations
# parts of scikit-learn estimators that skops does not know yet; they contain arrays and numbers only
TRUSTED = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
)


class EstimatorState:
    """Estimators, saved and loaded together. `trusted` has the full names of your own types in them."""

    def __init__(self, *estimators: Any, trusted: Sequence[str] = ()) -> None:
        self.estimators, self.trusted = estimators, (*TRUSTED, *trusted)

    def save(self, folder: Path) -> None:
        """Save to a checkpoint; raises if it could not be loaded."""
        data = skops.io.dumps(list(self.estimators))
        unknown = set(skops.io.get_untrusted_types(data=data)) - set(self.trusted)
        if unknown:
            raise TrainingError(f"unknown types {', '.join(sorted(unknown))}; allow with thawed(..., trusted=[...])")
        _write_in_order(data, folder / FILE)
        save_random_states(folder)

    def load(self, folder: Path) -> None:
        """Load from a checkpoint, into the same objects."""
        loaded = skops.io.load(folder / FILE, trusted=list(self.trusted))
        if [type(one) for one in loaded] != [type(one) for one in self.estimators]:
            raise TrainingError(f"the checkpoint contains {loaded}; this training has {list(self.estimators)}")
        for estimator, state in zip(self.estimators, loaded, strict=True):
            vars(estimator).clear()
            vars(estimator).update(vars(state))
        load_random_states(folder)


def thawed(run: TrainingRun, *estimators: Any, trusted: Sequence[str] = ()) -> EstimatorState:
    """Load the estimators from the checkpoint of the run, if there is one."""
    state = EstimatorState(*estimators, trusted=trusted)
    if run.checkpoint is None:
        seed_random_states(run.seed)
    else:
        state.load(run.checkpoint)
    return state


def load(folder: Path | str, trusted: Sequence[str] = ()) -> Any:
    """The estimator in a checkpoint, such as the best one: `load(result.best.checkpoint)`; a list if there are several.

    Random generators are not changed.
    """
    found = skops.io.load(Path(folder) / FILE, trusted=[*TRUSTED, *trusted])
    return found[0] if len(found) == 1 else found


def train_epoch(estimator: Any, epoch: int, X: Any, y: Any = None, classes: Any = None, rounds: int = 1) -> None:
    """Train one epoch: one `partial_fit`, or `rounds` more iterations with `warm_start`."""
    if hasattr(estimator, "partial_fit"):
        estimator.partial_fit(X, y, **({} if classes is None else {"classes": classes}))
        return
    parameters = estimator.get_params(deep=False)
    grown = next((name for name in GROWN if name in parameters), None)
    if grown is None or "warm_start" not in parameters:
        raise TrainingError(f"{type(estimator).__name__} has neither partial_fit nor warm_start")
    cumulative = grown == "n_estimators" or isinstance(
        estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor
    )  # others count additional iterations
    estimator.set_params(**{"warm_start": True, grown: rounds * epoch if cumulative else rounds})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # more epochs follow
        estimator.fit(X, y)


def _write_in_order(data: bytes, file: Path) -> None:
    """Write the output of skops with names and numbers in order of appearance.

    skops uses memory addresses as names. After renumbering, equal states are equal bytes, so `check` can compare them.
    """
    numbers: dict[Any, int] = {}
    names: dict[str, str] = {}

    def renumber(node: Any) -> None:
        if isinstance(node, list):
            for item in node:
                renumber(item)
        if not isinstance(node, dict):
            return
        if "__id__" in node:  # plain values may or may not be shared: number them separately
            key = (len(numbers),) if node.get("__loader__") == "JsonNode" else node["__id__"]
            node["__id__"] = numbers.setdefault(key, len(numbers))
        if isinstance(node.get("file"), str):
            node["file"] = names.setdefault(node["file"], f"{len(names)}{Path(node['file']).suffix}")
        for item in node.values():
            renumber(item)

    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        schema = json.loads(old.read("schema.json"))
        renumber(schema)
        for name, renamed in names.items():
            new.writestr(zipfile.ZipInfo(renamed), _without_padding(old.read(name)))
        new.writestr(zipfile.ZipInfo("schema.json"), json.dumps(schema))


def _without_padding(data: bytes) -> bytes:
    """A structured array (the nodes of a tree) with zeros as padding between its fields."""
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
