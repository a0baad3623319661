"""A study: ask which run to advance, tell its losses."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from freezethaw.decide import POLICIES, StudyDefinition
from freezethaw.decide.definition import Bounds, Direction, validated
from freezethaw.errors import StudyError, TellError
from freezethaw.losses import Forecast
from freezethaw.plain import number
from freezethaw.records import Best, Budget, Config, Decision, Explanation, Outcome, Prices, Report, Run
from freezethaw.space import Space
from freezethaw.study.learn_from import Source, earlier_studies
from freezethaw.study.reader import StudyReader
from freezethaw.study.session import StudySession
from freezethaw.study.summary import epoch_rows


class Study:
    """One search. The same seed and the same losses give the same decisions.

    Without a `store` the study lives in this process. (`store`, `name`) identifies a study in a database: the same call
    again continues it, from any number of processes. No decision depends on a clock.

    `metric` is the name of the reported value, wherever it is shown. `bounds`, such as (0, None) or (0, 1), are values
    that it can never leave, and that no forecast leaves.

    `repeats`: how often a configuration may be started, each time as a run of its own with its own seed, for trainings
    with much run-to-run variance. The model then estimates that variance, and `recommended` judges configurations.

    `learn_from`: earlier studies of related problems, each a `Study` or its store, with "#name" after it if that holds
    several. Their summaries are stored with this study, which does not need theirs afterwards.
    """

    _session: StudySession

    def __init__(
        self,
        space: Space | Mapping[str, Any],
        max_epochs: int,
        name: str = "study",
        metric: str = "loss",
        direction: Direction = "minimize",
        bounds: Bounds | None = None,
        seed: int = 0,
        store: str | Path | None = None,
        candidates: Sequence[Config] | None = None,
        policy: str = "improvement_rate",
        model: str = "drift",
        budget: Budget | int | None = None,
        finish_best: bool = False,
        prices: Prices | None = None,
        repeats: int = 1,
        learn_from: str | Path | Study | Sequence[str | Path | Study] = (),
    ) -> None:
        called: object = name
        if not isinstance(called, str) or not called.strip():
            raise StudyError(f"name must be a text, not {name!r}")
        if policy not in POLICIES:
            raise StudyError(f"policy must be one of {', '.join(POLICIES)}, not {policy!r}")
        space = Space.of(space)
        definition = StudyDefinition(
            space=space,
            max_epochs=max_epochs,
            metric=metric,
            direction=direction,
            bounds=bounds,
            seed=seed,
            policy=policy,
            model="luck" if model == "drift" and repeats != 1 else model,
            candidates=validated(space, candidates),
            budget=_budget(budget),
            finish_best=finish_best,
            prices=prices,
            repeats=repeats,
        )
        listed = [learn_from] if isinstance(learn_from, str | Path | Study) else list(learn_from)
        sources: list[Source] = [source._session if isinstance(source, Study) else source for source in listed]
        earlier = partial(earlier_studies, sources, space, seed) if sources else None
        self._session = StudySession.create(definition, name, store, earlier)

    @classmethod
    def open(cls, store: str | Path, name: str | None = None) -> Study:
        """A study that exists in a store. The name may be left out if the store holds exactly one study."""
        return cls._of(StudySession.open(store, name))

    @classmethod
    def _of(cls, session: StudySession) -> Study:
        study = cls.__new__(cls)
        study._session = session
        return study

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store. Pending decisions stay pending, and any process may take them over."""
        self._session.close()

    def __repr__(self) -> str:
        state = self._session.refresh()
        best = f"no {state.metric} yet" if state.lowest is None else f"best {state.metric} {number(state.best_loss)}"
        return f"<Study {self.name!r}: {len(state.runs)} runs, {state.epochs_trained()} epochs, {best}>"

    def _repr_html_(self) -> str:
        from freezethaw.notebook import study_html

        return study_html(self.name, self._session.refresh())

    # What is known.

    @property
    def name(self) -> str:
        """The study's name."""
        return self._session.name

    @property
    def definition(self) -> StudyDefinition:
        """The space, max_epochs, direction, seed, policy, model, budget and so on, as they are now."""
        self._session.refresh()
        return self._session.definition

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs."""
        return read(self).runs

    @property
    def pending(self) -> tuple[Decision, ...]:
        """Decisions that are neither told nor cancelled."""
        return self._session.refresh().pending

    @property
    def best(self) -> Best | None:
        """The epoch with the lowest measured loss; None until a finite loss is in."""
        return read(self).best

    @property
    def recommended(self) -> Best | None:
        """The epoch with the lowest expected loss, its noise removed: what to train again if losses are noisy."""
        return read(self).recommended

    def forecast(self, run_or_config: int | Config, epochs: Sequence[float] | None = None) -> Forecast:
        """The predictive distribution of measured losses in your own units; by default of the last epoch."""
        return read(self).forecast(run_or_config, epochs)

    def p_min(self) -> dict[int, float]:
        """For each run with a loss, the probability that it has the lowest asymptote."""
        return read(self).p_min()

    def importance(self) -> dict[str, float]:
        """The share of the variance of the forecast asymptote that each parameter explains alone."""
        return read(self).importance()

    def explain(self, number: int) -> Explanation:
        """One decision with everything that was compared."""
        return read(self).explain(number)

    def to_dataframe(self) -> Any:
        """One row for each epoch (needs pandas); `freezethaw export` writes the same columns."""
        try:
            import pandas as pd
        except ImportError:
            raise StudyError("to_dataframe needs pandas: pip install pandas") from None
        return pd.DataFrame(epoch_rows(self._session.storage, self._session.refresh()))

    # Ask and tell.

    def ask(self) -> Decision:
        """Decide what to train next. Raises StudyFinished or AllPending if there is nothing to decide.

        In a store, a decision that a dead process left behind comes first.
        """
        return self._session.take_over() or self._session.ask()

    def tell(self, decision: Decision, losses: object, seconds: object = None) -> None:
        """Record losses: a number for one epoch, or a list; one that is not finite ends the run as diverged."""
        checked = self._session.check_pending(decision)
        report = parse_losses(losses, seconds, checked.epochs, checked.from_epoch + 1)
        self._session.record(checked, report, close="diverged" if report.diverged else "told")

    def cancel(self, decision: Decision, outcome: Outcome = "interrupted") -> None:
        """Give a decision back without any loss."""
        self._session.cancel(decision, outcome)

    # Requests.

    def enqueue(self, config: Config, to_epoch: int = 1) -> None:
        """Start this configuration at the next ask."""
        definition = self.definition
        if not 1 <= to_epoch <= definition.max_epochs:
            raise StudyError(f"to_epoch must be between 1 and max_epochs = {definition.max_epochs}, not {to_epoch!r}")
        self._session.storage.request(None, definition.space.validate(config), to_epoch)

    def thaw(self, run: int, to_epoch: int) -> None:
        """Thaw this run at the next ask."""
        state = self._session.refresh()
        record = state.run(run)
        if not record.epoch < to_epoch <= state.max_epochs:
            raise StudyError(f"run {run} is at epoch {record.epoch} of {state.max_epochs}; cannot train to {to_epoch}")
        self._session.storage.request(run, record.config, to_epoch)

    def add_run(self, config: Config, losses: Sequence[float]) -> Run:
        """Add a learning curve from elsewhere: it informs the model and is never trained here."""
        definition = self.definition
        report = parse_losses(losses, None, definition.max_epochs)
        return self._session.add_runs([(definition.space.validate(config), report)])[0]

    def stop(self) -> None:
        """Make no more decisions; pending ones can be told. Running the same command again continues."""
        self._session.storage.amend({"stopped": True})

    def resume(self) -> None:
        """Decide again after `stop`."""
        self._session.storage.amend({"stopped": False})

    def set_budget(self, budget: Budget | int) -> None:
        """Change the budget of the whole study; a larger one continues a finished study."""
        self._session.storage.amend({"budget": asdict(_budget(budget))})

    def ban(self, run: int, banned: bool = True) -> None:
        """Do not advance this run any more, unless the user thaws it; the model still uses its losses."""
        self._mark("banned", run, banned)

    def pin(self, run: int, pinned: bool = True) -> None:
        """Keep this run's checkpoints regardless of the disk budget."""
        self._mark("pinned", run, pinned)

    def _mark(self, key: str, run: int, marked: bool) -> None:
        state = self._session.refresh()
        before = set(state.definition.get(key, ()))
        number = state.run(run).number
        self._session.storage.amend({key: sorted(before | {number} if marked else before - {number})})

    def save_to(self, store: str | Path, name: str | None = None) -> None:
        """Write this study into a store, under an unused name, and continue there."""
        before, self._session = self._session, self._session.save_to(store, name or self.name)
        before.close()


