"""See the package."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import servers
from benchmarks.faults import scenarios, worker

RESULTS = Path(__file__).parents[1] / "results" / "faults.json"


def main() -> int:
    if "--worker" in sys.argv[1:2]:
        return worker.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults")
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgresql"])
    parser.add_argument("--only", nargs="+", help="scenarios; the results of others are kept")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    found: dict[str, object] = {"python": platform.python_version(), "cores": os.cpu_count(), "share": given.share}
    if given.only and given.output.exists():
        found = json.loads(given.output.read_text()) | found
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for database in given.databases:
            if database == "sqlite":
                numbers = itertools.count()
                new_url = lambda: f"sqlite:///{folder}/{next(numbers)}.db"  # noqa: B023, E731
            else:
                server = stack.enter_context(servers.postgresql())
                new_url = lambda: servers.fresh_database(server)  # noqa: B023, E731
            plan = {
                "kills": lambda: scenarios.kills(new_url, max(1, round(200 * given.share)), seed=given.seed),  # noqa: B023
                "every_write": lambda: scenarios.every_write(new_url, max(1, round(1 / given.share))),  # noqa: B023
                "stopped": lambda: scenarios.stopped(new_url, max(1, round(10 * given.share)), given.seed),  # noqa: B023
                "moved_clock": lambda: scenarios.moved_clock(new_url),  # noqa: B023
            }
            for name, scenario in plan.items():
                if given.only and name not in given.only:
                    continue
                begin = time.perf_counter()
                result = scenario()
                found[f"{database}/{name}"] = result | {"seconds": round(time.perf_counter() - begin, 1)}
                print(f"{database:<11} {name:<12} {found[f'{database}/{name}']}", flush=True)
                given.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
