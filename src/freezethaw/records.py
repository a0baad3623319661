"""Immutable values that the layers exchange, one record per concept. `docs/design.md` shows who passes what to whom."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Literal

from freezethaw.errors import StudyError, TellError

Config = Mapping[str, Any]
Kind = Literal["start", "thaw"]
State = Literal["frozen", "pending", "finished", "diverged", "failed"]
Outcome = Literal["interrupted", "out_of_memory", "failed"]  # of a decision that is cancelled
OUTCOMES: tuple[Outcome, ...] = ("interrupted", "out_of_memory", "failed")
Closing = Literal["told", "diverged", "interrupted", "out_of_memory", "failed"]  # how a decision ends
CLOSINGS: tuple[Closing, ...] = ("told", "diverged", "interrupted", "out_of_memory", "failed")


# What a user sees.


@dataclass(frozen=True)
class Decision:
    """Train `run` from `from_epoch` (already trained) up to `to_epoch`, and why."""

    number: int
    kind: Kind
    run: int
    config: Config
    from_epoch: int
    to_epoch: int
    reason: str

    @property
    def epochs(self) -> int:
        """Number of epochs granted."""
        return self.to_epoch - self.from_epoch


@dataclass(frozen=True)
class Run:
    """One configuration being trained."""

    number: int
    config: Config
    losses: tuple[float, ...] = ()  # finite losses in the user's units
    seconds: tuple[float, ...] = ()  # of each epoch; NaN if unknown
    state: State = "frozen"
    outcome: str = ""  # why a failed run failed
    added: bool = False  # imported with `add_run`: it informs the model and is never trained here
    source: Any = field(default=None, repr=False, compare=False)  # a storage, from which `metrics` are read

    @property
    def epoch(self) -> int:
        """The last recorded epoch."""
        return len(self.losses)

    @cached_property
    def metrics(self) -> tuple[Mapping[str, Any], ...]:
        """What was reported beside the losses, one dict for each epoch."""
        found = () if self.source is None else tuple(self.source.metrics(self.number)[: self.epoch])
        return found + tuple({} for _ in range(self.epoch - len(found)))

    @cached_property
    def _lowest(self) -> float:
        return min(self.losses, default=math.inf)

    @cached_property
    def _highest(self) -> float:
        return max(self.losses, default=-math.inf)

    def detached(self) -> Run:
        """The same with its metrics, for use after the study is closed."""
        found = replace(self, source=None)
        found.__dict__["metrics"] = self.metrics
        return found

    @cached_property
    def mean_seconds(self) -> float:
        """Mean time of an epoch, as far as it is known, else zero."""
        known = [s for s in self.seconds if not math.isnan(s)]
        return sum(known) / len(known) if known else 0.0


def best_of(run: Run, sign: float) -> tuple[float, int, int]:
    """The lowest loss times the sign (infinite without losses), the number of the run, and the epoch."""
    lowest = run._lowest if sign > 0 else run._highest
    epoch = run.losses.index(lowest) + 1 if run.losses else 0
    return sign * lowest, run.number, epoch


@dataclass(frozen=True)
class Best:
    """One recorded epoch of a run: the best measured one, or the recommended one."""

    run: int
    epoch: int
    config: Config
    loss: float  # as measured
    checkpoint: Path | None = None  # of exactly this epoch; None if there is none
    source: Any = field(default=None, repr=False, compare=False)  # a study.StudyReader; or what keeps the checkpoint

    @cached_property
    def expected(self) -> float:
        """The expected loss of this epoch, with the noise removed. Asks the model."""
        return float(self.source.expected_loss(self.run, self.epoch))

    @cached_property
    def forecast(self) -> Any:
        """The forecast of the run's last epoch, a `losses.Forecast`. Asks the model."""
        return self.source.forecast(self.run)

    def detached(self, checkpoint: Path | None, source: Any = None) -> Best:
        """The same with everything computed, for use after the study is closed."""
        found = replace(self, checkpoint=checkpoint, source=source)
        found.__dict__.update(expected=self.expected, forecast=self.forecast)
        return found


@dataclass(frozen=True)
class BasketEntry:
    """One candidate of a decision: an existing run, or a new configuration if `run` is None."""

    run: int | None
    config: Config
    epoch: int  # already trained
    to_epoch: int  # the epoch that the score refers to
    score: float  # of the policy
    chance: float  # of beating the best loss (improvement rate), or of being the minimum (entropy search)


@dataclass(frozen=True)
class Explanation:
    """A decision with every candidate that was compared, best first."""

    decision: Decision
    basket: tuple[BasketEntry, ...]


@dataclass(frozen=True)
class PastForecast:
    """A forecast made before a loss was measured, with the loss that followed."""

    decision: int  # at which the forecast was made
    run: int
    epoch: int
    ahead: int  # epochs between the last loss known then and this one
    low: float  # 90 % interval
    median: float
    high: float
    loss: float
    below: float  # predictive probability of a smaller loss: uniform on [0, 1] if forecasts are calibrated


