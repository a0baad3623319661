"""When a study ends, and which run deserves the rest of the budget."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from freezethaw.decide.definition import StudyDefinition
from freezethaw.decide.inference_cache import Inference
from freezethaw.errors import AllPending, StudyFinished
from freezethaw.policy import acquisition
from freezethaw.records import Budget, DecisionDraft, Run, StudyState

Array = NDArray[np.float64]


def epochs_left(budget: Budget, state: StudyState) -> float:
    """Epochs that may still be granted; raises StudyFinished or AllPending if there are none."""
    if budget.target is not None and state.lowest is not None and state.lowest[0] <= state.sign * budget.target:
        raise StudyFinished(f"target reached: {state.sign * state.lowest[0]:g}")
    if budget.training_hours is not None and state.seconds_trained() >= 3600 * budget.training_hours:
        raise StudyFinished(f"budget spent: {budget.training_hours:g} hours of training")
    if budget.epochs is None:
        return np.inf
    if state.epochs_trained() >= budget.epochs:
        raise StudyFinished(f"budget spent: {budget.epochs} epochs")
    left = budget.epochs - state.epochs_trained() - state.epochs_pending()
    if left <= 0:
        raise AllPending("the rest of the budget is pending; ask again after the next tell")
    return left


def check_worthwhile(worthwhile: float, draft: DecisionDraft) -> None:
    """Raise StudyFinished if nothing is expected to improve the best loss by enough."""
    if draft.improvement < worthwhile:
        raise StudyFinished(f"not worthwhile: expected improvement {draft.improvement:.3g} is below {worthwhile:g}")


def recommended(definition: StudyDefinition, state: StudyState, inference: Inference) -> tuple[int, int]:
    """Run and epoch with the lowest expected loss, its noise removed, among the recorded ones.

    If configurations are repeated, each is judged by what one more run of it would give, from all of its runs.
    """
    observed = [run for run in state.runs if run.losses and run.number in inference.places]
    lowest = sorted(observed, key=lambda run: min(definition.sign * loss for loss in run.losses))
    found = []
    for run in lowest[: acquisition.LEADING_RUNS]:
        expected = expected_losses(inference, run, another=definition.repeats > 1)
        epoch = int(expected.argmin())
        found.append((float(expected[epoch]), min(definition.sign * y for y in run.losses), run.number, epoch + 1))
    _, _, number, epoch = min(found)
    return number, epoch


def expected_losses(inference: Inference, run: Run, another: bool) -> Array:
    """(epochs,) expected losses in model units at the recorded epochs: of the run, or of another one like it."""
    epochs = np.arange(1.0, run.epoch + 1.0)
    place = inference.places[run.number]
    posterior = inference.forecaster.posterior
    if another:
        found = posterior.new_losses(posterior.curves.configs[place], epochs, noise=False)
    else:
        found = posterior.losses(place, epochs, noise=False)
    return np.asarray(inference.forecaster.weights @ found.mean)


def finish_best(
    definition: StudyDefinition, state: StudyState, inference: Inference, left: float
) -> DecisionDraft | None:
    """Train the best run if the rest of the budget is just enough to train it to the end; else None.

    At least half of the budget is spent on the search.
    """
    if left > state.max_epochs:
        return None
    run = state.run(recommended(definition, state, inference)[0])
    ahead = state.max_epochs - run.epoch
    spent = state.epochs_trained() + state.epochs_pending()
    if run.state != "frozen" or run.number in state.banned or left > ahead or left > spent:
        return None
    to_epoch = run.epoch + int(min(ahead, left))
    reason = f"train the best run {run.number} with the rest of the budget, to epoch {to_epoch}"
    return DecisionDraft(run.number, run.config, to_epoch, reason)
