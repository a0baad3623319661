"""The code of the page runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_of_the_page_runs(block, tmp_path, monkeypatch):
    if "optuna" in block:
        pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "integrations.md", "exec"), {})


def test_the_page_has_code():
    assert BLOCKS
