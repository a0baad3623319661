"""The code on the pages of the documentation runs, page by page, as a reader would type it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import freezethaw as ft

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = {"adapters", "from_optuna", "from_ray_tune", "from_wandb_sweeps", "integrations", "ray", "slurm", "scaling"}
FAILING = {"debugging"}  # its runs fail on purpose
OURS_ALONE = {"docs", "libraries", "dev"}  # extras that no user needs
PAGES = [
    page
    for page in sorted([*DOCS.glob("*.md"), *DOCS.glob("guides/*.md")])
    if page.stem not in ELSEWHERE and "```python\n" in page.read_text("utf-8")
]


@pytest.mark.filterwarnings("ignore")  # of the libraries that pages use
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capfd):
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
    used = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    absent = [name for name in used if importlib.util.find_spec(name) is None]
    if absent and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip(f"{', '.join(absent)} is not installed")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {"__name__": "__main__"})
    if page.stem in FAILING:
        assert "failed\nthe first failure: run " in capfd.readouterr().err
    else:
        assert_no_run_failed(capfd.readouterr().err)


def assert_no_run_failed(said):
    """`tune` says at its end how many runs failed, and that no run has a finite loss."""
    assert "freezethaw: of " not in said, said


def test_a_page_with_a_failing_run_would_be_noticed(capfd):
    def train(run):
        for epoch in run.epochs():
            assert run.number != 2
            run.report(1 / epoch, save=lambda folder: (folder / "x").write_text("1"))

    ft.tune(train, {"x": ft.Float(0.0, 1.0)}, max_epochs=2, budget=4)
    with pytest.raises(AssertionError, match=r"of . runs 1 failed"):
        assert_no_run_failed(capfd.readouterr().err)


def test_the_files_of_the_tutorial_pass_the_check_that_it_ends_with(tmp_path):
    page = (DOCS / "tutorial.md").read_text("utf-8")
    for file, kind in (("train.py", "python"), ("space.toml", "toml")):
        (tmp_path / file).write_text(re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[0], "utf-8")
    [command] = re.findall(r"^    freezethaw (check .*)$", page, re.MULTILINE)
    words = [sys.executable, "-m", "freezethaw", *command.split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed: 4 epochs" in done.stdout


def test_the_extras_that_pages_name_are_those_there_are():
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - OURS_ALONE
    table = (DOCS / "index.md").read_text("utf-8").partition("| extra | for |")[2].partition("\n\n")[0]
    assert {name for row in table.splitlines() for name in re.findall(r"`([\w-]+)`", row.split(" | ")[0])} == extras
    for page in [DOCS.parent / "README.md", *DOCS.glob("*.md"), *DOCS.glob("guides/*.md")]:
        named = re.findall(r"pip install ['\"](?:\.|freezethaw)\[([\w,-]+)\]", page.read_text("utf-8"))
        assert {name for names in named for name in names.split(",")} <= extras, page.name


def test_every_guide_is_there_and_in_the_index():
    index = (DOCS / "index.md").read_text("utf-8")
    for guide in DOCS.glob("guides/*.md"):
        assert f"guides/{guide.stem}\n" in index
    for name in (
        "tutorial",
        "decision",
        "budget",
        "deciding_time",
        "workers",
        "debugging",
        "glossary",
        "settings",
        "when_not",
        "operating",
        "theory",
        "notation",
        "benchmarks",
        "design",
    ):
        assert f"\n{name}\n" in index
        assert (DOCS / f"{name}.md").is_file()


def test_what_scripts_fill_in_is_filled_in():
    for page in ("decision", "benchmarks"):
        text = (DOCS / f"{page}.md").read_text("utf-8")
        marks = re.findall(r"<!-- (\w+) -->\n(.*?)<!-- /\1 -->", text, re.DOTALL)
        assert len(marks) >= 3
        assert all(words.strip() for _, words in marks)


def test_the_readme_is_short():
    assert len((DOCS.parent / "README.md").read_text("utf-8").split()) <= 700


def test_links_and_pictures_of_the_readme_lead_somewhere():
    for name in ("README.md", "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([^)#]+)", (DOCS.parent / name).read_text("utf-8")):
            assert link.startswith("https://") or (DOCS.parent / link).exists(), (name, link)
