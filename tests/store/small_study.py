"""A small study in a store: how the tests make one, take decisions in it and report losses; and a clock to move."""

from __future__ import annotations

import freezethaw as ft
from freezethaw.store import Proposal, Report, Store, Watcher

SPACE = ft.Space(rate=ft.Float(1e-3, 1.0, log=True), units=ft.Int(1, 8))
CONFIG = {"rate": 0.1, "units": 4}


def definition(**changes):
    made = {"space": SPACE.to_dict(), "max_epochs": 10, "direction": "minimize", "seed": 0, "budget": {"epochs": 100}}
    return made | changes


def opened(url, name="study", **changes):
    return Store(url).create_or_open(name, definition(**changes))


def decide(study, run=None, to_epoch=5, config=None, state=None, watcher=None, **proposal):
    """Commit a decision as a worker would."""
    permit = study.permission(watcher or Watcher())
    assert permit is not None
    wanted = Proposal(run, config or CONFIG, to_epoch, proposal.pop("reason", "because"), **proposal)
    try:
        return study.commit(permit, wanted, study.load().change, state)
    except ft.FreezeThawError:
        study.release(permit)
        raise


def report(first, *losses, **others):
    return Report(first, tuple(losses), **others)


class Clock:
    """A monotonic clock that is moved by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now
