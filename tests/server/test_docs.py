"""The guide to the page names every action, every request of the API and pictures that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("plotly")

from freezethaw.server.actions import ACTIONS
from freezethaw.server.api import OPERATIONS
from freezethaw.server.study_page import FIGURES, SECTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "page.md").read_text(encoding="utf-8")
READING = {"studies", "study", "runs", "run", "decisions", "decision", "create"}  # said of all pages at once


def test_every_action_and_request_is_in_the_guide():
    for name in [*ACTIONS, *(o.name for o in OPERATIONS if o.name not in READING)]:
        assert re.search(rf"\b{name}\b", PAGE), name


def test_every_figure_is_in_the_guide():
    rows = PAGE.partition("| figure |")[2].partition("![")[0].count("\n| ")
    assert rows == len(FIGURES)


def test_every_section_has_its_pictures_and_they_are_small():
    docs = Path(__file__).parents[2] / "docs"
    gallery = (docs / "screenshots.md").read_text(encoding="utf-8")
    pictures = set(re.findall(r"!\[[^\]]*\]\(([^)]+)\)", PAGE + gallery))
    names = [section or "overview" for section in SECTIONS] + ["studies", "compare", "decision", "run"]
    assert pictures == {f"images/page/{n}-{w}-{c}.png" for n in names for w in (1400, 390) for c in ("light", "dark")}
    sizes = [(docs / picture).stat().st_size for picture in pictures]
    assert min(sizes) > 3_000
    assert sum(sizes) < 2_000_000
