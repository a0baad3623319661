"""Fixed seeds in the suite: property tests draw the same examples each time."""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings

import pytest
from benchmarks import servers
from hypothesis import settings

# asserts in shared modules explain themselves too; said here, before any test module imports them
PARTS = (
    "contract",
    *(f"contract_of_{part}" for part in ("databases", "studies", "losses", "leases", "history")),
    "small_study",
)
pytest.register_assert_rewrite(*(f"tests.store.{part}" for part in PARTS))

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and so would the processes that tests send it to

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def postgresql_server():
    """A real server. In CI a missing one is a failure; on a laptop its tests are skipped."""
    if servers.binaries() is None and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip("no PostgreSQL server on this machine: apt-get install postgresql")
    with servers.postgresql(fsync=False) as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
def nothing_left_of_ray():
    """Ray leaves signal handlers and open files in the process that used it; the tests of other modules expect none."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    if "ray" in sys.modules:
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()
