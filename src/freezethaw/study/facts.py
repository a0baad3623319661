"""What is known of a study at one moment: runs, decisions under way, wishes. Immutable; deciders read nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from freezethaw.errors import StudyError
from freezethaw.records import Decision, Run, State, Wish


@dataclass(frozen=True)
class Facts:
    """Runs are numbered from 1 and stand in that order."""

    max_epochs: int
    runs: tuple[Run, ...] = ()
    pending: tuple[Decision, ...] = ()  # neither told nor cancelled
    decisions: int = 0  # taken so far
    wishes: tuple[Wish, ...] = ()  # of the user, in order
    saved: Mapping[int, int] | None = None  # run -> epoch of its newest checkpoint; None where nothing is ever saved
    in_hand: int | None = None  # the run of the last decision, once told: going on with it needs neither save nor load
    banned: tuple[int, ...] = ()  # runs that the user wants advanced no more

    @property
    def next_number(self) -> int:
        """Number of the next decision."""
        return self.decisions + 1

    def after(self, fulfilled: Decision) -> Facts:
        """As if a decision, all of whose epochs are recorded, had been told."""
        run = self.run(fulfilled.run)
        state: State = "finished" if run.epoch >= self.max_epochs else "frozen"
        runs = (*self.runs[: run.number - 1], replace(run, state=state), *self.runs[run.number :])
        pending = tuple(d for d in self.pending if d.number != fulfilled.number)
        return replace(self, runs=runs, pending=pending, in_hand=run.number)

    def run(self, number: int) -> Run:
        """One run by its number."""
        if isinstance(number, bool) or number not in range(1, len(self.runs) + 1):
            raise StudyError(f"there is no run {number!r}; the study has runs 1 to {len(self.runs)}")
        return self.runs[int(number) - 1]

    def to_train_again(self, run: Run) -> int:
        """Epochs that a thaw has to train again because their checkpoint is gone."""
        return 0 if self.saved is None else run.epoch - self.saved.get(run.number, 0)

    def frozen(self) -> Iterator[Run]:
        """Runs that may be advanced."""
        return (run for run in self.runs if run.state == "frozen" and run.number not in self.banned)

    def epochs_trained(self) -> int:
        """Epochs told; a diverging epoch was trained too. Curves from elsewhere cost nothing."""
        return sum(run.epoch + (run.state == "diverged") for run in self.runs if not run.added)

    def epochs_pending(self) -> int:
        """Epochs granted and not told yet."""
        return sum(max(decision.to_epoch - self.run(decision.run).epoch, 0) for decision in self.pending)

    def seconds_trained(self) -> float:
        """Training time told so far."""
        return float(sum(np.nansum(run.seconds) for run in self.runs if not run.added))
