"""Training by a command in any language: a shell script, a C program, a container.

The command runs once per decision. Its environment has

    FREEZETHAW_CONFIG   a JSON file with the configuration
    FREEZETHAW_SEED     the seed of the run, the same after every thaw
    FREEZETHAW_FROM     the number of epochs already trained; FREEZETHAW_TO: the last epoch to train
    FREEZETHAW_LOAD     the folder with the state saved by the previous call; empty on a start
    FREEZETHAW_SAVE     an empty folder: save the state here before exiting

Lines of standard output that are JSON objects with "epoch" and "loss" are losses, in order; further keys are metrics.
All other output is the log. Exit codes are 0 (done), 10 (diverged), 11 (out of memory), 12 (pre-empted, after saving
the state of the last printed epoch) and any other (failed). To stop the command, SIGTERM is sent; SIGKILL
follows only if there is a grace period (`grace`), after 80 % of it.

The last loss is reported after the command has exited, because only then is the saved state complete.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from freezethaw.errors import Diverged, OutOfMemory, Preempted, TrainingError
from freezethaw.trainers.command_process import CommandProcess, LossLine
from freezethaw.trainers.protocol import Train, TrainingRun

DIVERGED, OUT_OF_MEMORY, PREEMPTED = 10, 11, 12


@dataclass(frozen=True)
class CommandTrainer:
    """A training function that runs a command."""

    command: tuple[str, ...]
    folder: str | None = None  # working directory; None: the current one
    epoch_limit: float | None = None  # largest number of seconds between two losses
    grace: float | None = None  # seconds between the request to stop and the end; None: as long as an epoch takes

    def __call__(self, run: TrainingRun) -> None:
        """Run the command once per decision, as long as decisions continue this run."""
        load = run.checkpoint
        with tempfile.TemporaryDirectory(prefix="freezethaw-command-") as home:
            epochs = run.epochs()
            epoch = next(epochs, None)
            while epoch is not None:
                saved = Path(home) / f"after-{epoch - 1}"
                saved.mkdir()
                config = Path(home) / "config.json"
                config.write_text(json.dumps(dict(run.config)), encoding="utf-8")
                variables = {"CONFIG": config, "SEED": run.seed, "FROM": epoch - 1, "TO": _last_epoch(run, epoch)}
                variables |= {"LOAD": load or "", "SAVE": saved}
                epoch = self._call(run, epochs, epoch, saved, variables)
                if load is not None and load != run.checkpoint:
                    shutil.rmtree(load)
                load = saved

    def _call(
        self, run: TrainingRun, epochs: Iterator[int], epoch: int, saved: Path, variables: Mapping[str, object]
    ) -> int | None:
        """Run the command once; return the next epoch, or None if the run is frozen."""
        last = _last_epoch(run, epoch)
        held: LossLine | None = None  # a loss is reported when the next one arrives, or with the saved state
        with CommandProcess(self.command, self.folder, self.epoch_limit, variables, self.grace) as process:
            for line in process.lines(run.leaving):
                expected = epoch if held is None else held.epoch + 1
                _check(line, expected, last, epoch)
                if held is not None:
                    run.more = True
                    run.report(held.loss, **held.metrics)
                    run.more = False
                    if next(epochs, None) is None:
                        return None
                held = line
                if not math.isfinite(line.loss):
                    break
            finite = held is None or math.isfinite(held.loss)
            code, stopped = (process.end(), run.leaving()) if finite else (DIVERGED, False)
            output = process.output()
        return _conclude(self, run, epochs, _Exit(held, last, saved, code, stopped, output))

    def __str__(self) -> str:
        return " ".join(self.command)


def command(
    arguments: Sequence[str] | str, folder: Path | None = None, epoch_limit: float | None = None
) -> CommandTrainer:
    """A training function for a command; raises TrainingError if the command does not exist."""
    parts = (arguments,) if isinstance(arguments, str) else tuple(map(str, arguments))
    if not parts or not parts[0]:
        raise TrainingError("the command is empty; expected a list such as ['./train.sh', '--fast']")
    home = (folder or Path()).absolute()
    path = str(home / parts[0]) if "/" in parts[0] else parts[0]
    found = shutil.which(path)
    if found is None:
        exists = Path(path).is_file() and "/" in parts[0]
        why = f"is not executable: chmod +x {parts[0]}" if exists else "is not found"
        raise TrainingError(f"the command {parts[0]!r} {why}")
    return CommandTrainer((found, *parts[1:]), str(home), epoch_limit)


def limited(train: Train, epoch_limit: float | None, grace: float | None = None) -> tuple[Train, float | None]:
    """Apply a time limit per epoch: returns the training, and the limit that its worker has to enforce.

    A command enforces the limit itself, and the grace period; any other training can be ended only with its worker.
    """
    if isinstance(train, CommandTrainer):
        return replace(train, epoch_limit=epoch_limit or train.epoch_limit, grace=grace or train.grace), None
    return train, epoch_limit


@dataclass(frozen=True)
class _Exit:
    """The result of one call of the command."""

    held: LossLine | None  # the last loss, not yet reported
    last: int  # the last epoch to train
    saved: Path
    code: int
    stopped: bool  # whether it was asked to stop
    output: str

    @property
    def state_complete(self) -> bool:
        """Whether the saved state is complete."""
        return self.code in (0, PREEMPTED) and any(self.saved.iterdir())

    @property
    def preempted(self) -> bool:
        """Whether it was stopped from outside."""
        return self.stopped or self.code in (PREEMPTED, -signal.SIGTERM, 128 + signal.SIGTERM)

    def save(self, folder: Path) -> None:
        """Copy the saved state."""
        shutil.copytree(self.saved, folder, dirs_exist_ok=True)


def _conclude(trainer: CommandTrainer, run: TrainingRun, epochs: Iterator[int], end: _Exit) -> int | None:
    """Report the last loss, and raise if the command failed."""
    held = end.held
    if held is not None and not math.isfinite(held.loss):
        run.report(held.loss, **held.metrics)
        return None
    if end.code == 0 and not end.stopped:
        _check_done(trainer, end)
    # a loss is not reported if its state is not saved, or if it would hide a later failure
    if held is not None and (end.state_complete or (held.epoch < end.last and not end.preempted)):
        run.report(held.loss, end.save if end.state_complete else None, **held.metrics)
        following = next(epochs, None)
        if following is None or (end.code == 0 and held.epoch == end.last):
            return following
    if end.preempted:
        raise Preempted(f"{trainer} was pre-empted")
    if end.code == 0:
        reached = end.last if held is None else held.epoch
        raise TrainingError(f"{trainer} exited with 0 after epoch {reached}; expected epoch {end.last}{end.output}")
    if end.code == DIVERGED:
        raise Diverged(f"{trainer} reported that run {run.number} diverged")
    if end.code == OUT_OF_MEMORY:
        raise OutOfMemory(f"{trainer} reported that run {run.number} ran out of memory")
    raise TrainingError(f"{trainer} {_exit_text(end.code)}{end.output}")


def _check_done(trainer: CommandTrainer, end: _Exit) -> None:
    """After exit code 0 there must be losses and a saved state."""
    if end.held is None:
        raise TrainingError(
            f"{trainer} exited with 0 but printed no loss; print lines such as "
            f'{{"epoch": {end.last}, "loss": 0.25}} to standard output{end.output}'
        )
    if not end.state_complete:
        raise TrainingError(f"{trainer} saved nothing in $FREEZETHAW_SAVE, so this run cannot be thawed{end.output}")


def _check(line: LossLine, expected: int, last: int, first: int) -> None:
    if line.epoch == expected and line.epoch <= last:
        return
    limits = f"FREEZETHAW_FROM was {first - 1} and FREEZETHAW_TO was {last}"
    if line.epoch > last:
        raise TrainingError(f"the command printed epoch {line.epoch}, after its last epoch: {limits}")
    hint = " (the first epoch is FROM + 1)" if expected == first else ""
    raise TrainingError(f"the command printed epoch {line.epoch} instead of {expected}: {limits}{hint}")


def _last_epoch(run: TrainingRun, epoch: int) -> int:
    """The last epoch of the current decision."""
    return max(run.to_epoch, epoch)


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"exited with {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (" (out of memory?)" if -code == signal.SIGKILL else "")
