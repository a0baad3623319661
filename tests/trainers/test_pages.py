"""The code on the pages about libraries and other tools runs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import freezethaw as ft
from freezethaw.cli.training_source import read_study
from tests.trainers.test_examples import EXAMPLE
from tests.trainers.test_missing_libraries import ADAPTERS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("adapters.md", "from_optuna.md", "from_ray_tune.md", "from_wandb_sweeps.md")


def blocks(page):
    """The blocks of a page; in that of Optuna the second half is one script."""
    found = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    return [found[0], "\n".join(found[1:])] if page == "from_optuna.md" else found


BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks(page), 1)
    if (page, number) != ("from_optuna.md", 2)  # it runs below, with more to check
]


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_runs(block, tmp_path, monkeypatch, capfd):
    used = set(re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE))
    absent = [name for name in used if importlib.util.find_spec(name) is None]
    if absent and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip(f"{', '.join(absent)} is not installed")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "page", "exec"), {"__name__": "__main__"})
    assert "freezethaw: of " not in capfd.readouterr().err, "a run of the example failed"


def test_the_study_file_is_one(tmp_path):
    [text] = re.findall(r"```toml\n(.*?)```", (DOCS / "from_wandb_sweeps.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "study.toml").write_text(text)
    assert len(ft.Space.from_dict(read_study(tmp_path / "study.toml")["space"])) == 2


def test_links_have_targets():
    for page in PAGES:
        for link in re.findall(r"\]\(([\w.]+\.md)\)", (DOCS / page).read_text("utf-8")):
            assert (DOCS / link).is_file(), (page, link)


def test_every_adapter_is_on_the_page():
    text = (DOCS / "adapters.md").read_text("utf-8")
    for example in EXAMPLE:
        assert f"`examples/{example}.py`" in text
    for adapter in ADAPTERS:
        assert f"freezethaw.{adapter}" in text


def test_the_script_of_optuna_and_its_port_search_the_same_space_equally_well(tmp_path):
    pytest.importorskip("optuna")
    script = (
        blocks("from_optuna.md")[1]
        + """
assert set(space.parameters) == {"rate", "optimizer", "momentum"}
assert space.parameters["momentum"].when == {"optimizer": ("momentum",)}
for trial in old.trials:
    assert dict(space.validate(trial.params)) == trial.params
epochs = sum(len(trial.intermediate_values) for trial in old.trials)
assert result.epochs == 100 < epochs
assert result.best.loss <= 1.05 * old.best_value + 1e-6, (result.best.loss, old.best_value)
"""
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
