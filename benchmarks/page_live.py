"""The delay of an open page behind the commits of a search, and how much one open page slows the search down.

A study of 500 runs is copied for each round and continued by `ft.tune` with one worker, whose epochs are a fixed amount
of computation. In every second round Chromium (needs Playwright) shows a section of the study on the same machine. The
delay of a commit is the time until the records on the page are of that commit or a later one; so for the losses in the
first figure, and for its forecasts.

    python -m benchmarks.page_live [--runs 500] [--seconds 60] [--rounds 3] [--section ""] [--epoch 0.5]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

import freezethaw as ft
from benchmarks.page import page_of
from benchmarks.records import commit
from freezethaw.store import Store

RESULTS = Path(__file__).parent / "results" / "page_live.json"
SPACE = ft.Space(rate=ft.Float(1e-4, 1.0, log=True), width=ft.Int(1, 8), momentum=ft.Float(0.0, 0.99))
MAX_EPOCHS = 30
POLL = 0.01  # seconds between two looks at the change counter
BARS = {"delay": 2.0, "slowdown": 0.05}
WATCH = """() => {
    window.seen = {records: [], curves: [], forecasts: []};
    const note = () => {
        const [curves, forecasts] = document.getElementById('figure-curves').dataset.version.split('.').map(Number);
        const change = Number(document.querySelector('.asof time').dataset.change);
        for (const [name, at] of Object.entries({records: change, curves, forecasts: forecasts ?? 0})) {
            const list = window.seen[name];
            if (!list.length || list.at(-1)[1] !== at) list.push([Date.now() / 1000, at]);
        }
    };
    const observed = {subtree: true, childList: true, attributes: true, attributeFilter: ['data-version']};
    new MutationObserver(note).observe(document.getElementById('live'), observed);
}"""


def loss(config: Any, epoch: int) -> float:
    end = 0.1 + 0.05 * (np.log10(config["rate"]) + 2.0) ** 2 + 0.01 * config["width"]
    return float(end + (2.0 - end) * np.exp(-0.15 * epoch))


def fill(url: str, runs: int) -> None:
    """A study with the curves of many runs, most of them short."""
    rng = np.random.default_rng(0)
    study = ft.Study(SPACE, MAX_EPOCHS, name="live", store=url, budget=1_000_000)
    for _ in range(runs):
        config, length = SPACE.sample(rng), int(min(rng.geometric(0.2), MAX_EPOCHS))
        study.add_run(config, [loss(config, e) + 0.005 * rng.standard_normal() for e in range(1, length + 1)])
    study.close()


def compute(units: int) -> None:
    """A fixed amount of computation in one thread."""
    x = np.random.default_rng(0).standard_normal((120, 120))
    for _ in range(units):
        x = np.tanh(x @ x / 120)


def units_of(seconds: float) -> int:
    """How many units take this long on this machine."""
    compute(50)
    began = time.perf_counter()
    compute(400)
    return max(1, int(seconds * 400 / (time.perf_counter() - began)))


def train(url: str, seconds: float, units: int) -> None:
    """Continue the study for some seconds."""

    def training(run: ft.TrainingRun) -> None:
        for epoch in run.epochs():
            compute(units)
            run.report(loss(run.config, epoch), save=lambda folder: (folder / "x").write_text("x"))

    result = ft.tune(training, SPACE, MAX_EPOCHS, 1_000_000, name="live", store=url, timeout=seconds, progress=False)
    print(json.dumps({"epochs": result.epochs}))


class Commits(threading.Thread):
    """The time of each value of the change counter."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.over, self.times = url, threading.Event(), list[tuple[float, int]]()

    def run(self) -> None:
        with Store(self.url) as store:
            stored = store.open("live")
            while not self.over.wait(POLL):
                change = stored.change()
                if not self.times or change != self.times[-1][1]:
                    self.times.append((time.time(), change))


def delays(commits: list[tuple[float, int]], shown: list[tuple[float, int]]) -> list[float]:
    """For each commit, how much later the page showed it or a later one; those after the last update are left out."""
    found, place = [], 0
    for at, change in commits:
        while place < len(shown) and shown[place][1] < change:
            place += 1
        if place < len(shown):
            found.append(max(shown[place][0] - at, 0.0))
    return found


