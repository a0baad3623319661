"""A study: ask which run to advance, tell what came of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from freezethaw.errors import StudyError
from freezethaw.losses import Forecast
from freezethaw.policy import choice, entropy_search
from freezethaw.records import Best, Budget, Config, Decision, Explanation, Outcome, Prices, Run
from freezethaw.space import Space
from freezethaw.study import stopping
from freezethaw.study.catalogue import Catalogue
from freezethaw.study.chooser import Chooser, first_choice
from freezethaw.study.insight import Insight, View
from freezethaw.study.ledger import Ledger, read_losses
from freezethaw.study.threads import one_thread

POLICIES: dict[str, Callable[..., choice.Choice] | None] = {
    "improvement_rate": choice.choose,
    "entropy_search": entropy_search.choose,
    "random": None,
}
MODELS = ("drift", "paper")
EXPLAINED = 1000  # decisions whose baskets are remembered


class Study:
    """One search. The study never reads a clock; the same seed and the same tells give the same decisions."""

    def __init__(
        self,
        space: Space,
        max_epochs: int,
        name: str = "study",
        direction: Literal["minimize", "maximize"] = "minimize",
        seed: int = 0,
        candidates: Sequence[Config] | None = None,
        policy: str = "improvement_rate",
        model: str = "drift",
        budget: Budget | int | None = None,
        finish_best: bool = False,
        prices: Prices | None = None,
    ) -> None:
        _check("direction", direction, ("minimize", "maximize"))
        _check("policy", policy, tuple(POLICIES))
        _check("model", model, MODELS)
        _check_whole("max_epochs", max_epochs)
        self.space, self.max_epochs, self.name, self.direction, self.seed = space, max_epochs, name, direction, seed
        self.policy, self.model = policy, model
        self.budget = Budget(epochs=budget) if isinstance(budget, int) else budget if budget is not None else Budget()
        self.finish_best = finish_best
        self._ledger = Ledger(max_epochs)
        catalogue = Catalogue(space, candidates)
        self._insight = Insight(catalogue, max_epochs, direction == "maximize", model)
        self._chooser = Chooser(catalogue, max_epochs, POLICIES[policy], self._sign, prices or Prices())
        self._wishes: deque[tuple[int | None, Config, int]] = deque()  # run, config, to_epoch
        self._explanations: dict[int, Explanation] = {}

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs and what is known of them."""
        return self._ledger.runs

    @property
    def pending(self) -> tuple[Decision, ...]:
        """Decisions that are neither told nor cancelled."""
        return self._ledger.pending

    @property
    def best(self) -> Best | None:
        """The best epoch so far, noise removed; None until a finite loss is in."""
        view = self._view()
        if view is None:
            return None
        best = stopping.best_epoch(view, self._ledger, self._sign)
        return replace(best, forecast=self.forecast(best.run))

    def ask(self) -> Decision:
        """Decide what to train next. Raises StudyFinished or AllPending where there is nothing to decide."""
        with one_thread():
            return self._ask()

    def _ask(self) -> Decision:
        left = stopping.epochs_left(self.budget, self._ledger, self._sign)
        while self._wishes:
            run, config, to_epoch = self._wishes.popleft()
            if run is None or self._ledger.run(run).state == "frozen":
                return self._ledger.decide(run, config, to_epoch, "asked for by the user")
        rng = self._rng()
        view = self._view()
        self._insight.commit()
        if view is not None and self.finish_best:
            finish = stopping.finish(view, self._ledger, self._sign, left)
            if finish is not None:
                run, to_epoch, reason = finish
                return self._ledger.decide(run, self._ledger.run(run).config, to_epoch, reason)
        if view is None:
            chosen = first_choice(self._chooser, self._ledger, rng)
        else:
            chosen = self._chooser.choose(self._insight.with_pending(view, self.pending), self._ledger, left, rng)
        if self.budget.worthwhile is not None and view is not None:
            stopping.check_worthwhile(self.budget.worthwhile, chosen)
        decision = self._ledger.decide(chosen.run, chosen.config, chosen.to_epoch, chosen.reason)
        self._explanations[decision.number] = Explanation(decision, chosen.basket)
        self._explanations.pop(decision.number - EXPLAINED, None)
        return decision

    def tell(self, decision: Decision, losses: object, seconds: object = None) -> None:
        """Record losses: a number for one epoch, or a list; one that is not finite ends the run as diverged."""
        self._ledger.tell(decision, losses, seconds)

    def cancel(self, decision: Decision, outcome: Outcome = "interrupted") -> None:
        """Give a decision back without any loss."""
        self._ledger.cancel(decision, outcome)

    def enqueue(self, config: Config, to_epoch: int = 1) -> None:
        """Start this configuration at the next ask."""
        if not 1 <= to_epoch <= self.max_epochs:
            raise StudyError(f"to_epoch must lie between 1 and max_epochs = {self.max_epochs}, not {to_epoch!r}")
        self._wishes.append((None, self.space.validate(config), to_epoch))

    def thaw(self, run: int, to_epoch: int) -> None:
        """Thaw this run at the next ask."""
        record = self._ledger.run(run)
        if not record.epoch < to_epoch <= self.max_epochs:
            raise StudyError(f"run {run} is at epoch {record.epoch} of {self.max_epochs}; cannot train to {to_epoch}")
        self._wishes.append((run, record.config, to_epoch))

    def add_run(self, config: Config, losses: Sequence[float]) -> Run:
        """A curve from elsewhere, as evidence; it is never trained here."""
        return self._ledger.add(self.space.validate(config), read_losses(losses, None, self.max_epochs))

    def forecast(self, run_or_config: int | Config, epochs: Sequence[float] | None = None) -> Forecast:
        """Losses as they will be measured, in your own units; `epochs` None: where the curve ends."""
        view = self._view()
        if view is None:
            raise StudyError("there is nothing to forecast from yet: tell a finite loss first")
        at = [float(self.max_epochs)] if epochs is None else list(epochs)
        if isinstance(run_or_config, int):
            run = self._ledger.run(run_or_config)
            if run.number in view.places:
                return view.forecaster.run(view.places[run.number], at)
            return view.forecaster.visitor(self.space.features(run.config), run.losses, at)
        return view.forecaster.config(self.space.features(self.space.validate(run_or_config)), at)

    def p_min(self) -> dict[int, float]:
        """For each run with a loss, the chance that it would end lowest of all of them."""
        view = self._view()
        if view is None:
            return {}
        runs = [n for n, _ in view.places.items() if self._ledger.run(n).state not in ("diverged", "failed")]
        if not runs:
            return {}
        found = entropy_search.minimum_of_all(view.forecaster, [view.places[n] for n in runs], self._rng())
        return {n: float(p) for n, p in zip(runs, found, strict=True)}

    def explain(self, number: int) -> Explanation:
        """The whole basket of one decision, with its numbers."""
        if number not in self._explanations:
            raise StudyError(
                f"decision {number!r} has no basket: it was not taken by the policy, lies over {EXPLAINED} decisions "
                "back, or does not exist"
            )
        return self._explanations[number]

    def to_dataframe(self) -> Any:
        """One row for each epoch (needs pandas)."""
        try:
            import pandas as pd
        except ImportError:
            raise StudyError("to_dataframe needs pandas: pip install pandas") from None
        return pd.DataFrame(
            [
                {"run": run.number, "epoch": epoch, "loss": loss, "seconds": seconds, "state": run.state, **run.config}
                for run in self.runs
                for epoch, (loss, seconds) in enumerate(zip(run.losses, run.seconds, strict=True), 1)
            ]
        )

    def training_seed(self, run: int) -> int:
        """The seed of a run's training: the same after every thaw."""
        return int(np.random.SeedSequence([self.seed, run]).generate_state(1)[0])

    @property
    def _sign(self) -> float:
        return 1.0 if self.direction == "minimize" else -1.0

    def _rng(self) -> np.random.Generator:
        """A decision is a function of what was told, the seed and its number."""
        return np.random.default_rng([self.seed, self._ledger.next_number])

    def _view(self) -> View | None:
        rng = np.random.default_rng([self.seed, self._ledger.next_number, 1])
        with one_thread():
            return self._insight.view(self.runs, rng)


def _check_whole(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise StudyError(f"{what} must be a positive whole number, not {value!r}")


def _check(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise StudyError(f"{what} must be one of {', '.join(known)}, not {value!r}")
