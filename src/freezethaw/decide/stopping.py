"""When a study ends, and which run deserves the rest of the budget."""

from __future__ import annotations

from dataclasses import replace

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


def finish_best(definition: StudyDefinition, state: StudyState, draft: DecisionDraft, left: float) -> DecisionDraft:
    """The draft, if enough of the budget is left after it to train whichever run is best then to the last epoch.

    Otherwise train the best run to the end. Any run that is trained may become the best, so a run is advanced only if
    it could be trained to the end too, and a pending one is waited for. A budget of max_epochs or less cannot do this
    after a search: then half of it is spent on the search, and the rest on the best run.
    """
    if definition.budget.epochs is None:
        return draft
    last, best = state.max_epochs, None if state.lowest is None else state.run(state.lowest[1])
    if best is not None and (best.state != "frozen" or best.number in state.banned):
        best = None  # it cannot be trained further now
    ahead = 0 if best is None else last - best.epoch
    if definition.budget.epochs <= last:
        spent = state.epochs_trained() + state.epochs_pending()
        return _finish(best, best.epoch + left) if best is not None and left <= min(ahead, spent) else draft
    pending = max((last - decision.to_epoch for decision in state.pending), default=0)
    done = 0 if draft.run is None else state.run(draft.run).epoch
    spare = left - (pending if best is not None and draft.run == best.number else max(pending, ahead))
    if spare >= 1 and left >= last - done:
        return replace(draft, to_epoch=int(min(draft.to_epoch, done + spare)))
    if best is not None and left - ahead >= pending:
        return _finish(best, last)
    if state.pending:
        raise AllPending("what is left of the budget may be needed to train the best run to the end")
    if best is not None:
        return _finish(best, best.epoch + left)
    others = [
        run for run in state.frozen() if run.losses and last - run.epoch <= left and run.number not in state.banned
    ]
    if others:
        run = min(others, key=lambda run: min(state.sign * loss for loss in run.losses))
        reason = f"train run {run.number} to the end with the rest of the budget"
        return DecisionDraft(run.number, run.config, last, reason)
    return _first_epoch(draft, done)


def _finish(run: Run, to_epoch: float) -> DecisionDraft:
    reason = f"train the best run {run.number} with the rest of the budget, to epoch {int(to_epoch)}"
    return DecisionDraft(run.number, run.config, int(to_epoch), reason)


def _first_epoch(draft: DecisionDraft, done: int) -> DecisionDraft:
    """No run can be trained to the end any more: start a new one, which will hardly be the best after one epoch."""
    new = next((entry for entry in draft.basket if entry.run is None), None)
    if new is None:
        return replace(draft, to_epoch=done + 1, plan=())
    reason = "start a new run: too little of the budget is left to train a run to the end"
    return replace(draft, run=None, config=new.config, to_epoch=1, reason=reason, plan=())
