"""From forecasts to one decision: what may be done, what the policy says, and why, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from freezethaw.errors import AllPending, StudyFinished
from freezethaw.policy.acquisition import Choice, Options, ScoredEntry, choose_at_random
from freezethaw.policy.costs import relative_costs, survival_probability
from freezethaw.records import BasketEntry, Budget, Config, Prices, Run
from freezethaw.study import words
from freezethaw.study.catalogue import Catalogue
from freezethaw.study.facts import Facts
from freezethaw.study.insight import View
from freezethaw.study.ledger import Chosen
from freezethaw.study.proposals import Candidates, propose

Array = NDArray[np.float64]
Policy = Callable[..., Choice]

LISTED = 256  # of a long list of candidates, how many are compared in one decision
CENTRES = 5  # best runs around which new configurations are proposed


@dataclass(frozen=True)
class Chooser:
    """Everything about choosing that does not change during a study."""

    catalogue: Catalogue
    policy: Policy | None  # None: at random
    sign: float
    prices: Prices
    repeats: int
    budget: Budget

    def new_runs(self, facts: Facts, rng: np.random.Generator) -> Candidates:
        """Configurations that may be started."""
        if self.catalogue.candidates is not None:
            configs, features = self.catalogue.unstarted(facts.runs, self.repeats, LISTED, rng)
            return Candidates(features, lambda i: configs[i])
        ranked = sorted((run for run in facts.runs if run.losses), key=lambda r: min(self.sign * y for y in r.losses))
        best = [run.config for run in ranked[:CENTRES] if self.catalogue.allows(run.config)]
        return propose(self.catalogue, best, self.catalogue.features(facts.runs), self.repeats, rng)

    def choose(self, view: View, facts: Facts, left: float, rng: np.random.Generator) -> Chosen:
        """What to do next, given the forecasts."""
        candidates = self.new_runs(facts, rng)
        frozen = [run for run in facts.frozen() if run.number in view.places]
        fresh = [run for run in facts.frozen() if not run.losses]
        if fresh:  # given back before its first epoch: it comes first
            return _plain(fresh[0], fresh[0].config, "start a run that was given back")
        _require(frozen, candidates, facts)
        if self.policy is None:
            return self.at_random(frozen, candidates, rng)
        options = replace(self._options(view, facts, frozen, candidates.features), epochs_left=left)
        found = self.policy(view.forecaster, options, rng)
        return self._worded(found, view, facts, candidates, left)

    def at_random(self, frozen: Sequence[Run], candidates: Candidates, rng: np.random.Generator) -> Chosen:
        """The choice of a coin."""
        pick = choose_at_random([run.number for run in frozen], len(candidates) > 0, rng)
        if pick is None:
            return _plain(None, candidates.config(int(rng.integers(len(candidates)))), "start a new run at random")
        run = next(run for run in frozen if run.number == pick)
        return _plain(run, run.config, f"thaw run {run.number} at epoch {run.epoch} at random")

    def _options(self, view: View, facts: Facts, frozen: Sequence[Run], features: Array) -> Options:
        score_factor_old, score_factor_new = np.ones(len(frozen)), np.ones(len(features))
        second = 1.0  # of training, in epochs
        ended = [run for run in facts.runs if run.state in ("diverged", "failed")]
        if ended:
            lived = [run for run in facts.runs if run.losses and run.state not in ("diverged", "failed")]
            known = self.catalogue.features([*ended, *lived])
            score_factor_new = survival_probability(known, np.repeat([0.0, 1.0], [len(ended), len(lived)]), features)
        timed = [(run, np.nanmean(run.seconds)) for run in facts.runs if np.any(np.array(run.seconds) > 0)]
        if timed:
            known, seconds = self.catalogue.features([run for run, _ in timed]), np.array([s for _, s in timed])
            if self.budget.epochs is None or self.budget.hours is not None:  # what is spent is time, not epochs
                score_factor_old = score_factor_old / relative_costs(known, seconds, self.catalogue.features(frozen))
                score_factor_new = score_factor_new / relative_costs(known, seconds, features)
            second = 1.0 / float(np.exp(np.mean(np.log(seconds))))
        away = self.prices.start + self.prices.save
        switch_cost_old = np.array([0.0 if run.number == facts.in_hand else away + self.prices.load for run in frozen])
        again = np.array([0.0 if run.number == facts.in_hand else facts.to_train_again(run) for run in frozen])
        places = np.array([view.places[run.number] for run in frozen], dtype=np.int64)
        switch_cost_new = np.full(len(features), away * second)
        return Options(
            places,
            features,
            facts.max_epochs,
            score_factor_old,
            score_factor_new,
            switch_cost_old * second + again,
            switch_cost_new,
        )

    def _worded(self, found: Choice, view: View, facts: Facts, candidates: Candidates, left: float) -> Chosen:
        numbers = {place: number for number, place in view.places.items()}
        entries = tuple(self._entry(e, numbers, facts, candidates) for e in found.basket)
        winner, entry = found.winner, entries[0]
        best = float(view.forecaster.transform.from_model(np.dot(view.forecaster.weights, found.incumbents)))
        epoch = 0 if entry.run is None else facts.run(entry.run).epoch
        subject = words.start_or_thaw(entry.run, epoch)
        granted = int(min(winner.granted, facts.max_epochs - epoch, left))
        rival = ""
        if len(entries) > 1:
            name = "a new run" if entries[1].run is None else f"run {entries[1].run}"
            rival = f"; next best {name}, {words.percent(entries[1].chance)}"
        if found.measure == "entropy":
            reason = words.entropy_reason(subject, winner.chance, winner.score, rival)
        else:
            reason = words.rate_reason(subject, winner.chance, best, winner.to_epoch - epoch, rival)
        _, slope = view.forecaster.transform.with_slope(best)
        improvement = max(e.improvement for e in found.basket) / float(slope)  # near the best the transform is a line
        return Chosen(entry.run, entry.config, epoch + granted, reason, improvement, entries)

    def _entry(self, entry: ScoredEntry, numbers: dict[int, int], facts: Facts, candidates: Candidates) -> BasketEntry:
        if entry.run is not None:
            run = facts.run(numbers[entry.run])
            return BasketEntry(run.number, run.config, run.epoch, entry.to_epoch, entry.score, entry.chance)
        return BasketEntry(None, candidates.config(entry.candidate or 0), 0, entry.to_epoch, entry.score, entry.chance)


def first_choice(chooser: Chooser, facts: Facts, rng: np.random.Generator) -> Chosen:
    """Before any loss is known: a run that was given back, else a new one."""
    waiting = next(facts.frozen(), None)
    if waiting is not None:
        return _plain(waiting, waiting.config, "start a run that was given back")
    candidates = chooser.new_runs(facts, rng)
    _require([], candidates, facts)
    # the first proposals are those near the user's guesses; of a list any will do
    place = 0 if chooser.catalogue.candidates is None else int(rng.integers(len(candidates)))
    return _plain(None, candidates.config(place), "start a new run: nothing is known yet")


def _plain(run: Run | None, config: Config, reason: str) -> Chosen:
    number, epoch = (None, 0) if run is None else (run.number, run.epoch)
    entry = BasketEntry(number, config, epoch, epoch + 1, float("nan"), float("nan"))
    return Chosen(number, config, epoch + 1, reason, float("inf"), (entry,))


def _require(frozen: Sequence[Run], candidates: Candidates, facts: Facts) -> None:
    if frozen or len(candidates):
        return
    if facts.pending:
        raise AllPending("every run that could be advanced is under way; ask again after the next tell")
    raise StudyFinished("space exhausted: every configuration is finished, diverged or failed")
