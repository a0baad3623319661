"""Sixty-four processes on one store, for a moment: nothing fails and nobody waits for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import servers

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(servers.binaries() is None and not os.environ.get("FREEZETHAW_CI"), reason="needs PostgreSQL")
def test_sixty_four_processes(tmp_path):
    sizes = ["--processes", "64", "--seconds", "1", "--rounds", "1", "--runs", "50"]
    command = [sys.executable, "-m", "benchmarks.store", *sizes, "--output", tmp_path / "store.json"]
    subprocess.run(command, cwd=ROOT, check=True)
    found = json.loads((tmp_path / "store.json").read_text())
    assert {(row["database"], row["writer"]) for row in found["commits"]} == {
        (database, writer) for database in ("sqlite", "postgresql") for writer in ("bare", "freezethaw")
    }
    for row in found["commits"]:
        assert row["failures"] == []
        assert row["commits"] >= 64
        assert row["fewest_of_a_process"] >= 1
    assert {row["database"] for row in found["opening"]} == {"sqlite", "postgresql"}