@dataclass(frozen=True)
class Budget:
    """When to stop: at whichever limit comes first. It counts the whole study, so a larger one continues it."""

    epochs: int | None = None
    training_hours: float | None = None  # of all workers, from reported seconds; `tune(timeout=)` is wall-clock
    target: float | None = None  # stop at a loss this good
    worthwhile: float | None = None  # stop when the expected improvement of continuing is smaller than this

    def __post_init__(self) -> None:
        for name, kind in (("epochs", int), ("training_hours", float), ("worthwhile", float)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | kind) or not value > 0):
                what = "integer" if kind is int else "number"
                raise StudyError(f"Budget: {name} must be a positive {what} or None, not {value!r}")
        target: object = self.target
        if target is not None and not (isinstance(target, int | float) and math.isfinite(target)):
            raise StudyError(f"Budget: target must be a finite loss or None, not {target!r}")


@dataclass(frozen=True)
class Prices:
    """What deciding and switching between runs cost, in seconds; in epochs if no seconds are reported.

    If switching is expensive, a decision grants several epochs at once and leaves the current run less readily. If
    deciding is, a decision plans what to train for longer. By default these costs are measured; `Prices()` charges
    nothing, so that decisions do not depend on how fast the machine is.
    """

    start: float = 0.0  # for a worker to begin any run: the process, the data
    save: float = 0.0  # to freeze the current run
    load: float = 0.0  # to thaw another
    decide: float = 0.0  # to decide

    def __post_init__(self) -> None:
        for name in ("start", "save", "load", "decide"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise StudyError(f"Prices: {name} must be a non-negative number of seconds, not {value!r}")


@dataclass(frozen=True)
class Checkpoints:
    """Where checkpoints are stored, how much disk space they may take, and how often a run is saved."""

    folder: Path | str | None = None  # None: beside the SQLite file, or a temporary folder without a store
    gb: float | None = None
    every: int | None = None
    in_memory: int = 2  # frozen models that a worker keeps in memory if the training is a class; 0: none

    def __post_init__(self) -> None:
        for name in ("gb", "every"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise StudyError(f"Checkpoints: {name} must be a positive number or None, not {value!r}")
        most: object = self.in_memory
        if isinstance(most, bool) or not isinstance(most, int) or most < 0:
            raise StudyError(f"Checkpoints: in_memory must be a non-negative integer, not {most!r}")


@dataclass(frozen=True)
class Notice:
    """What `tune` passes to its callbacks: something happened to a run, or the search has ended."""

    kind: Literal["decided", "epoch", "frozen", "finished", "diverged", "failed", "ended"]
    run: int | None = None
    config: Config | None = None
    epoch: int = 0  # the last recorded one
    loss: float | None = None  # of that epoch
    decision: int | None = None  # its number
    text: str = ""  # the reason of the decision, the failure or the end


@dataclass(frozen=True, repr=False)
class Result:
    """What `tune` returns."""

    _best: Best | None = field(repr=False)
    _recommended: Best | None = field(repr=False)
    reason: str  # why the search ended
    epochs: int  # trained in total
    runs: tuple[Run, ...] = field(repr=False)
    training_seconds: float = 0.0  # of all workers, in the whole study
    deciding_seconds: float = 0.0  # likewise
    metric: str = "loss"  # what the losses are called
    no_best: str = ""  # why there is no best epoch; empty if there is one

    @property
    def best(self) -> Best:
        """The lowest measured loss. Raises StudyError, with the reason, if no run has a finite loss."""
        if self._best is None:
            raise StudyError(self.no_best)
        return self._best

    @property
    def recommended(self) -> Best:
        """The lowest expected loss: what to train again if measurements are noisy."""
        return self.best if self._recommended is None else self._recommended

    def __repr__(self) -> str:
        best = "no best" if self._best is None else f"best run {self._best.run}, {self.metric} {self._best.loss:.5g}"
        return f"<Result: {best}; {self.epochs} epochs in {len(self.runs)} runs; {self.reason}>"


# What storage keeps and the decision reads.


@dataclass(frozen=True)
class Request:
    """What is to be done next: start a configuration (`run` is None) or thaw a run."""

    number: int
    run: int | None
    config: Config
    to_epoch: int
    reason: str = ""  # of an earlier decision that planned this; empty if the user asked for it


@dataclass(frozen=True)
class DecisionDraft:
    """A decision before it is committed: `run` None starts a new run."""

    run: int | None
    config: Config
    to_epoch: int
    reason: str
    improvement: float = math.inf  # the largest expected improvement of any candidate, in the user's units
    basket: tuple[BasketEntry, ...] = ()
    requests: tuple[int, ...] = ()  # numbers of requests that this fulfils, or that can no longer be completed
    plan: tuple[Request, ...] = ()  # what follows without deciding again, if deciding is expensive; numbered from 0
    seconds: float = field(default=math.nan, compare=False)  # that deciding took; NaN if no model was asked
    saving: float = field(default=math.nan, compare=False)  # that saving the run before it took; NaN if it was not


@dataclass(frozen=True)
class DecisionRecord:
    """A committed decision and its outcome. Changes are counted by the study's change counter."""

    decision: Decision
    basis: int  # the last change known to the decision
    version: int  # of the definition
    state: str  # pending, told, cancelled
    outcome: str  # a `Closing`; empty while pending
    reached: int | None  # the run's epoch when the decision ended
    committed: int  # the change that added it
    closed: int | None  # the change that ended it; the commit of the next decision may be the same change
    basket: tuple[BasketEntry, ...] = field(repr=False, default=())  # empty in listings
    seconds: float = field(default=math.nan, compare=False)  # that deciding took; NaN if unknown
    saving: float = field(default=math.nan, compare=False)  # that saving the run before it took; NaN if unknown


@dataclass(frozen=True)
class Overheads:
    """What a decision and a checkpoint take, in seconds: medians of the last ones, 0 if unknown."""

    deciding: float = 0.0
    saving: float = 0.0

    @classmethod
    def of(cls, last: Sequence[tuple[float | None, float | None]]) -> Overheads:
        """From the seconds of deciding and of saving of the last RECENT_DECISIONS decisions."""
        return cls(*(_typical(values) for values in zip(*last, strict=True))) if last else cls()


RECENT_DECISIONS = 64  # whose seconds are taken into account


def _typical(seconds: Sequence[float | None]) -> float:
    known = [s for s in seconds if s is not None and math.isfinite(s)]
    return median(known) if known else 0.0


@dataclass(frozen=True)
class History:
    """All decisions by number, without baskets, and every epoch with the change that recorded it, in that order."""

    change: int = 0
    decisions: tuple[DecisionRecord, ...] = field(repr=False, default=())
    epochs: tuple[tuple[int, int, int], ...] = field(repr=False, default=())  # change, run, epoch

    def epochs_at(self, change: int) -> int:
        """How many epochs were recorded in the whole study up to and including a change."""
        return bisect_right(self.epochs, change, key=lambda epoch: epoch[0])


@dataclass(frozen=True)
class Report:
    """Losses of consecutive epochs of one run."""

    first_epoch: int
    losses: tuple[float, ...]  # finite
    seconds: tuple[float, ...] = ()  # NaN if unknown; empty: all unknown
    metrics: tuple[Mapping[str, Any], ...] = ()
    diverged: bool = False  # the epoch after these had a loss that is not finite

    def check(self, recorded: int, granted: int) -> None:
        """Refuse gaps, epochs that were not granted, and losses that are not finite numbers."""
        first, count = self.first_epoch, len(self.losses)
        if not 1 <= first <= recorded + 1:
            raise TellError(f"epoch {first} cannot follow epoch {recorded}: learning curves have no gaps")
        if first + count - 1 > granted:
            raise TellError(f"epoch {first + count - 1} was not granted; the decision ends at epoch {granted}")
        check_finite(self.losses)
        for what, values in (("seconds", self.seconds), ("metrics", self.metrics)):
            if values and len(values) != count:
                raise TellError(f"{count} losses but {len(values)} {what} were reported")

    def check_added(self, max_epochs: int) -> None:
        """Refuse an imported learning curve that is empty, too long or not finite."""
        check_finite(self.losses)
        if self.first_epoch != 1 or len(self.losses) > max_epochs or not (self.losses or self.diverged):
            raise TellError(f"an imported learning curve has 1 to {max_epochs} losses from epoch 1")


def check_finite(losses: Sequence[object]) -> None:
    """Refuse what is not a finite number: divergence is a state of a run, not a loss."""
    for loss in losses:
        if isinstance(loss, bool) or not isinstance(loss, int | float) or not math.isfinite(loss):
            raise TellError(f"the loss {loss!r} is not a finite number; close the decision as diverged instead")


@dataclass(frozen=True)
class Recorded:
    """The result of recording a report."""

    change: int
    epoch: int  # the run's last recorded epoch
    repeated: tuple[int, ...] = ()  # epochs recorded before: the first loss was kept
    different: tuple[int, ...] = ()  # those of them with a different loss this time
    decision_lease: Lease | None = None  # if it was asked for and free


@dataclass(frozen=True)
class Lease:
    """The right to advance a run, or to decide (run 0). A write carries the fencing token; an old one is refused."""

    run: int
    token: int
    decision: int = 0  # the decision that the run is advanced for


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint. `number` is 0 until it is recorded."""

    run: int
    epoch: int
    place: str  # relative to the folder of all checkpoints
    sha256: str
    bytes: int
    number: int = 0


@dataclass(frozen=True)
class Event:
    """Something that the user should know."""

    number: int
    kind: str
    text: str
    run: int | None = None
    epoch: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""


@dataclass(frozen=True)
class StudyInfo:
    """One line of the list of studies."""

    name: str
    runs: int
    epochs: int
    decisions: int
    created: str
    tags: tuple[str, ...] = ()
    uid: str = ""


@dataclass(frozen=True)
class StudyState:
    """Everything that a decision depends on, as of one change. Runs are numbered from 1 and are in that order."""

    change: int
    version: int  # of the definition
    definition: Mapping[str, Any] = field(repr=False)  # plain, as `StudyDefinition.to_dict` writes it
    runs: tuple[Run, ...] = field(repr=False, default=())
    pending: tuple[Decision, ...] = ()  # neither told nor cancelled
    decisions: int = 0  # committed so far
    requests: tuple[Request, ...] = ()  # of the user, in order, then planned ones
    checkpoints: tuple[Checkpoint, ...] = field(repr=False, default=())  # those that exist
    last_run: int | None = None  # of the last decision, once it is closed: continuing it needs no save or load
    overheads: Overheads = Overheads()

    @property
    def max_epochs(self) -> int:
        """The last epoch of a run."""
        return int(self.definition["max_epochs"])

    @property
    def sign(self) -> float:
        """Losses times this are minimised."""
        return direction_sign(self.definition["direction"])

    @property
    def banned(self) -> frozenset[int]:
        """Runs that the user does not want advanced."""
        return frozenset(self.definition.get("banned", ()))

    def run(self, number: int) -> Run:
        """One run by its number."""
        if isinstance(number, bool) or number not in range(1, len(self.runs) + 1):
            raise StudyError(f"there is no run {number!r}; the study has runs 1 to {len(self.runs)}")
        return self.runs[int(number) - 1]

    def after(self, completed: Decision) -> StudyState:
        """The state once a pending decision, all of whose epochs are recorded, has been closed."""
        run = self.run(completed.run)
        state: State = "finished" if run.epoch >= self.max_epochs else "frozen"
        runs = (*self.runs[: run.number - 1], replace(run, state=state), *self.runs[run.number :])
        pending = tuple(d for d in self.pending if d.number != completed.number)
        return replace(self, runs=runs, pending=pending, last_run=run.number)

    @cached_property
    def _saved(self) -> Mapping[int, int]:
        """The newest saved epoch of each run."""
        saved: dict[int, int] = {}
        for checkpoint in self.checkpoints:
            saved[checkpoint.run] = max(checkpoint.epoch, saved.get(checkpoint.run, 0))
        return saved

    def epochs_to_retrain(self, run: Run) -> int:
        """Epochs that a thaw has to train again because no later checkpoint exists; 0 if nothing is ever saved."""
        return run.epoch - self._saved.get(run.number, 0) if self._saved else 0

    def frozen(self) -> Iterator[Run]:
        """Runs that may be advanced."""
        banned = self.banned
        return (run for run in self.runs if run.state == "frozen" and run.number not in banned)

    def epochs_trained(self) -> int:
        """Epochs recorded, and the diverged ones, which were trained too. Imported runs do not count."""
        return sum(run.epoch + (run.state == "diverged") for run in self.runs if not run.added)

    def epochs_pending(self) -> int:
        """Epochs granted and not recorded yet."""
        return sum(max(decision.to_epoch - self.run(decision.run).epoch, 0) for decision in self.pending)

    def seconds_trained(self) -> float:
        """Training time reported so far."""
        return sum(s for run in self.runs if not run.added for s in run.seconds if not math.isnan(s))

    @property
    def metric(self) -> str:
        """What users call the losses."""
        return str(self.definition.get("metric", "loss"))

    @property
    def best_loss(self) -> float | None:
        """The best measured loss in the user's units; None if there is no loss."""
        return None if self.lowest is None else self.sign * self.lowest[0]

    @cached_property
    def lowest(self) -> tuple[float, int, int] | None:
        """The best measured loss times the sign, its run and its epoch; None if there is no loss."""
        sign = self.sign
        return min((best_of(run, sign) for run in self.runs if run.losses), default=None)


def direction_sign(direction: str) -> float:
    """Losses times this are minimised."""
    return -1.0 if direction == "maximize" else 1.0


def closed_state(how: Closing, epoch: int, max_epochs: int) -> tuple[State, str]:
    """State and outcome of a run after its decision was closed."""
    if how == "diverged":
        return "diverged", ""
    if how in ("failed", "out_of_memory"):
        return "failed", how
    return ("finished" if epoch >= max_epochs else "frozen"), ("interrupted" if how == "interrupted" else "")
