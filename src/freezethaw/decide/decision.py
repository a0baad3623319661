"""One decision: which run to start or thaw, up to which epoch, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from freezethaw.decide import stopping
from freezethaw.decide.configurations import Candidates
from freezethaw.decide.definition import StudyDefinition
from freezethaw.decide.earlier import contribution
from freezethaw.decide.inference_cache import Inference, InferenceCache, one_thread
from freezethaw.decide.plan import costs_in_epochs, epochs_per_decision, share_out, similarities
from freezethaw.errors import AllPending, SpaceError, StudyError, StudyFinished
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.plain import percent
from freezethaw.policy import entropy_search, improvement_rate
from freezethaw.policy.acquisition import Choice, Options, ScoredEntry, choose_at_random
from freezethaw.policy.costs import cost_factor, survival_probability
from freezethaw.policy.depth import Depth
from freezethaw.records import BasketEntry, Config, DecisionDraft, Prices, Request, Run, StudyState, best_of

Array = NDArray[np.float64]
Policy = Callable[..., Choice]

POLICIES: dict[str, Policy | None] = {
    "improvement_rate": improvement_rate.choose,
    "entropy_search": entropy_search.choose,
    "random": None,
}
ENDED = ("finished", "diverged", "failed")
MOST_FROM_EARLIER = 6  # first runs that earlier studies choose: one together, and one each
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
    obsolete: list[int] = []
    for r in state.requests:
        if _is_obsolete(r, definition, state, left):
            obsolete.append(r.number)
        elif r.run is None or state.run(r.run).state == "frozen":
            return replace(_requested(r, state, left), requests=(r.number, *obsolete)), None
    with one_thread():
        inference = cache.infer(state, samples)
        if inference is None:
            draft = _first(definition, state, cache, rng)
            if definition.finish_best:
                draft = stopping.finish_best(definition, state, draft, left)
            return replace(draft, requests=tuple(obsolete)), None
        draft = _choose(definition, state, cache, inference, left, rng)
        if definition.finish_best:
            draft = stopping.finish_best(definition, state, draft, left)
    if definition.budget.worthwhile is not None:
        stopping.check_worthwhile(definition.budget.worthwhile, draft)
    return replace(draft, requests=tuple(obsolete)), inference.samples


def _is_obsolete(request: Request, definition: StudyDefinition, state: StudyState, left: float) -> bool:
    """Whether the run went further or ended meanwhile; whether the user or the budget excludes what was planned."""
    planned = request.reason != ""
    if planned and definition.finish_best and left <= state.max_epochs:
        return True
    if request.run is not None:
        run = state.run(request.run)
        return run.state in ENDED or run.epoch >= request.to_epoch or (planned and run.number in state.banned)
    if not planned:
        return False
    try:
        definition.space.validate(request.config)
    except SpaceError:  # the bounds have changed
        return True
    return sum(run.config == request.config for run in state.runs) >= definition.repeats


def _requested(request: Request, state: StudyState, left: float) -> DecisionDraft:
    """What the user asked for, or an earlier decision planned; only the user may exceed the budget."""
    if not request.reason:
        return DecisionDraft(request.run, request.config, request.to_epoch, "requested by the user")
    done = 0 if request.run is None else state.run(request.run).epoch
    return DecisionDraft(request.run, request.config, int(min(request.to_epoch, done + left)), request.reason)


def _first(
    definition: StudyDefinition, state: StudyState, cache: InferenceCache, rng: np.random.Generator
) -> DecisionDraft:
    """Before any loss is known: a run that was cancelled, or a new one."""
    waiting = next(state.frozen(), None)
    if waiting is not None:
        return _without_scores(waiting, waiting.config, "start a run that was cancelled before its first epoch")
    candidates = _new_runs(definition, state, cache, rng)
    _require([], candidates, state)
    if definition.learn_from:
        return _expected_to_be_best(definition, state, candidates)
    # the first proposals are those near the user's guesses; of a list, any candidate
    place = 0 if definition.candidates is None else int(rng.integers(len(candidates)))
    return _without_scores(None, candidates.config(place), f"start a new run: no {definition.metric} is known yet")


def _expected_to_be_best(definition: StudyDefinition, state: StudyState, candidates: Candidates) -> DecisionDraft:
    """The new configuration that all earlier studies together expect to be best; then one by each of them, in turn."""
    count, number = len(definition.learn_from), len(state.runs)
    expected = candidates.features[:, -count:]
    if count > 1 and number == 0:
        place = int(expected.mean(axis=1).argmin())
        text = f"start a new run: {count} earlier studies together expect the best result there"
        return _without_scores(None, candidates.config(place), text)
    which = (number - (count > 1)) % count
    place = int(expected[:, which].argmin())
    study = definition.learn_from[which]
    loss = study.loss(float(expected[place, which]))
    text = f"start a new run: study {study.name} expects the best result there ({loss:.4g} in that study)"
    return _without_scores(None, candidates.config(place), text)


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
    first = min(len(definition.learn_from) + 1, MOST_FROM_EARLIER)
    if definition.learn_from and len(state.runs) < first and len(candidates):
        return _expected_to_be_best(definition, state, candidates)
    policy = POLICIES[definition.policy]
    if policy is None:
        return _at_random(frozen, candidates, rng)
    costs = costs_in_epochs(definition.prices, state, left)
    options = _options(definition, state, cache, inference, frozen, candidates.features, costs)
    options = replace(options, epochs_left=left, neighbours=candidates.neighbours)
    choice = policy(inference.forecaster, options, rng)
    epochs = 1
    if definition.policy == "improvement_rate":  # the paper's policy does not plan
        spare = left - state.max_epochs if definition.finish_best else left
        epochs = epochs_per_decision(costs.decide, spare)
    draft = _draft(choice, inference, state, candidates, left, epochs)
    if definition.learn_from and draft.run is None:
        features = cache.configurations.features_of([draft.config])
        said = contribution(cache.configurations.earlier, features, inference.samples)
        draft = replace(draft, reason=draft.reason + said)
    return draft


def _new_runs(
    definition: StudyDefinition, state: StudyState, cache: InferenceCache, rng: np.random.Generator
) -> Candidates:
    """Configurations that may be started."""
    sign = definition.sign
    ranked = sorted((run for run in state.runs if run.losses), key=lambda run: best_of(run, sign))
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
    costs: Prices,
) -> Options:
    """What may be advanced or started, with the chance of surviving and the costs of each."""
    features_of = cache.configurations.features
    factor_old, factor_new = np.ones(len(frozen)), np.ones(len(features))
    ended = [run for run in state.runs if run.state in ("diverged", "failed")]
    if ended:
        alive = [run for run in state.runs if run.losses and run.state not in ("diverged", "failed")]
        known = features_of([*ended, *alive])
        factor_new = survival_probability(known, np.repeat([0.0, 1.0], [len(ended), len(alive)]), features)
    timed = [run for run in state.runs if run.mean_seconds > 0]
    if timed and (definition.budget.epochs is None or definition.budget.training_hours is not None):  # time is spent
        known, seconds = features_of(timed), np.array([run.mean_seconds for run in timed])
        factor_old = factor_old / cost_factor(known, seconds, features_of(frozen))
        factor_new = factor_new / cost_factor(known, seconds, features)
    switch = costs.start + costs.save
    cost_old = np.array([0.0 if run.number == state.last_run else switch + costs.load for run in frozen])
    again = np.array([0.0 if run.number == state.last_run else state.epochs_to_retrain(run) for run in frozen])
    places = np.array([inference.places[run.number] for run in frozen], dtype=np.int64)
    cost_new = np.full(len(features), switch)
    started = [run for run in state.runs if run.losses]
    first, last = (state.sign * np.array([run.losses[i] for run in started]) for i in (0, -1))
    depth = Depth.of(first, last).of_decision(state.decisions, len(state.pending) + 1)
    return Options(places, features, state.max_epochs, factor_old, factor_new, cost_old + again, cost_new, depth=depth)


def _draft(
    choice: Choice, inference: Inference, state: StudyState, candidates: Candidates, left: float, epochs: int
) -> DecisionDraft:
    """The policy's choice as a decision, with its reason, its basket and what is planned: about so many epochs."""
    numbers = {place: number for number, place in inference.places.items()}
    basket = tuple(_basket_entry(entry, numbers, state, candidates) for entry in choice.basket)
    first = basket[0]
    transform = inference.forecaster.transform
    best = float(transform.from_model(np.dot(inference.forecaster.weights, choice.incumbents)))
    shares = [(0, choice.winner.granted)]
    if epochs > 1:
        similar = similarities(choice.basket, candidates, inference.forecaster)
        shares = share_out(choice.basket, epochs, [entry.epoch for entry in basket], state.max_epochs, similar)
    granted = int(min(shares[0][1], state.max_epochs - first.epoch, left))
    _, slope = transform.with_slope(best)
    improvement = max(e.improvement for e in choice.basket) / float(slope)  # near the best the transform is linear
    reason = _reason(choice, basket, best)
    number = state.decisions + 1
    plan = tuple(
        Request(0, e.run, e.config, e.epoch + count, f"planned by decision {number}: {_prospect(e, best)}")
        for e, count in ((basket[i], count) for i, count in shares[1:])
    )
    return DecisionDraft(first.run, first.config, first.epoch + granted, reason, improvement, basket, plan=plan)


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
    runner_up = ""
    if len(basket) > 1:
        name = "a new run" if basket[1].run is None else f"run {basket[1].run}"
        runner_up = f"; next best {name}, {percent(basket[1].chance)}"
    if choice.measure == "entropy":
        gain = f"its next loss reduces the entropy of the minimum most ({choice.winner.score:.3f} nats)"
        return f"{_subject(first)}: {gain}; {percent(first.chance)} chance to have the lowest asymptote{runner_up}"
    if choice.deepens is not None:
        return f"{_subject(first)}: too few runs were trained to epoch {choice.deepens}{runner_up}"
    return f"{_prospect(first, best)}{runner_up}"


def _prospect(entry: BasketEntry, best: float) -> str:
    """What the improvement rate expects of one entry."""
    ahead = entry.to_epoch - entry.epoch
    within = "in the next epoch" if ahead == 1 else f"within {ahead} epochs"
    return f"{_subject(entry)}: {percent(entry.chance)} chance to beat {best:.4g} {within}"


def _subject(entry: BasketEntry) -> str:
    """What is done with the entry, for people."""
    if entry.run is None or entry.epoch == 0:
        return "start a new run"
    return f"thaw run {entry.run} at epoch {entry.epoch}"


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
