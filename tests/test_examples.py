"""The smallest example and the notebook run; those of adapters and other languages have tests of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_smallest_example_is_small_and_finds_something(tmp_path):
    text = (EXAMPLES / "smallest.py").read_text("utf-8")
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 20
    found = subprocess.run(
        [sys.executable, EXAMPLES / "smallest.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(re.search(r"loss ([\d.e-]+)", found.stdout)[1]) < 5.0


def test_the_example_with_two_problems_learns_from_the_first(tmp_path):
    pytest.importorskip("sklearn")
    found = subprocess.run(
        [sys.executable, "-W", "ignore", EXAMPLES / "digits_twice.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    old, alone, learnt = (float(loss) for loss in re.findall(r"best loss ([\d.]+)", found.stdout))
    assert max(old, learnt, alone) < 1.6  # chance level, log 5
    assert "start a new run: study digits 0 to 4 expects the best result there" in found.stdout


@pytest.mark.filterwarnings("ignore")  # of the libraries that carry it out
@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(notebook):
    try:
        import nbformat
        from ipykernel import kernelspec  # noqa: F401
        from nbclient import NotebookClient
    except ImportError:
        if os.environ.get("FREEZETHAW_CI"):
            raise
        pytest.skip("no nbclient and ipykernel in this environment")
    content = nbformat.read(notebook, as_version=4)
    assert not any(cell.get("outputs") for cell in content.cells), "kept without its outputs"
    NotebookClient(content, timeout=None, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    shown = [output for cell in content.cells for output in cell.get("outputs", ())]
    assert any("90 % between" in output.get("text", "") for output in shown)
    assert any("application/vnd.plotly.v1+json" in output.get("data", {}) for output in shown)
