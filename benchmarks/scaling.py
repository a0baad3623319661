"""Rates that docs/scaling.md reckons with, where no other benchmark has them: large stores, and checkpoints.

python -m benchmarks.scaling                    a minute; benchmarks/results/scaling.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import freezethaw as ft
from freezethaw.records import Report, StudyState
from freezethaw.runtime.checkpoint_storage import LocalCheckpointStorage
from freezethaw.store import Store

RESULTS = Path(__file__).parent / "results" / "scaling.json"
SPACE = ft.Space(rate=ft.Float(0.0, 1.0), units=ft.Int(1, 100))
EPOCHS = 50
SIZES = (1_000, 10_000)  # runs
MEGABYTES = (1, 100)


def opened(runs: int) -> dict[str, Any]:
    """Seconds to load a study of so many runs, and to look again after one more."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/study.db"
        losses, seconds = tuple(1.0 / e for e in range(1, EPOCHS + 1)), (1.0,) * EPOCHS
        known = tuple(ft.Run(n, {"rate": n / runs, "units": 10}, losses, seconds) for n in range(1, runs + 1))
        with Store(url) as store:
            definition = ft.Study(SPACE, EPOCHS, name="large").definition.to_dict()
            store.save("large", StudyState(0, 1, definition, known, decisions=runs))
        with Store(url) as store:
            study = store.open("large")
            begin = time.perf_counter()
            found = study.load()
            loaded = time.perf_counter() - begin
            study.add_runs([({"rate": 0.5, "units": 20}, Report(1, (1.0,)))])
            begin = time.perf_counter()
            study.load(found)
            again = time.perf_counter() - begin
    return {"runs": runs, "epochs": EPOCHS, "load_seconds": round(loaded, 2), "refresh_ms": round(1000 * again, 1)}


def saved(megabytes: int) -> dict[str, Any]:
    """Seconds to save a checkpoint of this size durably, and to fetch a verified copy."""
    data = os.urandom(megabytes * 1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        place, times = LocalCheckpointStorage(Path(folder)), []
        for number in range(5):
            begin = time.perf_counter()
            place.write(f"run/{number}", lambda into: (into / "weights").write_bytes(data))
            middle = time.perf_counter()
            copy = Path(folder) / f"copy-{number}"
            copy.mkdir()
            place.fetch(f"run/{number}", copy)
            times.append((middle - begin, time.perf_counter() - middle))
    save, load = (sorted(column)[2] for column in zip(*times, strict=True))
    return {"megabytes": megabytes, "save_seconds": round(save, 4), "load_seconds": round(load, 4)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    found: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count()}
    found |= {"commit": commit.stdout.strip(), "load": round(os.getloadavg()[0], 1)}
    found |= {"store": [opened(runs) for runs in SIZES], "checkpoints": [saved(size) for size in MEGABYTES]}
    print(json.dumps(found, indent=1))
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
