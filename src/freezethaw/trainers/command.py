"""A command in any language as a training: a shell script, a C program, a container.

It is run once for each decision and told, by the environment, what to do:

    FREEZETHAW_CONFIG   a JSON file with the configuration
    FREEZETHAW_SEED     the run's seed, the same after every thaw
    FREEZETHAW_FROM     epochs done before; FREEZETHAW_TO: epochs done after
    FREEZETHAW_LOAD     the folder that an earlier call saved into; empty on a start
    FREEZETHAW_SAVE     an empty folder: save into it whatever the next call needs, before you exit

Lines of its standard output that are JSON objects with "epoch" and "loss" count, in order; other keys of them are kept
as metrics, and all other output is its log. It exits with 0 (done), 10 (diverged), 11 (out of memory), 12 (pre-empted:
it has saved what it printed last), or anything else (failed). Asked to leave, it gets SIGTERM and some seconds.

The last loss is reported when the command has exited: only then is what it saved complete.
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
from freezethaw.trainers.command_output import Line
from freezethaw.trainers.command_process import CommandProcess
from freezethaw.trainers.protocol import Train, TrainingRun

DIVERGED, OUT_OF_MEMORY, PREEMPTED = 10, 11, 12


@dataclass(frozen=True)
class CommandTrainer:
    """A training function that runs a command."""

    command: tuple[str, ...]
    folder: str | None = None  # that it runs in; None: the current one
    epoch_limit: float | None = None  # seconds within which the next line has to come

    def __call__(self, run: TrainingRun) -> None:
        """Run the command from decision to decision, as long as they continue this run."""
        load = run.checkpoint
        with tempfile.TemporaryDirectory(prefix="freezethaw-command-") as home:
            epochs = run.epochs()
            epoch = next(epochs, None)
            while epoch is not None:
                saved = Path(home) / f"after-{epoch - 1}"
                saved.mkdir()
                config = Path(home) / "config.json"
                config.write_text(json.dumps(dict(run.config)), encoding="utf-8")
                told = {"CONFIG": config, "SEED": run.seed, "FROM": epoch - 1, "TO": _goal(run, epoch)}
                told |= {"LOAD": load or "", "SAVE": saved}
                epoch = self._call(run, epochs, epoch, saved, told)
                if load is not None and load != run.checkpoint:
                    shutil.rmtree(load)
                load = saved

    def _call(
        self, run: TrainingRun, epochs: Iterator[int], epoch: int, saved: Path, told: Mapping[str, object]
    ) -> int | None:
        """Run it once; gives the epoch that comes next, None where the run is frozen."""
        last = _goal(run, epoch)
        held: Line | None = None  # a loss is reported when the next one comes, or with what was saved
        with CommandProcess(self.command, self.folder, self.epoch_limit, told) as process:
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
            code, left = (process.end(), run.leaving()) if finite else (DIVERGED, False)
            output = process.output()
        return _settle(self, run, epochs, _Ended(held, last, saved, code, left, output))

    def __str__(self) -> str:
        return " ".join(self.command)


def command(words: Sequence[str] | str, folder: Path | None = None, epoch_limit: float | None = None) -> CommandTrainer:
    """A command as a training function; raises TrainingError where it does not exist."""
    parts = (words,) if isinstance(words, str) else tuple(str(word) for word in words)
    if not parts or not parts[0]:
        raise TrainingError("the command is empty; write it as a list of words, such as ['./train.sh', '--fast']")
    home = (folder or Path()).absolute()
    place = str(home / parts[0]) if "/" in parts[0] else parts[0]
    found = shutil.which(place)
    if found is None:
        there = Path(place).is_file() and "/" in parts[0]
        why = f"may not be executed: chmod +x {parts[0]}" if there else "is not found"
        raise TrainingError(f"the command {parts[0]!r} {why}")
    return CommandTrainer((found, *parts[1:]), str(home), epoch_limit)


def limited(train: Train, epoch_limit: float | None) -> tuple[Train, float | None]:
    """A training that keeps a time limit for each epoch, and the limit that is left for its worker to keep.

    A command is ended, and its worker lives; anything else can be ended only together with its worker.
    """
    if epoch_limit is not None and isinstance(train, CommandTrainer):
        return replace(train, epoch_limit=epoch_limit), None
    return train, epoch_limit


@dataclass(frozen=True)
class _Ended:
    """How a call of the command ended."""

    held: Line | None  # its last loss, not reported yet
    last: int  # the epoch that it was to reach
    saved: Path
    code: int
    left: bool  # whether it was asked to leave
    output: str

    @property
    def whole(self) -> bool:
        """Whether what it saved can be relied on."""
        return self.code in (0, PREEMPTED) and any(self.saved.iterdir())

    @property
    def preempted(self) -> bool:
        """Whether it ended for no fault of its own."""
        return self.left or self.code in (PREEMPTED, -signal.SIGTERM, 128 + signal.SIGTERM)

    def save(self, folder: Path) -> None:
        """Copy what it saved."""
        shutil.copytree(self.saved, folder, dirs_exist_ok=True)


def _settle(trainer: CommandTrainer, run: TrainingRun, epochs: Iterator[int], end: _Ended) -> int | None:
    """What the command's end means: report its last loss, and say what happened."""
    held = end.held
    if held is not None and not math.isfinite(held.loss):
        run.report(held.loss, **held.metrics)
        return None
    if end.code == 0 and not end.left:
        _check_done(trainer, end)
    # a loss that cannot be thawed again need not be recorded, nor one that would hide what happened after it
    if held is not None and (end.whole or (held.epoch < end.last and not end.preempted)):
        run.report(held.loss, end.save if end.whole else None, **held.metrics)
        following = next(epochs, None)
        if following is None or (end.code == 0 and held.epoch == end.last):
            return following
    if end.preempted:
        raise Preempted(f"{trainer} was pre-empted")
    if end.code == 0:
        reached = end.last if held is None else held.epoch
        raise TrainingError(
            f"{trainer} exited with 0 after epoch {reached}; it was to train to epoch {end.last}{end.output}"
        )
    if end.code == DIVERGED:
        raise Diverged(f"{trainer} says that run {run.number} diverged")
    if end.code == OUT_OF_MEMORY:
        raise OutOfMemory(f"{trainer} says that run {run.number} ran out of memory")
    raise TrainingError(f"{trainer} {_ended(end.code)}{end.output}")


