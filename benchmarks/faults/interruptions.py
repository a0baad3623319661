"""Interruptions of a real `ft.tune` with two worker processes on SQLite, and what must hold after them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.faults import tuning
from benchmarks.faults.audit import Broken
from freezethaw.errors import FreezeThawError
from freezethaw.store import Store
from freezethaw.study import Study, session_of

PATIENCE = 240.0  # seconds without an end, after the last interruption
ORDINARY = {"lease taken over", "run taken over", "worker died", "study finished", "definition changed"}


@dataclass
class Target:
    """One study whose processes are killed."""

    folder: Path
    budget: int
    every: int
    seed: int
    seconds: float | str
    arguments: tuple[str, ...] = ()  # more of the command's
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    said: str = ""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)
    watched: list[int] = field(default_factory=list)  # the first decisions after an interruption

    @property
    def url(self) -> str:
        return self.environment.get(tuning.STORE) or f"sqlite:///{self.folder / 'study.db'}"

    def start(self) -> subprocess.Popen[str]:
        """The command of the user, the same each time."""
        command = [sys.executable, "-m", "benchmarks.faults.tuning", str(self.folder)]
        command += ["--budget", str(self.budget), "--every", str(self.every), "--seed", str(self.seed)]
        command += self.arguments
        environment = os.environ | {tuning.FOLDER: str(self.folder), tuning.SECONDS: str(self.seconds)}
        environment |= self.environment
        with (self.folder / "errors.txt").open("a") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        return self.process

    def children(self) -> list[str]:
        """Processes that the search has started; none once it has ended."""
        if self.process is None or self.process.poll() is not None:
            return []
        with contextlib.suppress(OSError):
            pid = self.process.pid
            return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return []

    def workers(self) -> list[int]:
        """Worker processes that have had a loss acknowledged.

        Before that they are left alone: three deaths in a row, with no epoch and no checkpoint between, are the run's
        own fault to the runtime, and so they would be here.
        """
        return [int(child) for child in self.children() if "recorded" in self._log(child)]

    def _log(self, process: str) -> str:
        file = self.folder / f"{process}.log"
        return file.read_text() if file.exists() else ""

    def decisions(self) -> int:
        """How many were taken so far."""
        with contextlib.suppress(FreezeThawError), Store(self.url, create=False) as store:
            return store.open(tuning.NAME).load().decisions
        return 0

    def watch(self) -> None:
        """The next decision is to be replayed in the end."""
        self.watched.append(self.decisions() + 1)

    def finish(self) -> None:
        """Wait for the end of the command."""
        process = self.process or self.start()
        try:
            longest = float(str(self.seconds).split()[-1])
            self.said, _ = process.communicate(timeout=PATIENCE + self.budget * longest)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Broken(f"the study does not end: {self.errors()}") from None
        if process.returncode != 0:
            raise Broken(f"tune ended with {process.returncode}: {self.errors()}")

    def errors(self) -> str:
        return (self.folder / "errors.txt").read_text()[-2000:]


@contextlib.contextmanager
def target(
    budget: int,
    every: int,
    seed: int,
    seconds: float | str,
    arguments: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Target]:
    """A new study in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="freezethaw-faults-") as folder:
        found = Target(Path(folder), budget, every, seed, seconds, arguments, dict(environment or {}))
        try:
            yield found
        finally:
            if found.process is not None and found.process.poll() is None:
                found.process.kill()
                found.process.wait()


Interrupt = Callable[[Target, random.Random], bool]  # returns whether it interrupted anything


def repeat(
    interrupt: Interrupt,
    count: int,
    again: int,
    seed: int = 0,
    budget: int = 150,
    every: int = 3,
    seconds: float = 0.03,
    replay: bool = True,
    new_environment: Callable[[], Mapping[str, str]] = dict,
) -> dict[str, Any]:
    """Interrupt `count` times, study after study. `again`: epochs that may be trained again for each interruption."""
    rng, done, reports = random.Random(seed), 0, []
    while done < count:
        with target(budget, every, seed + len(reports), seconds, environment=new_environment()) as study:
            here = 0
            study.start()
            while done < count and (study.process is not None and study.process.poll() is None):
                if interrupt(study, rng):
                    done, here = done + 1, here + 1
            study.finish()
            reports.append(audit(study, here * again, replay) | {"interruptions": here})
            print(f"  {done}/{count} {reports[-1]}", flush=True)
    total: dict[str, Any] = {key: sum(report[key] for report in reports) for key in reports[0]}
    return {"studies": len(reports), "seed": seed, "every": every, "epoch_seconds": seconds} | total


def kill_parent(latest: float = 6.0) -> Interrupt:
    """Kill -9 of the process that the user started, `latest` seconds after its start at the latest; then again."""

    def interrupt(study: Target, rng: random.Random) -> bool:
        time.sleep(rng.uniform(0.5, latest))
        assert study.process is not None
        if study.process.poll() is not None:
            return False
        study.process.kill()
        study.process.communicate()
        study.watch()
        study.start()
        return True

    return interrupt


