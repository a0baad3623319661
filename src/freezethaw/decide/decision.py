"""One decision: which run to start or thaw, up to which epoch, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from freezethaw.decide import stopping
from freezethaw.decide.configurations import Candidates
from freezethaw.decide.definition import StudyDefinition
from freezethaw.decide.inference_cache import Inference, InferenceCache, one_thread
from freezethaw.errors import AllPending, StudyError, StudyFinished
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.plain import percent
from freezethaw.policy import entropy_search, improvement_rate
from freezethaw.policy.acquisition import Choice, Options, ScoredEntry, choose_at_random
from freezethaw.policy.costs import relative_costs, survival_probability
from freezethaw.records import BasketEntry, Config, DecisionDraft, Run, StudyState

Array = NDArray[np.float64]
Policy = Callable[..., Choice]

POLICIES: dict[str, Policy | None] = {
    "improvement_rate": improvement_rate.choose,
    "entropy_search": entropy_search.choose,
    "random": None,
}
ENDED = ("finished", "diverged", "failed")
CENTRES = 5  # best runs around which new configurations are proposed


def decide(
    definition: StudyDefinition,
    state: StudyState,
    samples: HyperparameterSamples | None,
    seed: int,
    cache: InferenceCache | None = None,
) -> tuple[DecisionDraft, HyperparameterSamples | None]:
    """The next decision, and the hyperparameter samples after it (None if the model was not asked).

    A pure function: `cache` only saves work. Raises StudyFinished or AllPending if there is nothing to decide.
    """
    if definition.stopped:
        raise StudyFinished("stopped by the user")
    if definition.policy not in POLICIES:
        known = ", ".join(POLICIES)
        raise StudyError(f"this version has no policy {definition.policy!r}; continue the study with one of {known}")
    cache = cache or InferenceCache(definition)
    rng = np.random.default_rng([seed, state.decisions + 1])
    left = stopping.epochs_left(definition.budget, state)
    obsolete = tuple(
        r.number
        for r in state.requests
        if r.run is not None and (state.run(r.run).state in ENDED or state.run(r.run).epoch >= r.to_epoch)
    )
    for r in state.requests:
        if r.number not in obsolete and (r.run is None or state.run(r.run).state == "frozen"):
            reason = "requested by the user"
            return DecisionDraft(r.run, r.config, r.to_epoch, reason, requests=(r.number, *obsolete)), None
    with one_thread():
        inference = cache.infer(state, samples)
        if inference is None:
            return replace(_first(definition, state, cache, rng), requests=obsolete), None
        draft = None
        if definition.finish_best:
            draft = stopping.finish_best(definition, state, inference, left)
        draft = draft or _choose(definition, state, cache, inference, left, rng)
    if definition.budget.worthwhile is not None:
        stopping.check_worthwhile(definition.budget.worthwhile, draft)
    return replace(draft, requests=obsolete), inference.samples


def _first(
    definition: StudyDefinition, state: StudyState, cache: InferenceCache, rng: np.random.Generator
) -> DecisionDraft:
    """Before any loss is known: a run that was cancelled, or a new one."""
    waiting = next(state.frozen(), None)
    if waiting is not None:
        return _without_scores(waiting, waiting.config, "start a run that was cancelled before its first epoch")
    candidates = _new_runs(definition, state, cache, rng)
    _require([], candidates, state)
    # the first proposals are those near the user's guesses; of a list, any candidate
    place = 0 if definition.candidates is None else int(rng.integers(len(candidates)))
    return _without_scores(None, candidates.config(place), "start a new run: no loss is known yet")


def _choose(
    definition: StudyDefinition,
    state: StudyState,
    cache: InferenceCache,
    inference: Inference,
    left: float,
    rng: np.random.Generator,
) -> DecisionDraft:
    """What the policy chooses, given the forecasts."""
    inference = cache.with_pending(inference, state.pending)
    candidates = _new_runs(definition, state, cache, rng)
    frozen = [run for run in state.frozen() if run.number in inference.places]
    fresh = [run for run in state.frozen() if not run.losses]
    if fresh:
        return _without_scores(fresh[0], fresh[0].config, "start a run that was cancelled before its first epoch")
    _require(frozen, candidates, state)
    policy = POLICIES[definition.policy]
    if policy is None:
        return _at_random(frozen, candidates, rng)
    options = replace(_options(definition, state, cache, inference, frozen, candidates.features), epochs_left=left)
    choice = policy(inference.forecaster, options, rng)
    return _draft(choice, inference, state, candidates, left)


def _new_runs(
    definition: StudyDefinition, state: StudyState, cache: InferenceCache, rng: np.random.Generator
) -> Candidates:
    """Configurations that may be started."""
    sign = definition.sign
    ranked = sorted((run for run in state.runs if run.losses), key=lambda run: min(sign * y for y in run.losses))
    return cache.configurations.new(state.runs, ranked[:CENTRES], definition.repeats, rng)


def _at_random(frozen: Sequence[Run], candidates: Candidates, rng: np.random.Generator) -> DecisionDraft:
    """Start a new run or thaw one, with equal probability: the baseline of all policies."""
    number = choose_at_random([run.number for run in frozen], len(candidates) > 0, rng)
    if number is None:
        config = candidates.config(int(rng.integers(len(candidates))))
        return _without_scores(None, config, "start a new run at random")
    run = next(run for run in frozen if run.number == number)
    return _without_scores(run, run.config, f"thaw run {run.number} at epoch {run.epoch} at random")


def _options(
    definition: StudyDefinition,
    state: StudyState,
    cache: InferenceCache,
    inference: Inference,
    frozen: Sequence[Run],
    features: Array,
) -> Options:
    """What may be advanced or started, with the chance of surviving and the costs of each."""
    features_of, prices = cache.configurations.features, definition.prices
    factor_old, factor_new = np.ones(len(frozen)), np.ones(len(features))
    second = 1.0  # of training, in epochs
    ended = [run for run in state.runs if run.state in ("diverged", "failed")]
    if ended:
        alive = [run for run in state.runs if run.losses and run.state not in ("diverged", "failed")]
        known = features_of([*ended, *alive])
        factor_new = survival_probability(known, np.repeat([0.0, 1.0], [len(ended), len(alive)]), features)
    timed = [(run, np.nanmean(run.seconds)) for run in state.runs if np.any(np.array(run.seconds) > 0)]
    if timed:
        known, seconds = features_of([run for run, _ in timed]), np.array([s for _, s in timed])
        if (
            definition.budget.epochs is None or definition.budget.training_hours is not None
        ):  # time is spent, not epochs
            factor_old = factor_old / relative_costs(known, seconds, features_of(frozen))
            factor_new = factor_new / relative_costs(known, seconds, features)
        second = 1.0 / float(np.exp(np.mean(np.log(seconds))))
    switch = prices.start + prices.save
    cost_old = np.array([0.0 if run.number == state.last_run else switch + prices.load for run in frozen])
    again = np.array([0.0 if run.number == state.last_run else state.epochs_to_retrain(run) for run in frozen])
    places = np.array([inference.places[run.number] for run in frozen], dtype=np.int64)
    cost_new = np.full(len(features), switch * second)
    return Options(places, features, state.max_epochs, factor_old, factor_new, cost_old * second + again, cost_new)


def _draft(
    choice: Choice, inference: Inference, state: StudyState, candidates: Candidates, left: float
) -> DecisionDraft:
    """The policy's choice as a decision, with its reason and its basket."""
    numbers = {place: number for number, place in inference.places.items()}
    basket = tuple(_basket_entry(entry, numbers, state, candidates) for entry in choice.basket)
    winner, first = choice.winner, basket[0]
    transform = inference.forecaster.transform
    best = float(transform.from_model(np.dot(inference.forecaster.weights, choice.incumbents)))
    granted = int(min(winner.granted, state.max_epochs - first.epoch, left))
    _, slope = transform.with_slope(best)
    improvement = max(e.improvement for e in choice.basket) / float(slope)  # near the best the transform is linear
    reason = _reason(choice, basket, best)
    return DecisionDraft(first.run, first.config, first.epoch + granted, reason, improvement, basket)


