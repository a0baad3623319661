"""The code on the pages about libraries and other tools runs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("adapters.md",)
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL), 1)
]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_runs(block, tmp_path):
    """In a process of its own, as a user would run it."""
    used = set(re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE))
    absent = [name for name in used if importlib.util.find_spec(name) is None]
    if absent and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip(f"{', '.join(absent)} is not installed")
    environment = os.environ | {"KERAS_BACKEND": "torch"}
    found = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
