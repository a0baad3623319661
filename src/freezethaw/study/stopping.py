"""When a study ends, and what is best in it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from freezethaw.errors import AllPending, StudyFinished
from freezethaw.policy import acquisition
from freezethaw.records import Best, Budget, Run
from freezethaw.study.definition import Rules
from freezethaw.study.facts import Facts
from freezethaw.study.insight import View
from freezethaw.study.ledger import Chosen

Array = NDArray[np.float64]


def epochs_left(budget: Budget, facts: Facts, sign: float) -> float:
    """Epochs that may still be granted; raises StudyFinished or AllPending where there are none."""
    if budget.target is not None:
        lowest = min((sign * loss for run in facts.runs for loss in run.losses), default=np.inf)
        if lowest <= sign * budget.target:
            raise StudyFinished(f"target reached: {sign * lowest:g}")
    if budget.hours is not None and facts.seconds_trained() >= 3600 * budget.hours:
        raise StudyFinished(f"budget spent: {budget.hours:g} hours")
    if budget.epochs is None:
        return np.inf
    if facts.epochs_trained() >= budget.epochs:
        raise StudyFinished(f"budget spent: {budget.epochs} epochs")
    left = budget.epochs - facts.epochs_trained() - facts.epochs_pending()
    if left <= 0:
        raise AllPending("the rest of the budget is under way; ask again after the next tell")
    return left


def check_worthwhile(worthwhile: float, chosen: Chosen) -> None:
    """Raise StudyFinished when nothing is expected to improve the best loss by enough."""
    if chosen.improvement < worthwhile:
        raise StudyFinished(f"not worthwhile: expected improvement {chosen.improvement:.3g} is below {worthwhile:g}")


def best_epoch(view: View, facts: Facts, rules: Rules) -> Best:
    """The recorded epoch with the lowest expected loss, its noise removed.

    Where configurations are repeated, a configuration is judged by what one more run of it would give: its runs speak
    for it together, and none by its luck.
    """
    observed = [run for run in facts.runs if run.losses and run.number in view.places]
    lowest = sorted(observed, key=lambda run: min(rules.sign * loss for loss in run.losses))[: acquisition.LEADING_RUNS]
    found = []
    for run in lowest:
        expected = _expected(view, run, another=rules.repeats > 1)
        epoch = int(expected.argmin())
        found.append((float(expected[epoch]), min(rules.sign * loss for loss in run.losses), run.number, epoch + 1))
    value, _, number, epoch = min(found)
    run = facts.run(number)
    expected_loss = float(view.forecaster.transform.from_model(value))
    return Best(number, epoch, run.config, run.losses[epoch - 1], expected_loss)


def _expected(view: View, run: Run, another: bool) -> Array:
    """(epochs,) expected losses in model units at the recorded epochs: the run's own, or those of another one."""
    epochs = np.arange(1.0, run.epoch + 1.0)
    place = view.places[run.number]
    posteriors = view.forecaster.posteriors
    if another:
        config = posteriors[0].curves.configs[place]
        predictions = [p.new_losses(config, epochs, noise=False).mean for p in posteriors]
    else:
        predictions = [p.losses(place, epochs, noise=False).mean for p in posteriors]
    return np.asarray(np.average(predictions, axis=0, weights=view.forecaster.weights))


def finish(view: View, facts: Facts, rules: Rules, left: float) -> tuple[int, int, str] | None:
    """Run, epoch and reason where the rest of the budget is just enough to train the best run to the end.

    At least half of the budget is spent on the search.
    """
    if left > facts.max_epochs:
        return None
    best = best_epoch(view, facts, rules)
    run = facts.run(best.run)
    ahead = facts.max_epochs - run.epoch
    spent = facts.epochs_trained() + facts.epochs_pending()
    if run.state != "frozen" or run.number in facts.banned or left > ahead or left > spent:
        return None
    to_epoch = run.epoch + int(min(ahead, left))
    return run.number, to_epoch, f"train the best run {run.number} with the rest of the budget, to epoch {to_epoch}"
