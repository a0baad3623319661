"""Opening the page never locks a running study: writers with the page open fail at nothing, and all of them write.

With 64 writers, and how long they wait: `python -m benchmarks.page`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("plotly")

ROOT = Path(__file__).parents[2]


def test_writers_do_not_notice_the_page(tmp_path):
    sizes = ["--processes", "8", "--clients", "2", "--seconds", "4", "--rounds", "1"]
    command = [sys.executable, "-m", "benchmarks.page", *sizes, "--output", tmp_path / "page.json"]
    subprocess.run(command, cwd=ROOT, check=True)
    closed, opened = json.loads((tmp_path / "page.json").read_text())["rounds"]
    assert closed["failures"] == opened["failures"] == opened["page_failures"] == []
    assert opened["page_answers"] > 8
    assert opened["fewest_of_a_process"] > 0
