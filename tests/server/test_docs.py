"""The guide to the page names every action, every request of the API and pictures that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("plotly")

from freezethaw.server.actions import ACTIONS
from freezethaw.server.api import OPERATIONS
from freezethaw.server.study_page import FIGURES

PAGE = (Path(__file__).parents[2] / "docs" / "page.md").read_text(encoding="utf-8")
READING = {"studies", "study", "runs", "run", "decisions", "decision", "create"}  # said of all pages at once


def test_every_action_and_request_is_in_the_guide():
    for name in [*ACTIONS, *(o.name for o in OPERATIONS if o.name not in READING)]:
        assert re.search(rf"\b{name}\b", PAGE), name


def test_every_figure_is_in_the_guide():
    rows = PAGE.partition("| figure |")[2].partition("![")[0].count("\n| ")
    assert rows == len(FIGURES)


def test_every_picture_is_there_and_small():
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", PAGE)
    assert len(pictures) == 4
    for picture in pictures:
        assert 5_000 < (Path(__file__).parents[2] / "docs" / picture).stat().st_size < 200_000, picture
