"""Trainings, good and bad, that worker processes import by name."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import freezethaw as ft

SPACE = ft.Space(rate=ft.Float(0.0, 1.0))
GOOD, BAD = {"rate": 0.2}, {"rate": 0.8}
LOG = "FREEZETHAW_TEST_LOG"
GROUP = "FREEZETHAW_TEST_GROUP"


def descend(run):
    """A good one: it falls from 1 by the rate, and writes down what it trained."""
    weight = float((run.checkpoint / "weight").read_text()) if run.checkpoint else 1.0
    for epoch in run.epochs():
        weight *= 1 - 0.5 * run.config["rate"]
        if LOG in os.environ:
            with Path(os.environ[LOG]).open("a") as log:
                log.write(f"{run.number} {epoch}\n")
        run.report(weight, save=lambda folder, weight=weight: (folder / "weight").write_text(repr(weight)))


def killed_as_by_the_oom_killer(run):
    """Killed in its second epoch where the rate is high."""
    for epoch in run.epochs():
        if epoch == 2 and run.config["rate"] > 0.5:
            os.kill(os.getpid(), signal.SIGKILL)
        run.report(1.0 / epoch, save=lambda folder: (folder / "x").write_text("x"))


def greedy(run):
    """Where the rate is high it wants more memory than its control group may have; the kernel kills it."""
    for epoch in run.epochs():
        if run.config["rate"] > 0.5:
            (Path(os.environ[GROUP]) / "cgroup.procs").write_text(str(os.getpid()))
            bytearray(2_000_000_000)
        run.report(1.0 / epoch, save=lambda folder: (folder / "x").write_text("x"))


def crash(run):
    """A segmentation fault in its second epoch where the rate is high."""
    for epoch in run.epochs():
        if epoch == 2 and run.config["rate"] > 0.5:
            os.kill(os.getpid(), signal.SIGSEGV)
        run.report(1.0 / epoch, save=lambda folder: (folder / "x").write_text("x"))


def sleepy(run):
    """Takes too long over its second epoch where the rate is high."""
    for epoch in run.epochs():
        if epoch == 2 and run.config["rate"] > 0.5:
            time.sleep(1000)
        run.report(1.0 / epoch, save=lambda folder: (folder / "x").write_text("x"))


def deaf(run):
    """Never comes back, and lets no other thread of its process run."""
    for _ in run.epochs():
        re.match(r"(a+)+$", "a" * 60 + "b")


def hang(run):
    """It never comes back from its second epoch."""
    for epoch in run.epochs():
        if epoch == 2:
            Path(os.environ[LOG]).write_text(str(os.getpid()))
            time.sleep(1000)
        run.report(1.0 / epoch, save=lambda folder: (folder / "weight").write_text("1.0"))


def freeze_after_each_decision(session):
    """Let no decision be made when another one ends: its run is frozen, and `train_decision` raises AllPending."""

    def next_decision(fulfilled, lease, save):
        session.storage.release(lease)
        raise ft.AllPending("every decision ends with a freeze")

    session.next_decision = next_decision
