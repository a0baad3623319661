"""A study: ask which run to advance, tell what came of it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from freezethaw.errors import AllPending, LeaseLost, StudyError, StudyFinished
from freezethaw.losses import Forecast
from freezethaw.policy import entropy_search
from freezethaw.records import (
    Best,
    Budget,
    Config,
    Decision,
    Explanation,
    History,
    Outcome,
    PastForecast,
    Prices,
    Run,
    Wish,
)
from freezethaw.space import Space
from freezethaw.study import definition, hindsight, stopping
from freezethaw.study.catalogue import Catalogue
from freezethaw.study.decider import MODELS, POLICIES, Decider
from freezethaw.study.definition import Rules
from freezethaw.study.facts import Facts
from freezethaw.study.insight import View
from freezethaw.study.ledger import Chosen, Ledger, MemoryLedger, check_pending
from freezethaw.study.still import StillLedger
from freezethaw.study.threads import one_thread
from freezethaw.study.told import read_losses

if TYPE_CHECKING:
    from freezethaw.study.shared import SharedLedger

TRIES = 5  # of a decision whose lease is lost on the way


class Study:
    """One search. The same seed and the same tells give the same decisions.

    Without a `store` it lives in this process and never reads a clock. (`store`, `name`) identifies a study in a
    database: the same call again continues it, from any number of processes.

    `repeats`: how often a configuration may be started, each time as a run of its own with its own seed, where runs of
    one configuration differ much. The model then learns how much of a loss is luck, and `best` judges configurations.
    """

    def __init__(
        self,
        space: Space,
        max_epochs: int,
        name: str = "study",
        direction: Literal["minimize", "maximize"] = "minimize",
        seed: int = 0,
        store: str | None = None,
        candidates: Sequence[Config] | None = None,
        policy: str = "improvement_rate",
        model: str = "drift",
        budget: Budget | int | None = None,
        finish_best: bool = False,
        prices: Prices | None = None,
        repeats: int = 1,
    ) -> None:
        _check("direction", direction, ("minimize", "maximize"))
        _check("policy", policy, tuple(POLICIES))
        _check("model", model, MODELS)
        _check_whole("max_epochs", max_epochs)
        _check_whole("repeats", repeats)
        self.space, self.name, self._max_epochs = space, name, max_epochs
        self.candidates = None if candidates is None else [space.validate(c) for c in candidates]
        budget = Budget(epochs=budget) if isinstance(budget, int) else budget or Budget()
        model = "luck" if repeats > 1 and model == "drift" else model
        maximize, prices = direction == "maximize", prices or Prices()
        self._rules = Rules(maximize, seed, policy, model, budget, finish_best, prices, repeats)
        self._version = 1  # of the definition, in a store
        self._shared: SharedLedger | None = None
        self._ledger: Ledger = MemoryLedger(max_epochs)
        if store is not None:
            from freezethaw.study import shared  # a database library is loaded only where there is a database

            self._join(shared.continued(store, name, self.definition()))
        else:
            self._decider = Decider(Catalogue(space, self.candidates), self._rules)

    @classmethod
    def open(cls, store: str, name: str = "study") -> Study:
        """A study that exists in a store, as it was last defined."""
        from freezethaw.study import shared

        ledger = shared.opened(store, name)
        study = cls.__new__(cls)
        study.name, study._shared, study._ledger = name, ledger, ledger
        study._adopt(ledger)
        return study

    def _join(self, ledger: SharedLedger) -> None:
        self._shared = self._ledger = ledger
        known = ledger.snapshot()
        kept = definition.read_kept(known.definition)
        self._rules, self._version = replace(self._rules, **kept), known.version
        self._decider = Decider(Catalogue(self.space, self.candidates, ledger.hull(self.space)), self._rules)

    def _adopt(self, ledger: SharedLedger) -> None:
        """Take the study as it is defined in the store."""
        known = ledger.seen()
        space, candidates, self._rules = definition.read(known.definition)
        self.space, self._max_epochs, self._version = space, known.definition["max_epochs"], known.version
        self.candidates = None if candidates is None else [space.validate(c) for c in candidates]
        self._decider = Decider(Catalogue(space, self.candidates, ledger.hull(space)), self._rules)

    def keep_up(self) -> None:
        """Follow what was changed about the study elsewhere: its budget, say, or that it is to stop."""
        if self._shared is not None:
            self._shared.snapshot()
            self._keep_up_with_seen()

    def _keep_up_with_seen(self) -> None:
        if self._shared is not None and self._shared.seen().version != self._version:
            self._adopt(self._shared)

    # What it is.

    @property
    def max_epochs(self) -> int:
        """The last epoch of a run. It may grow, here or in another process."""
        return self._max_epochs if self._shared is None else self._shared.facts().max_epochs

    @property
    def direction(self) -> Literal["minimize", "maximize"]:
        """Whether losses are to be small or large."""
        return "maximize" if self._rules.maximize else "minimize"

    @property
    def seed(self) -> int:
        """Of all randomness."""
        return self._rules.seed

    @property
    def policy(self) -> str:
        """How decisions are taken."""
        return self._rules.policy

    @property
    def model(self) -> str:
        """How curves are forecast."""
        return self._rules.model

    @property
    def budget(self) -> Budget:
        """When to stop."""
        return self._rules.budget

    def definition(self) -> dict[str, Any]:
        """All of this as plain numbers and texts."""
        return definition.write(self.space, self._max_epochs, self.candidates, self._rules)

    # What is known.

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs and what is known of them."""
        return self._ledger.facts().runs

    @property
    def pending(self) -> tuple[Decision, ...]:
        """Decisions that are neither told nor cancelled."""
        return self._ledger.facts().pending

    @property
    def best(self) -> Best | None:
        """The best epoch so far, noise removed; None until a finite loss is in."""
        facts = self._ledger.facts()
        view = self._view(facts)
        if view is None:
            return None
        best = stopping.best_epoch(view, facts, self._rules)
        return replace(best, forecast=self.forecast(best.run))

    def forecast(self, run_or_config: int | Config, epochs: Sequence[float] | None = None) -> Forecast:
        """Losses as they will be measured, in your own units; `epochs` None: where the curve ends."""
        facts = self._ledger.facts()
        view = self._view(facts)
        if view is None:
            raise StudyError("there is nothing to forecast from yet: tell a finite loss first")
        at = [float(facts.max_epochs)] if epochs is None else list(epochs)
        catalogue = self._decider.catalogue
        if not isinstance(run_or_config, int):
            return view.forecaster.config(catalogue.modelled.features(self.space.validate(run_or_config)), at)
        run = facts.run(run_or_config)
        if run.number in view.places:
            return view.forecaster.run(view.places[run.number], at)
        return view.forecaster.out_of_sample(catalogue.features([run])[0], run.losses, at)

    def p_min(self) -> dict[int, float]:
        """For each run with a loss, the chance that it would end lowest of all of them."""
        facts = self._ledger.facts()
        view = self._view(facts)
        if view is None:
            return {}
        runs = [n for n in view.places if facts.run(n).state not in ("diverged", "failed")]
        if not runs:
            return {}
        rng = np.random.default_rng([self.seed, facts.next_number])
        with one_thread():
            found = entropy_search.p_min_of_runs(view.forecaster, [view.places[n] for n in runs], rng)
        return {n: float(p) for n, p in zip(runs, found, strict=True)}

    @property
    def wishes(self) -> tuple[Wish, ...]:
        """What the user asked for and waits to be done."""
        return self._ledger.facts().wishes

    @property
    def prices(self) -> Prices:
        """What it costs to go back and forth between runs."""
        return self._rules.prices

    @property
    def stopped(self) -> bool:
        """Whether the user stopped it."""
        return self._rules.stopped

    @property
    def banned(self) -> tuple[int, ...]:
        """Runs that the user wants advanced no more."""
        return self._rules.banned

    @property
    def pinned(self) -> tuple[int, ...]:
        """Runs whose checkpoints stay whatever the disk budget."""
        return self._rules.pinned

    @property
    def view(self) -> View | None:
        """What the model makes of all losses: a forecaster, and which of its curves is which run."""
        return self._view(self._ledger.facts())

    def features(self, configs: Sequence[Config]) -> Any:
        """(N, columns) of configurations, as the model takes them."""
        return self._decider.catalogue.modelled.features_of(configs)

    def history(self) -> History:
        """All decisions and what came of them, and the order in which losses were recorded."""
        return self._ledger.history()

    def past_forecasts(self, most: int = 40) -> tuple[PastForecast, ...]:
        """What was said of losses before they were measured, at decisions spread over the study, oldest first."""
        facts, history = self._ledger.facts(), self._ledger.history()
        with one_thread():
            return hindsight.past_forecasts(self._decider.insight, facts, history, self._ledger.belief_after, most)

    def still(self) -> Study:
        """The study as it is now: all that it is asked is answered from this moment, and nothing can be changed."""
        self.keep_up()
        found = copy.copy(self)
        found._ledger = StillLedger(self._ledger)
        found._max_epochs, found._shared = self.max_epochs, None
        return found

    def explain(self, number: int) -> Explanation:
        """The whole basket of one decision, with its numbers."""
        found = self._ledger.explanation(number)
        if found is None:
            raise StudyError(
                f"decision {number!r} has no basket: it was not taken by the policy, lies too far back, or does not "
                "exist"
            )
        return found

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

    def _repr_html_(self) -> str:
        from freezethaw.notebook import study_html

        return study_html(self)

    # Ask and tell.

    def ask(self) -> Decision:
        """Decide what to train next. Raises StudyFinished or AllPending where there is nothing to decide."""
        for _ in range(TRIES):
            try:
                return self._ask()
            except LeaseLost as lost:  # this process was silent for too long while it decided: another one decides
                trouble = lost
        raise trouble

    def _ask(self) -> Decision:
        with self._ledger.deciding() as turn:
            self._keep_up_with_seen()  # what the turn has seen, so that a replay sees the same
            for wish in turn.facts.wishes:
                if wish.run is not None and turn.facts.run(wish.run).state in ("finished", "diverged", "failed"):
                    turn.drop(wish)
            chosen, belief = self._decider.decide(turn.facts, turn.belief)
            return turn.commit(chosen, belief)

    def tell(self, decision: Decision, losses: object, seconds: object = None) -> None:
        """Record losses: a number for one epoch, or a list; one that is not finite ends the run as diverged."""
        checked = check_pending(decision, self._ledger.facts())
        self._ledger.tell(checked, read_losses(losses, seconds, checked.epochs))

    def cancel(self, decision: Decision, outcome: Outcome = "interrupted") -> None:
        """Give a decision back without any loss."""
        self._ledger.cancel(decision, outcome)

    def enqueue(self, config: Config, to_epoch: int = 1) -> None:
        """Start this configuration at the next ask."""
        if not 1 <= to_epoch <= self.max_epochs:
            raise StudyError(f"to_epoch must lie between 1 and max_epochs = {self.max_epochs}, not {to_epoch!r}")
        self._ledger.wish(None, self.space.validate(config), to_epoch)

    def thaw(self, run: int, to_epoch: int) -> None:
        """Thaw this run at the next ask."""
        facts = self._ledger.facts()
        record = facts.run(run)
        if not record.epoch < to_epoch <= facts.max_epochs:
            raise StudyError(f"run {run} is at epoch {record.epoch} of {facts.max_epochs}; cannot train to {to_epoch}")
        self._ledger.wish(run, record.config, to_epoch)

    def add_run(self, config: Config, losses: Sequence[float]) -> Run:
        """A curve from elsewhere, as evidence; it is never trained here."""
        return self.add_runs([(config, losses)])[0]

    def add_runs(self, curves: Iterable[tuple[Config, Sequence[float]]]) -> tuple[Run, ...]:
        """Many such curves at once, each a configuration and its losses; all or none."""
        last = self.max_epochs
        return self._ledger.add([(self.space.validate(c), read_losses(losses, None, last)) for c, losses in curves])

    # What the user may change about a study under way; its workers follow with their next decision.

    def stop(self) -> None:
        """No more decisions; those under way are told. Running the same command again continues."""
        self._amend(stopped=True)

    def go_on_after_stop(self) -> None:
        """Decide again."""
        self._amend(stopped=False)

    def raise_budget(self, **limits: float | None) -> Budget:
        """Other limits, such as epochs=2000: those not named stay."""
        budget = replace(self.budget, **limits)  # type: ignore[arg-type]
        self._amend(budget=budget)
        return budget

    def ban(self, run: int, banned: bool = True) -> None:
        """Advance this run no more, unless the user thaws it; it stays as evidence."""
        self._ledger.facts().run(run)
        self._amend(banned=tuple(sorted({*self.banned, run} if banned else {*self.banned} - {run})))

    def pin(self, run: int, pinned: bool = True) -> None:
        """Keep this run's checkpoints whatever the disk budget."""
        self._ledger.facts().run(run)
        self._amend(pinned=tuple(sorted({*self.pinned, run} if pinned else {*self.pinned} - {run})))

    def _amend(self, **changes: Any) -> None:
        if isinstance(self._ledger, StillLedger):
            self._ledger.tell()
        if self._shared is None:
            self._rules = replace(self._rules, **changes)
            self._decider = Decider(self._decider.catalogue, self._rules)
            return
        plain = {
            k: asdict(v) if isinstance(v, Budget) else list(v) if isinstance(v, tuple) else v
            for k, v in changes.items()
        }
        self._shared.stored.amend(plain)
        self.keep_up()

    # In a store.

    def save_to(self, store: str, name: str | None = None) -> None:
        """Write this study into a store, under a name that is free there, and go on in it."""
        from freezethaw.study import shared

        self.name = name or self.name
        self._join(shared.saved(store, self.name, self.definition(), self._ledger))

    def take_over(self) -> Decision | None:
        """A decision whose process is gone, to be carried on and told here; None where there is none."""
        return None if self._shared is None else self._shared.take_over()

    def go_on(self, decision: Decision) -> Decision | None:
        """The next decision, if it continues the run of this one, whose epochs are all recorded; else nothing changes.

        So a worker learns whether to go on with the run in hand before it saves it. Needs a store.
        """
        if self._shared is None:
            raise StudyError("only a study in a store is worked on while decisions are under way")
        with self._shared.deciding(fulfilled=decision) as turn:
            self._keep_up_with_seen()  # what the turn has seen, so that a replay sees the same
            try:
                chosen, belief = self._decider.decide(turn.facts, turn.belief)
                return turn.commit(chosen, belief) if chosen.run == decision.run else None
            except (StudyFinished, AllPending, LeaseLost):  # lost while it decided, as in `ask`
                return None

    @property
    def shared(self) -> SharedLedger:
        """Where the study is in a store: what workers need to know of it."""
        if self._shared is None:
            raise StudyError("this study is in memory; save_to(URL) puts it into a store")
        return self._shared

    def replay(self, number: int) -> Chosen:
        """Take a decision again, from what was known then: the same as was taken. Needs a store."""
        if self._shared is None:
            raise StudyError("only a study in a store can be replayed; save_to(URL) puts this one into a store")
        facts, belief, known = self._shared.before(number)
        space, candidates, rules = definition.read(known)
        decider = Decider(Catalogue(space, candidates, self._shared.hull(space)), rules)
        return decider.decide(facts, belief)[0]

    def close(self) -> None:
        """Leave the store. Decisions that were not told stay pending, for any process to take over."""
        if self._shared is not None:
            self._shared.close()

    def _view(self, facts: Facts) -> View | None:
        return self._decider.view(facts, self._ledger.belief())


def _check_whole(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise StudyError(f"{what} must be a positive whole number, not {value!r}")


def _check(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise StudyError(f"{what} must be one of {', '.join(known)}, not {value!r}")
