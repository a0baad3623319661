"""Does opening the page slow or lock a running study? Many writers to one store, without the page and with it open.

Writers record losses as in `benchmarks.store`. In every second round `freezethaw dashboard` serves the store in a
process of its own, and several clients do what an open page does: listen for changes, and fetch its records and figures
again and again.

    python -m benchmarks.page [--processes 64] [--clients 4] [--seconds 10] [--rounds 3]
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

import freezethaw as ft
from benchmarks.store import MAX_EPOCHS, SPACE, measure, ours

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
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
    given.output.write_text(json.dumps(sizes | {"machine": machine, "rounds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