def processor_seconds() -> dict[str, float]:
    """Processor time of the server and of the browser, which are descendants of this process (Linux only)."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
            kind = "training" if b"--train" in command else "server" if b"dashboard" in command else "browser"
            found[int(entry.name)] = int(fields[1]), kind, int(fields[11]) + int(fields[12])
    ours, before = {os.getpid()}, 0
    while len(ours) > before:
        before = len(ours)
        ours |= {process for process, (parent, _, _) in found.items() if parent in ours}
    spent = {"server": 0.0, "browser": 0.0, "training": 0.0}
    for process in ours - {os.getpid()}:
        spent[found[process][1]] += found[process][2] / os.sysconf("SC_CLK_TCK")
    return spent


def one_round(original: Path, section: str | None, seconds: float, units: int) -> dict[str, Any]:
    """Continue a copy of the study, with a page open on `section` unless it is None."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = folder / "live.db"
        shutil.copy(original, file)
        url = f"sqlite:///{file}"
        page = None
        if section is not None:
            from docs.screenshots import browser

            address, token = stack.enter_context(page_of(url))
            page = stack.enter_context(browser()).new_page(viewport={"width": 1400, "height": 900})
            page.goto(f"{address}/studies/live/{section}".rstrip("/") + f"?token={token}")
            page.wait_for_selector("[data-figure][data-drawn]", timeout=120_000)
            page.evaluate(WATCH)
        commits = Commits(url)
        commits.start()
        before = processor_seconds()
        command = [sys.executable, "-m", "benchmarks.page_live", "--train", url, "--seconds", str(seconds)]
        with subprocess.Popen([*command, "--units", str(units)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            row: dict[str, Any] = {"page": section is not None} | json.loads(process.stdout.read().splitlines()[-1])
        after = processor_seconds()
        row |= {f"{name}_share": (after[name] - before[name]) / seconds for name in ("server", "browser")}
        if page is not None:
            page.wait_for_timeout(5000)
            shown = page.evaluate("window.seen")
        commits.over.set()
        commits.join()
        if page is not None:
            for name, seen in shown.items():
                found = delays(commits.times[1:], seen)
                if found:
                    row |= {f"{name}_median": statistics.median(found), f"{name}_worst": max(found)}
                    row[f"{name}_p95"] = float(np.quantile(found, 0.95))
        return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--section", default="")
    parser.add_argument("--epoch", type=float, default=0.5, help="seconds of computation")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--units", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(given.train, given.seconds, given.units)
        return
    rows = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "live.db"
        fill(f"sqlite:///{original}", given.runs)
        units = units_of(given.epoch)
        for number in range(given.rounds):
            for section in (None, given.section):
                rows.append({"round": number} | one_round(original, section, given.seconds, units))
                print(json.dumps(rows[-1]), flush=True)
    epochs = {open_: [row["epochs"] for row in rows if row["page"] is open_] for open_ in (False, True)}
    ratios = [watched / alone for alone, watched in zip(epochs[False], epochs[True], strict=True)]
    open_rounds = [row for row in rows if row["page"]]
    shares = {name: statistics.median(row[name] for row in open_rounds) for name in ("server_share", "browser_share")}
    summary = shares | {
        "slowdown": 1.0 - statistics.median(ratios),
        "slowdown_of_rounds": [1.0 - ratio for ratio in ratios],
    }
    for name in open_rounds[0]:
        if name.endswith(("_median", "_p95", "_worst")):
            of_rounds = [row[name] for row in open_rounds if name in row]
            summary[name] = max(of_rounds) if name.endswith("_worst") else statistics.median(of_rounds)
    found = {
        "commit": commit(), "runs": given.runs, "seconds": given.seconds, "epoch": given.epoch,
        "section": given.section or "overview", "bars": BARS,
        "machine": {"python": platform.python_version(), "cores": os.cpu_count()},
        "summary": summary, "rounds": rows,
    }  # fmt: skip
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
