"""Frozen values that the layers exchange. One word for one thing: study, run, epoch, loss, decision, checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from freezethaw.errors import StudyError

Config = Mapping[str, Any]
Kind = Literal["start", "thaw"]
State = Literal["frozen", "pending", "finished", "diverged", "failed"]
Outcome = Literal["interrupted", "out_of_memory", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("interrupted", "out_of_memory", "failed")


@dataclass(frozen=True)
class Decision:
    """Train `run` from `from_epoch` (done before) to `to_epoch` (done after), and why."""

    number: int
    kind: Kind
    run: int
    config: Config
    from_epoch: int
    to_epoch: int
    reason: str

    @property
    def epochs(self) -> int:
        """How many epochs are granted."""
        return self.to_epoch - self.from_epoch


@dataclass(frozen=True)
class Run:
    """One configuration being trained: what is known of it now."""

    number: int
    config: Config
    losses: tuple[float, ...] = ()  # finite ones, as told
    seconds: tuple[float, ...] = ()  # of each epoch, NaN where not told
    state: State = "frozen"
    outcome: str = ""  # why a failed run failed
    added: bool = False  # a curve from elsewhere: evidence, never trained here

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return len(self.losses)


@dataclass(frozen=True)
class Best:
    """The best epoch so far: its loss as told, and as expected with the noise removed."""

    run: int
    epoch: int
    config: Config
    loss: float
    expected: float
    checkpoint: Path | None = None  # of this epoch, else of the best one of its run that is kept; None where none is
    forecast: Any = field(default=None, repr=False, compare=False)  # a losses.Forecast: where the run would end


@dataclass(frozen=True)
class BasketEntry:
    """One candidate that was compared in a decision: an old run, or a new configuration where `run` is None."""

    run: int | None
    config: Config
    epoch: int  # done before
    to_epoch: int  # where going on pays most
    score: float  # of the policy
    chance: float  # of beating the best (improvement rate), or of being the minimum (entropy search)


@dataclass(frozen=True)
class Wish:
    """What the user asked to be done first: start a configuration (`run` None) or thaw a run."""

    number: int
    run: int | None
    config: Config
    to_epoch: int


@dataclass(frozen=True)
class Explanation:
    """A decision and all that was compared for it, best first."""

    decision: Decision
    basket: tuple[BasketEntry, ...]


@dataclass(frozen=True)
class Taken:
    """A decision and what came of it. Time is counted in epochs recorded in the whole study."""

    decision: Decision
    known: int  # epochs recorded when it was decided on
    began: int  # epochs recorded when it was taken
    ended: int | None = None  # epochs recorded when it ended; None while it is under way
    outcome: str = ""  # told, diverged, interrupted, out_of_memory, failed


@dataclass(frozen=True)
class History:
    """How a study went: all decisions by number, and (run, epoch) of every loss in the order of recording."""

    decisions: tuple[Taken, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class PastForecast:
    """What a study said of a loss before it was measured, and what it then was."""

    decision: int  # at which it was said
    run: int
    epoch: int
    ahead: int  # epochs between the last loss known then and this one
    low: float  # of the 90 % interval
    median: float
    high: float
    loss: float
    below: float  # the forecast's chance of a smaller loss: evenly spread over 0 to 1 where forecasts are right


@dataclass(frozen=True)
class Budget:
    """When to stop: whichever comes first. It counts the whole study, so raising it continues a finished one."""

    epochs: int | None = None
    hours: float | None = None  # of training, as told in seconds
    target: float | None = None  # stop at a loss this good
    worthwhile: float | None = None  # stop when the expected improvement of going on is smaller than this

    def __post_init__(self) -> None:
        for name in ("epochs", "hours", "worthwhile"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise StudyError(f"Budget: {name} must be a positive number or None, not {value!r}")
        if self.target is not None and not math.isfinite(self.target):
            raise StudyError(f"Budget: target must be a finite loss or None, not {self.target!r}")


@dataclass(frozen=True)
class Prices:
    """What it costs to go back and forth between runs, in seconds; in epochs where no seconds are told.

    Where prices are high, decisions grant several epochs at once, and the run in hand is left for good reasons only.
    """

    start: float = 0.0  # of a worker's taking up any run: the process, the data
    save: float = 0.0  # of freezing the run in hand
    load: float = 0.0  # of thawing another

    def __post_init__(self) -> None:
        for name in ("start", "save", "load"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise StudyError(f"Prices: {name} must be a number of seconds that is not negative, not {value!r}")


@dataclass(frozen=True)
class Checkpoints:
    """Where checkpoints go, how much room they may take, and how often a running run is saved."""

    folder: Path | str | None = None  # None: beside the SQLite file; a temporary one where there is no store
    gb: float | None = None
    every: int | None = None
    in_memory: int = 2  # objects of frozen runs that a worker keeps, where the training is a class; 0: none

    def __post_init__(self) -> None:
        for name in ("gb", "every"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise StudyError(f"Checkpoints: {name} must be a positive number or None, not {value!r}")
        most: object = self.in_memory
        if isinstance(most, bool) or not isinstance(most, int) or most < 0:
            raise StudyError(f"Checkpoints: in_memory must be a whole number that is not negative, not {most!r}")


@dataclass(frozen=True)
class Notice:
    """What `tune` tells its callbacks: something happened to a run, or the search has ended."""

    kind: Literal["decided", "epoch", "frozen", "finished", "diverged", "failed", "ended"]
    run: int | None = None
    config: Config | None = None
    epoch: int = 0  # done
    loss: float | None = None  # of that epoch
    decision: int | None = None  # its number
    text: str = ""  # why it was decided, failed or ended


@dataclass(frozen=True)
class Result:
    """What `tune` returns."""

    best: Best | None
    reason: str  # why it ended
    epochs: int  # trained in all
    runs: tuple[Run, ...] = field(repr=False)
