"""Does opening the page slow or lock a running study? Many writers to one store, without the page and with it open.

Writers record losses as in `benchmarks.store`. In every second round `freezethaw dashboard` serves the store in a
process of its own, and several clients do what an open page does: listen for changes, and fetch its records and figures
again and again.

    python -m benchmarks.page [--processes 64] [--clients 4] [--seconds 10] [--rounds 3]

How fast are the pages of a big study? With the system's Chromium (needs Playwright), and no writers:

    python -m benchmarks.page --big 10000 50
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

import freezethaw as ft
from benchmarks.store import MAX_EPOCHS, SPACE, measure, ours
from freezethaw.records import StudyState
from freezethaw.store import Store

RESULTS = Path(__file__).parent / "results" / "page.json"
PAUSE = 2.0  # seconds between two looks of a page that follows a study
LOOKS = (
    "/studies/bench", "/studies/bench/runs", "/api/studies/bench",
    "/api/studies/bench/figures/curves?forecasts=no", "/api/studies/bench/figures/curves",
    "/api/studies/bench/figures/best_loss", "/api/studies/bench/figures/timeline",
    "/api/studies/bench/figures/run_asymptotes",
)  # fmt: skip


@contextmanager
def page_of(url: str) -> Iterator[tuple[str, str]]:
    """Serve a store; gives the address and the token."""
    command = [sys.executable, "-m", "freezethaw", "dashboard", url, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = ""
            while "}" not in said:
                said += process.stdout.readline()
            link = urlsplit(json.loads(said)["url"])
            yield f"http://{link.netloc}", parse_qs(link.query)["token"][0]
        finally:
            process.terminate()


class Clients:
    """Pages that are open: they look again and again until they are closed."""

    def __init__(self, address: str, token: str, count: int) -> None:
        self.address, self.token = address, token
        self.answers: list[float] = []
        self.failures: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._visit, daemon=True) for _ in range(count)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _visit(self) -> None:
        with self._asked("/api/studies/bench/stream"):  # an open page listens all the time
            while not self._over.is_set():
                for path in LOOKS:
                    self._look(path)
                self._over.wait(PAUSE)

    def _look(self, path: str) -> None:
        begin = time.perf_counter()
        try:
            with self._asked(path) as answer:
                answer.read()
        except OSError as error:
            if not self._over.is_set():
                self.failures.append(f"{path}: {error}")
        else:
            self.answers.append(time.perf_counter() - begin)

    def _asked(self, path: str) -> Any:
        request = urllib.request.Request(self.address + path, headers={"Authorization": f"Bearer {self.token}"})
        return urllib.request.urlopen(request, timeout=60)


def one_round(url: str, processes: int, seconds: float, clients: int) -> dict[str, Any]:
    """What the writers managed, and how the page answered where it was open."""
    ft.Study(SPACE, MAX_EPOCHS, name="bench", store=url).close()
    if not clients:
        return {"page": "closed"} | measure(ours, url, processes, seconds)
    with page_of(url) as (address, token), Clients(address, token, clients) as looking:
        found = measure(ours, url, processes, seconds)
    answers = {
        "page_answers": len(looking.answers),
        "page_median": statistics.median(looking.answers or [0.0]),
        "page_worst": max(looking.answers, default=0.0),
        "page_failures": looking.failures,
    }
    return {"page": "open"} | found | answers


def fill(url: str, runs: int, epochs: int) -> None:
    """A study with many long curves; no model is needed to make them."""
    rng, space = np.random.default_rng(0), ft.Space(rate=ft.Float(1e-4, 1.0, log=True), width=ft.Int(1, 8))
    study, found, at = ft.Study(space, epochs, name="big"), [], np.arange(1, epochs + 1)
    for number in range(1, runs + 1):
        config = space.sample(rng)
        end = 0.1 + 0.05 * (np.log10(config["rate"]) + 2.0) ** 2
        losses = end + (2.0 - end) * np.exp(-0.1 * at) + 0.003 * rng.standard_normal(epochs)
        length = epochs if number % 4 else epochs - 1
        state = "finished" if length == epochs else "frozen"
        found.append(ft.Run(number, config, tuple(losses[:length].tolist()), (2.0,) * length, state))
    with Store(url) as store:
        store.save("big", StudyState(0, 1, study.definition.to_dict(), tuple(found), decisions=runs))


def big_study(runs: int, epochs: int, repeats: int = 3) -> dict[str, Any]:
    """Seconds until the pages of a big study are there: the first request reads the store, the later ones only changes.

    Memory is what the process of the page holds in its JavaScript heap, with all figures in view.
    """
    from docs.screenshots import browser

    found: dict[str, Any] = {"runs": runs, "epochs": epochs}
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/big.db"
        fill(url, runs, epochs)
        with page_of(url) as (address, token), browser() as opened:
            page = opened.new_page(viewport={"width": 1400, "height": 900})

            def load(path: str, there: str) -> tuple[float, float]:
                began = time.perf_counter()
                page.goto(f"{address}{path}{'&' if '?' in path else '?'}token={token}", wait_until="commit")
                page.wait_for_selector(there, timeout=120_000)
                seconds = time.perf_counter() - began
                page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length")
                paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
                return seconds, paint / 1000

            found["cold"], _ = load("/studies/big", "h1")
            for name, path, there in (
                ("overview", "/studies/big", ".cards"),
                ("table", "/studies/big/runs", "table.runs tbody tr"),
                ("table_sorted", "/studies/big/runs?sort=config.rate", "table.runs tbody tr"),
                ("table_filtered", "/studies/big/runs?text=run+7&least.config.width=3", "table.runs tbody tr"),
                ("curves_without_forecasts", "/studies/big/curves", "#figure-curves[data-drawn]"),
            ):
                times = [load(path, there) for _ in range(repeats)]
                found[name] = statistics.median(seconds for seconds, _ in times)
                found[f"{name}_first_paint"] = statistics.median(paint for _, paint in times)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable")
            metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
            found["javascript_heap_megabytes"] = metrics["JSHeapUsedSize"] / 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--big", type=int, nargs=2, metavar=("RUNS", "EPOCHS"))
    given = parser.parse_args()
    if given.big:
        found = big_study(*given.big)
        kept = json.loads(given.output.read_text()) if given.output.exists() else {}
        given.output.write_text(json.dumps(kept | {"big": found}, indent=1) + "\n")
        print(json.dumps(found, indent=1))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(given.rounds):
            for clients in (0, given.clients):
                url = f"sqlite:///{folder}/{turn}-{clients}.db"
                row = {"round": turn} | one_round(url, given.processes, given.seconds, clients)
                rows.append(row)
                print(
                    f"page {row['page']:<6}  {row['commits_per_second']:>6.0f} commits/s   wait: worst "
                    f"{row['worst_wait']:.2f} s, median {1000 * row['median_wait']:.0f} ms   failed "
                    f"{len(row['failures'])}"
                    + (f"   {row['page_answers']} answers, worst {row['page_worst']:.1f} s" if clients else ""),
                    flush=True,
                )
    machine = {"python": platform.python_version(), "cores": os.cpu_count()}
    sizes = {key: getattr(given, key) for key in ("processes", "clients", "seconds")}
    kept = json.loads(given.output.read_text()) if given.output.exists() else {}
    big = {"big": kept["big"]} if "big" in kept else {}
    given.output.write_text(json.dumps(big | sizes | {"machine": machine, "rounds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
