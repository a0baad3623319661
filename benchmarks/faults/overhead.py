"""What the runtime costs besides training and deciding, and what a second worker brings."""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import freezethaw as ft
from freezethaw.records import StudyState
from freezethaw.runtime.checkpoints import CheckpointManager
from freezethaw.store import Store
from freezethaw.store.sql_storage import SqlStorage
from freezethaw.study import Study, StudySession, session
from freezethaw.trainers.protocol import TrainingRun

SPACE = ft.Space(rate=ft.Float(0.02, 0.9, log=True), floor=ft.Float(0.0, 1.0))
OUT = "FREEZETHAW_OVERHEAD"  # environment: a file for the figures of a worker
TIMES = "FREEZETHAW_TIMES"  # environment: a file for the moments at which epochs ended
EPOCH = 0.001
CPU = 0.5  # seconds of an epoch that keeps a core busy

_spent: dict[str, float] = defaultdict(float)
_first: list[float] = []


def _timed(owner: type, name: str, label: str) -> None:
    plain: Callable[..., Any] = getattr(owner, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        _first[:] = _first or [begin]
        try:
            return plain(*args, **kwargs)
        finally:
            _spent[label] += time.perf_counter() - begin

    setattr(owner, name, timed)


def _measure_all() -> None:
    """In the process that works: time spent in decisions, and in the parts of the rest."""
    for owner, name, label in (
        (StudySession, "ask", "ask"),
        (StudySession, "next_decision", "next decision"),
        (session, "decide", "of which model and policy"),
        (SqlStorage, "record", "record"),
        (CheckpointManager, "save", "save"),
        (CheckpointManager, "clean", "clean"),
    ):
        _timed(owner, name, label)


def _write_down() -> None:
    Path(os.environ[OUT]).write_text(json.dumps(_spent))


if os.environ.get(OUT):
    _measure_all()
    atexit.register(_write_down)


def _save(weight: float, folder: Path) -> None:
    (folder / "weight").write_text(repr(weight))


def train(run: TrainingRun) -> None:
    """One millisecond an epoch, and a small checkpoint."""
    weight = float((run.checkpoint / "weight").read_text()) if run.checkpoint else 1.0
    for _ in run.epochs():
        begin = time.perf_counter()
        time.sleep(EPOCH)
        weight *= 1.0 - run.config["rate"]
        _spent["training"] += time.perf_counter() - begin
        run.report(run.config["floor"] + weight, save=partial(_save, weight))
        _spent["epochs"] += 1
        _spent["wall"] = time.perf_counter() - _first[0]


def inline(epochs: int = 500) -> dict[str, Any]:
    """One worker in this process, no store given. Run it in a process of its own: it patches what it measures."""
    with tempfile.TemporaryDirectory() as folder, _writing_to(Path(folder) / "out.json") as out:
        _measure_all()
        ft.tune(train, SPACE, max_epochs=50, budget=epochs)
        _write_down()
        return _broken_down(out)


def process(epochs: int = 500) -> dict[str, Any]:
    """One worker process and SQLite."""
    with tempfile.TemporaryDirectory() as folder, _writing_to(Path(folder) / "out.json") as out:
        store = f"sqlite:///{folder}/study.db"
        ft.tune(train, SPACE, max_epochs=50, budget=epochs, store=store, engine="processes")
        return _broken_down(out)


@contextlib.contextmanager
def _writing_to(file: Path, name: str = OUT) -> Iterator[Path]:
    os.environ[name] = str(file)
    try:
        yield file
    finally:
        del os.environ[name]


def _broken_down(out: Path) -> dict[str, Any]:
    """Milliseconds an epoch."""
    spent = json.loads(out.read_text())
    epochs = spent.pop("epochs")
    parts = {name: round(1000.0 * value / epochs, 2) for name, value in spent.items()}
    decision = parts["ask"] + parts["next decision"]
    besides = round(parts["wall"] - parts["training"] - decision, 2)
    return {"epochs": int(epochs), "besides_the_decision_ms": besides, "decision_ms": round(decision, 2), "ms": parts}


def busy(run: TrainingRun) -> None:
    """An epoch of half a second of CPU."""
    weight = float((run.checkpoint / "weight").read_text()) if run.checkpoint else 1.0
    for epoch in run.epochs():
        burn(CPU)
        weight *= 1.0 - run.config["rate"]
        with Path(os.environ[TIMES]).open("a") as log:
            log.write(f"{time.monotonic()} {run.number} {epoch}\n")
        run.report(run.config["floor"] + weight, save=partial(_save, weight))


def burn(seconds: float) -> None:
    """Keep a core busy."""
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        sum(range(1000))


def two_workers(epochs: int = 60) -> dict[str, Any]:
    """Epochs per hour with one worker process and with two; and of bare busy loops, the most that is to be had."""
    rates = {}
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder, _writing_to(Path(folder) / "out.txt", TIMES) as out:
            store = f"sqlite:///{folder}/study.db"
            ft.tune(busy, SPACE, max_epochs=20, budget=epochs, store=store, workers=workers, engine="processes")
            times = sorted(float(line.split()[0]) for line in out.read_text().splitlines())
        steady = times[2:]  # while all workers are there
        rates[workers] = 3600.0 * (len(steady) - 1) / (steady[-1] - steady[0])
    bare = {number: 3600.0 / (_bare(number) / number / 10) for number in (1, 2)}
    return {
        "epochs": epochs,
        "per_hour": {str(k): round(v) for k, v in rates.items()},
        "ratio": round(rates[2] / rates[1], 2),
        "bare_loops_per_hour": {str(k): round(v) for k, v in bare.items()},
        "ratio_of_bare_loops": round(bare[2] / bare[1], 2),
    }


def _bare(number: int, epochs: int = 10) -> float:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=burn, args=(CPU * epochs,)) for _ in range(number)]
    begin = time.monotonic()
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    return time.monotonic() - begin


def large(runs: int = 1000, epochs: int = 100) -> dict[str, Any]:
    """Open a study of so many runs and take the next decision."""
    rng = np.random.default_rng(0)
    known = []
    for number in range(1, runs + 1):
        config = {"rate": float(np.exp(rng.uniform(np.log(0.02), np.log(0.9)))), "floor": float(rng.uniform())}
        fall = (1.0 - config["rate"]) ** np.arange(1, epochs + 1)
        losses = tuple(float(x) for x in config["floor"] + fall + 0.01 * rng.standard_normal(epochs))
        known.append(ft.Run(number, config, losses, (1.0,) * epochs))
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/study.db"
        definition = Study(SPACE, 2 * epochs, name="large").definition.to_dict()
        with Store(store) as made:
            made.save("large", StudyState(0, 1, definition, tuple(known), decisions=runs))
        seconds = {}
        for which in ("first", "next"):  # before the first there are no samples in the store
            begin = time.perf_counter()
            study = Study.open(store, "large")
            opened = time.perf_counter()
            study.cancel(study.ask())
            seconds[which] = {
                "open": round(opened - begin, 2),
                "open_and_decide": round(time.perf_counter() - begin, 2),
            }
            study.close()
    return {"runs": runs, "epochs": epochs, "seconds": seconds}