def _budget(budget: Budget | int | None) -> Budget:
    """A number is a number of epochs."""
    if isinstance(budget, Budget):
        return budget
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
        raise StudyError(f"budget must be a number of epochs or a Budget, such as Budget(epochs=200), not {budget!r}")
    return Budget(epochs=budget)


def session_of(study: Study) -> StudySession:
    """The session of a study, for the other modules of this package."""
    return study._session


def read(study: Study | StudyReader) -> StudyReader:
    """A study in its current state."""
    return study if isinstance(study, StudyReader) else StudyReader(session_of(study))


# Losses are checked completely before anything is recorded.


def parse_losses(losses: object, seconds: object, granted: int, first_epoch: int = 1) -> Report:
    """A report from a number, or a list of 1 to `granted` numbers of which only the last may be not finite."""
    values = _numbers(losses, "losses")
    if not values:
        raise TellError("no losses were given; use cancel(decision) if there are none")
    if len(values) > granted:
        raise TellError(f"{len(values)} losses were given, but the decision grants {granted} epoch(s)")
    finite = [math.isfinite(v) for v in values]
    if not all(finite[:-1]):
        place = finite.index(False) + 1
        raise TellError(
            f"loss {place} of {len(values)} is not finite; a diverged run ends there: tell nothing after it"
        )
    count = sum(finite)
    spent = _seconds(seconds, len(values))[:count]
    return Report(first_epoch, tuple(values[:count]), spent, diverged=not finite[-1])


def _seconds(seconds: object, count: int) -> tuple[float, ...]:
    if seconds is None:
        return (math.nan,) * count
    values = _numbers(seconds, "seconds")
    if not all(math.isfinite(v) and v >= 0 for v in values):
        raise TellError(f"seconds must be finite and not negative, not {seconds!r}")
    if len(values) == 1:
        return (values[0] / count,) * count  # one number is the time of all epochs together
    if len(values) != count:
        raise TellError(f"{count} losses but {len(values)} seconds were given; give their total or one for each")
    return tuple(values)


def _numbers(value: object, what: str) -> list[float]:
    """A number or a flat sequence of numbers as floats; anything else is refused."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    items: Sequence[object] = value if isinstance(value, list | tuple) else [value]
    for item in items:
        if isinstance(item, bool) or not isinstance(item, numbers.Real):
            raise TellError(f"{what} must be a number or a flat list of numbers, not {value!r:.80}")
    return [float(item) for item in items]  # type: ignore[arg-type]
