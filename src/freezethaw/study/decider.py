"""The decider: from what is known, and the belief that the last decision left, to the next decision.

It holds nothing that it could not rebuild: what it remembers spares work, and any other decider, given the same facts
and the same belief, decides the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from freezethaw.errors import StudyFinished
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.policy import entropy_search, improvement_rate
from freezethaw.policy.acquisition import Choice
from freezethaw.study import stopping
from freezethaw.study.catalogue import Catalogue
from freezethaw.study.chooser import Chooser, first_choice
from freezethaw.study.definition import Rules
from freezethaw.study.facts import Facts
from freezethaw.study.insight import Insight, View
from freezethaw.study.ledger import Chosen
from freezethaw.study.threads import one_thread

POLICIES: dict[str, Callable[..., Choice] | None] = {
    "improvement_rate": improvement_rate.choose,
    "entropy_search": entropy_search.choose,
    "random": None,
}
MODELS = ("drift", "luck", "paper")


class Decider:
    """Decides for one catalogue of configurations under fixed rules."""

    def __init__(self, catalogue: Catalogue, rules: Rules) -> None:
        self.catalogue, self.rules = catalogue, rules
        self.insight = Insight(catalogue, rules.maximize, rules.model)
        policy = POLICIES[rules.policy]
        self._chooser = Chooser(catalogue, policy, rules.sign, rules.prices, rules.repeats, rules.budget)

    def decide(self, facts: Facts, belief: HyperparameterSamples | None) -> tuple[Chosen, HyperparameterSamples | None]:
        """The next decision, and the belief after it. Raises StudyFinished or AllPending where there is none."""
        if self.rules.stopped:
            raise StudyFinished("stopped by the user")
        facts = replace(facts, banned=self.rules.banned)
        with one_thread():
            left = stopping.epochs_left(self.rules.budget, facts, self.rules.sign)
            for wish in facts.wishes:
                if wish.run is None or facts.run(wish.run).state == "frozen":
                    return Chosen(wish.run, wish.config, wish.to_epoch, "asked for by the user", wish=wish.number), None
            view = self.view(facts, belief)
            chosen = self._choose(view, facts, left)
            if self.rules.budget.worthwhile is not None and view is not None:
                stopping.check_worthwhile(self.rules.budget.worthwhile, chosen)
            return chosen, None if view is None else view.belief

    def _choose(self, view: View | None, facts: Facts, left: float) -> Chosen:
        rng = np.random.default_rng([self.rules.seed, facts.next_number])
        if view is None:
            return first_choice(self._chooser, facts, rng)
        finish = stopping.finish(view, facts, self.rules, left) if self.rules.finish_best else None
        if finish is not None:
            run, to_epoch, reason = finish
            return Chosen(run, facts.run(run).config, to_epoch, reason)
        return self._chooser.choose(self.insight.with_pending(view, facts.pending), facts, left, rng)

    def view(self, facts: Facts, belief: HyperparameterSamples | None) -> View | None:
        """Forecasts from all losses so far; None before the first finite loss."""
        rng = np.random.default_rng([self.rules.seed, facts.next_number, 1])
        with one_thread():
            return self.insight.view(facts, belief, rng)