def _basket_entry(
    entry: ScoredEntry, numbers: dict[int, int], state: StudyState, candidates: Candidates
) -> BasketEntry:
    if entry.run is not None:
        run = state.run(numbers[entry.run])
        return BasketEntry(run.number, run.config, run.epoch, entry.to_epoch, entry.score, entry.chance)
    return BasketEntry(None, candidates.config(entry.candidate or 0), 0, entry.to_epoch, entry.score, entry.chance)


def _reason(choice: Choice, basket: Sequence[BasketEntry], best: float) -> str:
    """Why the policy chose the first of the basket, for people."""
    first = basket[0]
    subject = (
        "start a new run" if first.run is None or first.epoch == 0 else f"thaw run {first.run} at epoch {first.epoch}"
    )
    runner_up = ""
    if len(basket) > 1:
        name = "a new run" if basket[1].run is None else f"run {basket[1].run}"
        runner_up = f"; next best {name}, {percent(basket[1].chance)}"
    if choice.measure == "entropy":
        gain = f"its next loss reduces the entropy of the minimum most ({choice.winner.score:.3f} nats)"
        return f"{subject}: {gain}; {percent(first.chance)} chance to have the lowest asymptote{runner_up}"
    ahead = first.to_epoch - first.epoch
    within = "in the next epoch" if ahead == 1 else f"within {ahead} epochs"
    return f"{subject}: {percent(first.chance)} chance to beat {best:.4g} {within}{runner_up}"


def _without_scores(run: Run | None, config: Config, reason: str) -> DecisionDraft:
    number, epoch = (None, 0) if run is None else (run.number, run.epoch)
    entry = BasketEntry(number, config, epoch, epoch + 1, float("nan"), float("nan"))
    return DecisionDraft(number, config, epoch + 1, reason, basket=(entry,))


def _require(frozen: Sequence[Run], candidates: Candidates, state: StudyState) -> None:
    if frozen or len(candidates):
        return
    if state.pending:
        raise AllPending("every run that could be advanced is pending; ask again after the next tell")
    raise StudyFinished("space exhausted: every configuration is finished, diverged or failed")
