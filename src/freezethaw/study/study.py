"""A study: ask which run to advance, tell what came of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

import numpy as np

from freezethaw.errors import AllPending, StudyError, StudyFinished
from freezethaw.policy import random_choice
from freezethaw.records import Best, Budget, Config, Decision, Outcome, Run
from freezethaw.space import Space
from freezethaw.study.ledger import Ledger, read_losses

PROPOSALS = 100  # tries to find a configuration that was not started before


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
        budget: Budget | int | None = None,
        finish_best: bool = False,
    ) -> None:
        if direction not in ("minimize", "maximize"):
            raise StudyError(f'direction must be "minimize" or "maximize", not {direction!r}')
        if isinstance(max_epochs, bool) or not isinstance(max_epochs, int) or max_epochs < 1:
            raise StudyError(f"max_epochs must be a positive whole number, not {max_epochs!r}")
        self.space, self.max_epochs, self.name, self.direction, self.seed = space, max_epochs, name, direction, seed
        self.budget = Budget(epochs=budget) if isinstance(budget, int) else budget or Budget()
        self.finish_best = finish_best
        self._ledger = Ledger(max_epochs)
        self._candidates = None if candidates is None else [space.validate(c) for c in candidates]
        self._wishes: deque[tuple[int | None, Config, int]] = deque()  # run, config, to_epoch

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
        """The best epoch so far; None until a finite loss is in."""
        sign = self._sign
        found = [(sign * loss, run.number, epoch) for run in self.runs for epoch, loss in enumerate(run.losses, 1)]
        if not found:
            return None
        value, number, epoch = min(found)
        return Best(number, epoch, self._ledger.run(number).config, sign * value, sign * value)

    def ask(self) -> Decision:
        """Decide what to train next. Raises StudyFinished or AllPending where there is nothing to decide."""
        left = self._epochs_left()
        while self._wishes:
            run, config, to_epoch = self._wishes.popleft()
            if run is None or self._ledger.run(run).state == "frozen":
                return self._ledger.decide(run, config, to_epoch, "asked for by the user")
        rng = np.random.default_rng([self.seed, self._ledger.next_number])
        frozen = [run.number for run in self._ledger.frozen()]
        config = self._new_config(rng)
        if not frozen and config is None:
            if self.pending:
                raise AllPending("every run that could be advanced is under way; ask again after the next tell")
            raise StudyFinished("space exhausted: every configuration is finished, diverged or failed")
        chosen = random_choice.choose(frozen, config is not None, rng)
        if chosen is None and config is not None:
            return self._ledger.decide(None, config, 1, "start a new run at random")
        run_record = self._ledger.run(chosen or frozen[0])
        reason = f"thaw run {run_record.number} at epoch {run_record.epoch} at random"
        to_epoch = run_record.epoch + min(left, 1)
        return self._ledger.decide(run_record.number, run_record.config, to_epoch, reason)

    def tell(self, decision: Decision, losses: object, seconds: object = None) -> None:
        """Record the losses of a decision: a number for one epoch, or a list; a last one that is not finite diverges."""
        self._ledger.tell(decision, losses, seconds)

    def cancel(self, decision: Decision, outcome: Outcome = "interrupted") -> None:
        """Give a decision back without any loss."""
        self._ledger.cancel(decision, outcome)

    def enqueue(self, config: Config, to_epoch: int = 1) -> None:
        """Start this configuration at the next ask."""
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

    def training_seed(self, run: int) -> int:
        """The seed of a run's training: the same after every thaw."""
        return int(np.random.SeedSequence([self.seed, run]).generate_state(1)[0])

    @property
    def _sign(self) -> float:
        return 1.0 if self.direction == "minimize" else -1.0

    def _epochs_left(self) -> int:
        b, best = self.budget, self.best
        if b.target is not None and best is not None and self._sign * best.loss <= self._sign * b.target:
            raise StudyFinished(f"target reached: {best.loss:g}")
        if b.hours is not None and self._ledger.seconds_trained() >= 3600 * b.hours:
            raise StudyFinished(f"budget spent: {b.hours:g} hours")
        if b.epochs is None:
            return self.max_epochs
        if self._ledger.epochs_trained() >= b.epochs:
            raise StudyFinished(f"budget spent: {b.epochs} epochs")
        left = b.epochs - self._ledger.epochs_trained() - self._ledger.epochs_pending()
        if left <= 0:
            raise AllPending("the rest of the budget is under way; ask again after the next tell")
        return left

    def _new_config(self, rng: np.random.Generator) -> Config | None:
        started = {self.space.key(run.config) for run in self.runs}
        if self._candidates is not None:
            rest = [c for c in self._candidates if self.space.key(c) not in started]
            return rest[rng.integers(len(rest))] if rest else None
        for _ in range(PROPOSALS):
            config = self.space.sample(rng)
            if self.space.key(config) not in started:
                return config
        return None