def _check_done(trainer: CommandTrainer, end: _Ended) -> None:
    """Exit code 0 promises losses, and a state to go on from."""
    if end.held is None:
        raise TrainingError(
            f"{trainer} exited with 0 and printed no loss; print lines such as "
            f'{{"epoch": {end.last}, "loss": 0.25}} to standard output{end.output}'
        )
    if not end.whole:
        raise TrainingError(
            f"{trainer} saved nothing into the folder $FREEZETHAW_SAVE, so that this run could never be thawed"
            f"{end.output}"
        )


def _check(line: Line, expected: int, last: int, first: int) -> None:
    if line.epoch == expected and line.epoch <= last:
        return
    told = f"FREEZETHAW_FROM was {first - 1} and FREEZETHAW_TO was {last}"
    if line.epoch > last:
        raise TrainingError(f"the command printed epoch {line.epoch}, beyond where it was to stop: {told}")
    hint = " (the first epoch is FROM + 1)" if expected == first else ""
    raise TrainingError(f"the command printed epoch {line.epoch} where {expected} was due: {told}{hint}")


def _goal(run: TrainingRun, epoch: int) -> int:
    """Where the decision of now ends."""
    return max(run.to_epoch, epoch)


def _ended(code: int) -> str:
    if code >= 0:
        return f"exited with {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (" (by the system for want of memory?)" if -code == signal.SIGKILL else "")
