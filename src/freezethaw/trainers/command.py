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

import contextlib
import json
import math
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from freezethaw.errors import Diverged, OutOfMemory, Preempted, TrainingError
from freezethaw.trainers.of_class import RESERVED
from freezethaw.trainers.protocol import Train, TrainingRun

DIVERGED, OUT_OF_MEMORY, PREEMPTED = 10, 11, 12
GRACE = 20.0  # seconds that a command has to save and leave
LOOK = 0.2  # seconds between two looks at whether to leave
LINGER = 2.0  # seconds after its end in which output may still come
TAIL = 5  # lines of output that a message shows
BARE = re.compile(r"([:\[,]\s*)[-+]?(nan|inf(?:inity)?)\b", re.IGNORECASE)  # as C prints them


@dataclass(frozen=True)
class Line:
    """A line that counts."""

    epoch: int
    loss: float
    metrics: Mapping[str, Any]


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
        with _Process(self, told) as process:
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


def read_line(text: str) -> Line | None:
    """A line of output: a loss, or None where it is part of the log. Raises TrainingError for a loss that is none."""
    if not text.lstrip().startswith("{"):
        return None
    found = _parsed(text)
    if not isinstance(found, dict) or "epoch" not in found or "loss" not in found:
        return None
    epoch, loss = found["epoch"], found["loss"]
    if isinstance(epoch, float) and epoch.is_integer():
        epoch = int(epoch)
    if isinstance(epoch, bool) or not isinstance(epoch, int):
        raise TrainingError(f"the command printed an epoch that is no whole number: {text.strip()[:200]}")
    if loss is None:  # NaN, as JavaScript and others write it
        loss = math.nan
    if isinstance(loss, bool) or not isinstance(loss, int | float):
        raise TrainingError(f"the command printed a loss that is no number: {text.strip()[:200]}")
    metrics = {key: value for key, value in found.items() if key not in ("epoch", *RESERVED)}
    return Line(epoch, float(loss), metrics)


def _parsed(text: str) -> Any:
    for attempt in (text, BARE.sub(r"\1NaN", text)):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(attempt)
    return None


class _Process:
    """The command while it runs, in a session of its own: Ctrl-C reaches it through us only."""

    def __init__(self, trainer: CommandTrainer, told: Mapping[str, object]) -> None:
        self._trainer = trainer
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._queue: queue.Queue[str | None] = queue.Queue()
        environment = os.environ | {f"FREEZETHAW_{key}": str(value) for key, value in told.items()}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                trainer.command,
                cwd=trainer.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise TrainingError(f"the command {trainer.command[0]!r} cannot be run: {error.strerror}") from error
        self._readers = [
            threading.Thread(target=self._read_losses, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_log, args=(self._process.stderr,), daemon=True),
        ]

    def __enter__(self) -> _Process:
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._stop(signal.SIGKILL)
            self._process.wait()
        for reader in self._readers:
            reader.join(timeout=1.0)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError, ValueError):
                    pipe.close()

    def lines(self, leaving: Callable[[], bool]) -> Iterator[Line]:
        """Lines that count, as they come, until the output ends. Asked to leave, the command is asked in turn."""
        patience, asked = self._trainer.epoch_limit, False
        since, gone = time.monotonic(), None
        while True:
            try:
                text = self._queue.get(timeout=LOOK)
            except queue.Empty:
                text = ""
            if text is None:
                return
            line = read_line(text) if text else None
            if line is not None:
                since = time.monotonic()
                yield line
            if not asked and leaving():
                self._stop(signal.SIGTERM)
                asked, patience, since = True, GRACE, time.monotonic()
            if patience is not None and time.monotonic() - since > patience:
                if asked:
                    self._stop(signal.SIGKILL)
                    return
                raise TrainingError(
                    f"longer than {patience:g} s for one epoch: {self._trainer} printed no loss{self.output()}"
                )
            if text or not self._exited():
                gone = None
            elif gone is None:
                gone = time.monotonic()
            elif time.monotonic() - gone > LINGER:  # it left a process behind that holds the pipe open
                return

    def end(self) -> int:
        """Wait until it has exited, and end whatever it started and left behind; gives its exit code."""
        limit = self._trainer.epoch_limit
        since = time.monotonic()
        while not self._exited():
            time.sleep(0.005)
            if limit is not None and time.monotonic() - since > max(limit, GRACE):
                raise TrainingError(f"{self._trainer} closed its output but does not exit")
        self._stop(signal.SIGKILL)
        code = self._process.wait()
        for reader in self._readers:
            reader.join(timeout=1.0)
        return code

    def _exited(self) -> bool:
        """Whether it has exited; where the system can tell without forgetting it, so that its number stays its own."""
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def output(self) -> str:
        """The end of its log, for a message."""
        return "; its last output: " + " | ".join(self._tail) if self._tail else "; it printed nothing else"

    def _stop(self, how: signal.Signals) -> None:
        """The command and whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, how)

    def _read_losses(self, pipe: IO[bytes]) -> None:
        for text in _texts(pipe):
            self._queue.put(text)
            if not text.lstrip().startswith("{"):
                self._log(text, sys.stdout)
        self._queue.put(None)

    def _read_log(self, pipe: IO[bytes]) -> None:
        for text in _texts(pipe):
            self._log(text, sys.stderr)

    def _log(self, text: str, to: IO[str]) -> None:
        if text.strip():
            self._tail.append(text.strip()[:300])
        with contextlib.suppress(OSError, ValueError):
            to.write(text if text.endswith("\n") else text + "\n")
            to.flush()


def _texts(pipe: IO[bytes]) -> Iterator[str]:
    with contextlib.suppress(OSError, ValueError):
        while chunk := pipe.readline(1 << 20):
            yield chunk.decode("utf-8", errors="replace")
