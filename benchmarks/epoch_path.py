"""The way of one epoch through the code: how many modules it touches, and how often it crosses from package to package.

python -m benchmarks.epoch_path              printed; -v lists modules and functions

A small search in a SQLite file is traced from one `report` to the next, for every epoch after the first ones. Modules
are counted if a function of theirs is called. A crossing is a pair of packages of which one calls the other, callbacks
included; `records`, `plain` and `errors` hold values and do not count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import freezethaw as ft

ROOT = Path(ft.__file__).parent
VALUES = ("records", "plain", "errors")
FIRST, EPOCHS = 12, 40


@dataclass
class Trace:
    """What was called between two losses."""

    modules: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    crossings: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """A profile function."""
        module = _module(frame)
        if event != "call" or module is None or frame.f_code.co_name == "<module>":
            return
        self.modules.add(module)
        self.functions.add(f"{module}.{frame.f_code.co_qualname}")
        caller, back = None, frame.f_back
        while back is not None and caller is None:
            caller, back = _module(back), back.f_back
        here = module.partition(".")[0]
        there = here if caller is None else caller.partition(".")[0]
        if here != there and here not in VALUES and there not in VALUES:
            self.crossings.add((there, here))


def _module(frame: FrameType) -> str | None:
    file = frame.f_code.co_filename
    return ".".join(Path(file).relative_to(ROOT).with_suffix("").parts) if file.startswith(str(ROOT)) else None


class Train:
    """A training that starts a new trace at each epoch."""

    traces: list[Trace] = []  # noqa: RUF012 - of all runs
    epochs = 0

    def __init__(self, config: dict[str, Any], seed: int) -> None:  # noqa: ARG002
        self.weight, self.rate = 1.0, config["rate"]

    def train_epoch(self) -> float:
        """One epoch."""
        Train.epochs += 1
        sys.setprofile(None)
        self.weight *= 1.0 - self.rate
        if FIRST < Train.epochs < EPOCHS:
            self.traces.append(Trace())
            sys.setprofile(self.traces[-1])
        return self.weight

    def save(self, folder: Path) -> None:
        """Save the weight."""
        (folder / "weight").write_text(repr(self.weight))

    def load(self, folder: Path) -> None:
        """Load the weight."""
        self.weight = float((folder / "weight").read_text())


def traces() -> list[Trace]:
    """One for each epoch of a small search."""
    space = ft.Space(rate=ft.Float(0.01, 0.5), units=ft.Int(2, 64, log=True))
    with tempfile.TemporaryDirectory() as folder:
        ft.tune(Train, space, 9, EPOCHS, store=f"{folder}/study.db", prices=ft.Prices(), progress=False)
    sys.setprofile(None)
    return Train.traces


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-v", "--verbose", action="store_true", help="list modules, functions and crossings")
    verbose = parser.parse_args().verbose
    found = traces()
    for name in ("modules", "functions", "crossings"):
        counts = [len(getattr(trace, name)) for trace in found]
        print(f"{name:10s} median {median(counts):.0f}, {min(counts)} to {max(counts)}")
        if verbose:
            print(*(f"  {one}" for one in sorted(map(str, set.union(*(getattr(t, name) for t in found))))), sep="\n")


if __name__ == "__main__":
    main()