def terminate_driver(study: Target, rng: random.Random) -> bool:
    """SIGTERM to the process that the user started, in the middle of an epoch; then the same command again."""
    assert study.process is not None
    deadline = time.monotonic() + PATIENCE  # a signal before the search has begun ends Python, not the search
    while not study.children() and study.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(rng.uniform(0.5, 1.5) * float(study.seconds) + rng.uniform(0.0, 2.0))
    if study.process.poll() is not None:
        return False
    study.process.terminate()
    study.process.communicate(timeout=PATIENCE + 2 * float(study.seconds))
    _require(study.process.returncode == 3, f"tune ended with {study.process.returncode}: {study.errors()}")
    study.start()
    return True


def signal_worker(number: signal.Signals) -> Interrupt:
    """Send a signal to a worker at any moment of its work."""

    def interrupt(study: Target, rng: random.Random) -> bool:
        time.sleep(rng.uniform(0.1, 1.5))
        processes = study.workers()
        if not processes:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(processes), number)
            study.watch()
            return True
        return False

    return interrupt


def audit(study: Target, allowed: int, replay: bool = True) -> dict[str, Any]:
    """Everything that the runtime promises; returns counts, raises Broken."""
    trained, recorded = _logs(study.folder)
    opened = Study.open(study.url, tuning.NAME)
    try:
        runs, events = opened.runs, session_of(opened).storage.events(most=1_000_000)
        for run in runs:
            expected = tuning.curve(run.config, session_of(opened).training_seed(run.number), run.epoch)
            _require(run.losses == expected, f"run {run.number} is not what it would be uninterrupted")
            said = [event.text for event in events if event.run == run.number]
            _require(run.state in ("frozen", "finished"), f"run {run.number} is {run.state}: {said}")
        _require(opened.pending == (), f"decisions are pending still: {opened.pending}")
    finally:
        opened.close()
    curves = {run.number: run.losses for run in runs}
    for number, epoch, loss in recorded:
        kept = curves[number][epoch - 1] if epoch <= len(curves[number]) else None
        _require(kept == loss, f"run {number} epoch {epoch} was acknowledged as {loss}; the store has {kept}")
    epochs = sum(map(len, curves.values()))
    _require(epochs == study.budget, f"{epochs} epochs are recorded, not {study.budget}")
    _rows(study.url, epochs)
    said = json.loads(study.said.splitlines()[-1])
    _require(said["reason"] == f"budget spent: {study.budget} epochs", f"the study ended because: {said['reason']}")
    again = len(trained) - len({(number, epoch) for number, epoch, _ in trained})
    _require(again <= allowed, f"{again} epochs were trained again; {allowed} were allowed")
    kinds = Counter(event.kind for event in events)
    _require(not set(kinds) - ORDINARY, f"unexpected events: {kinds}")
    return {
        "epochs": epochs,
        "acknowledged": len(recorded),
        "trained_again": again,
        "allowed_again": allowed,
        "taken_over": kinds["run taken over"],
        "decisions": study.decisions(),
        "replayed": _replay(study, replay),
    }


def _logs(folder: Path) -> tuple[list[tuple[int, int, float]], list[tuple[int, int, float]]]:
    found: dict[str, list[tuple[int, int, float]]] = {"trained": [], "recorded": []}
    for path in folder.glob("*.log"):
        for line in path.read_text().splitlines():
            what, run, epoch, loss = line.split()
            found[what].append((int(run), int(epoch), float.fromhex(loss)))
    return found["trained"], found["recorded"]


def _rows(url: str, expected: int) -> None:
    """Rows as they are: none twice, no gap."""
    query = "SELECT run, count(*), count(DISTINCT epoch), min(epoch), max(epoch) FROM freezethaw_epochs GROUP BY run"
    with Store(url) as store, store._database.reading() as connection:
        rows = connection.exec_driver_sql(query).all()
    _require(sum(row[1] for row in rows) == expected, "the rows of epochs are not as many as the epochs")
    for run, count, distinct, first, last in rows:
        _require(count == distinct == last and first == 1, f"run {run}: {count} rows, epochs from {first} to {last}")


def _replay(study: Target, everything: bool) -> int:
    """The decisions after interruptions, or all, equal those that a replay takes."""
    last = study.decisions()
    numbers = range(1, last + 1) if everything else sorted({n for n in study.watched if n <= last})
    opened = Study.open(study.url, tuning.NAME)
    try:
        for number in numbers:
            session = session_of(opened)
            kept, chosen = session.storage.decision(number).decision, session.replay(number)
            same = chosen.run == (None if kept.kind == "start" and chosen.run is None else kept.run)
            same = same and (dict(chosen.config), chosen.to_epoch) == (dict(kept.config), kept.to_epoch)
            _require(same and chosen.reason == kept.reason, f"decision {number} was {kept}; a replay takes {chosen}")
    finally:
        opened.close()
    return len(numbers)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Broken(message)
