from __future__ import annotations

import os

import pytest
from benchmarks import servers


@pytest.fixture(scope="session")
def postgresql_server():
    """A real server. In CI a missing one is a failure; on a laptop its tests are skipped."""
    if servers.binaries() is None and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip("no PostgreSQL server on this machine: apt-get install postgresql")
    with servers.postgresql(fsync=False) as url:
        yield url
