"""The ledger of a study as it was at one moment: it answers, and cannot be changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import NoReturn

from freezethaw.errors import StudyError
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.records import Explanation, History
from freezethaw.study.facts import Facts
from freezethaw.study.ledger import Ledger, Turn


class StillLedger:
    """Facts, belief and history of one moment. Baskets and old beliefs never change, so they are asked for later."""

    def __init__(self, live: Ledger) -> None:
        self._facts = live.facts()
        self._live = live
        self.explanation: Callable[[int], Explanation | None] = live.explanation
        self.belief_after: Callable[[int], HyperparameterSamples | None] = live.belief_after

    def facts(self) -> Facts:
        """What was known."""
        return self._facts

    @cached_property
    def _belief(self) -> HyperparameterSamples | None:
        return self._live.belief_after(self._facts.decisions)

    def belief(self) -> HyperparameterSamples | None:
        """As the last decision left it."""
        return self._belief

    @cached_property
    def _history(self) -> History:
        """Read when it is first asked for: what came after the facts is left out."""
        found = self._live.history()
        known = {run.number: run.epoch for run in self._facts.runs}
        epochs = tuple((run, epoch) for run, epoch in found.epochs if epoch <= known.get(run, 0))
        return History(found.decisions[: self._facts.decisions], epochs)

    def history(self) -> History:
        """How the study went until then."""
        return self._history

    def deciding(self) -> AbstractContextManager[Turn]:
        """Refused, as all that would change something."""
        self.tell()

    def tell(self, *_: object) -> NoReturn:
        """Refused."""
        raise StudyError("this is a study as it was at one moment; open the study itself to change it")

    cancel = add = wish = tell
