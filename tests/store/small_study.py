"""A small study: how the tests create one, make decisions and report losses; and a clock that is moved by hand."""

from __future__ import annotations

from typing import NamedTuple

import freezethaw as ft
from freezethaw.records import Checkpoint, Decision, DecisionDraft, Lease, Report
from freezethaw.store import MemoryStorage, Store, Watcher

SPACE = ft.Space(rate=ft.Float(1e-3, 1.0, log=True), units=ft.Int(1, 8))
CONFIG = {"rate": 0.1, "units": 4}


class Committed(NamedTuple):
    decision: Decision
    lease: Lease


class InMemory(dict):
    """In place of a URL: studies in this process, by name."""


def definition(**changes):
    made = {"space": SPACE.to_dict(), "max_epochs": 10, "direction": "minimize", "seed": 0, "budget": {"epochs": 100}}
    return made | changes


def opened(url, name="study", **changes):
    if not isinstance(url, InMemory):
        return Store(url).create_or_open(name, definition(**changes))
    if name in url:
        url[name].amend(definition(**changes))
    else:
        url[name] = MemoryStorage(name, definition(**changes))
    return url[name]


def decide(study, run=None, to_epoch=5, config=None, state=None, watcher=None, **draft):
    """Commit a decision as a worker would."""
    lease = study.acquire_decision_lease(watcher or Watcher())
    assert lease is not None
    wanted = DecisionDraft(run, config or CONFIG, to_epoch, draft.pop("reason", "because"), **draft)
    try:
        return Committed(*study.commit(lease, wanted, study.load().change, state))
    except ft.FreezeThawError:
        study.release(lease)
        raise


def take_over(study, watcher):
    found = study.take_over(watcher)
    return None if found is None else Committed(*found)


def report(first, *losses, **others):
    return Report(first, tuple(losses), **others)


def checkpoint(epoch, place="a", sha256="b", size=3):
    return Checkpoint(0, epoch, place, sha256, size)


def add_run(study, config, losses, seconds=(), diverged=False):
    [number] = study.add_runs([(config, Report(1, tuple(losses), tuple(seconds), diverged=diverged))])
    return number


class Clock:
    """A monotonic clock that is moved by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def tickets(url):
    """How many wait for the decision lease."""
    with Store(url)._database.reading() as connection:
        return connection.exec_driver_sql("SELECT count(*) FROM freezethaw_queue").scalar()
