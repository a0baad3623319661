"""The code on the pages of the documentation runs, page by page, as a reader would type it."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = {"adapters", "from_optuna", "from_ray_tune", "from_wandb_sweeps", "doors", "ray", "slurm", "scaling"}
PAGES = [
    page
    for page in sorted([*DOCS.glob("*.md"), *DOCS.glob("guides/*.md")])
    if page.stem not in ELSEWHERE and "```python\n" in page.read_text("utf-8")
]


@pytest.mark.filterwarnings("ignore")  # of the libraries that pages use
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
    used = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    absent = [name for name in used if importlib.util.find_spec(name) is None]
    if absent and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip(f"{', '.join(absent)} is not installed")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {"__name__": "__main__"})


def test_every_guide_is_there_and_in_the_index():
    index = (DOCS / "index.md").read_text("utf-8")
    for guide in DOCS.glob("guides/*.md"):
        assert f"guides/{guide.stem}\n" in index
    for name in (
        "tutorial",
        "decision",
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


def test_links_and_pictures_of_the_readme_lead_somewhere():
    for name in ("README.md", "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([^)#]+)", (DOCS.parent / name).read_text("utf-8")):
            assert link.startswith("https://") or (DOCS.parent / link).exists(), (name, link)
