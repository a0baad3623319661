"""A study in HTML: complete, escaped, and without asking the model."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import freezethaw as ft
from tests.cli.conftest import SPACE, advance


class Balance(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(html):
    balance = Balance()
    balance.feed(html)
    assert not balance.open
    return " ".join(balance.text)


def test_a_study_shows_itself():
    study = ft.Study(SPACE, max_epochs=9, name="<script>", budget=30)
    assert "0  of 30 epochs" in parsed(study._repr_html_()) or "0 of 30 epochs" in parsed(study._repr_html_())
    advance(study, 9)
    study.tell(study.ask(), float("nan"))
    pending = study.ask()
    html = study._repr_html_()
    text = parsed(html)
    assert "<script>" not in html
    assert "study <script>" in text
    assert pending.reason in text
    assert "1 diverged" in text
    lowest = min(loss for run in study.runs for loss in run.losses)
    assert f"{lowest:.5g}" in text
    assert html.count("<svg") == min(len([r for r in study.runs if r.losses]), 10)
    numbers = [float(x) for pair in re.findall(r'points="([^"]*)"', html) for x in re.split("[ ,]", pair)]
    assert all(0 <= x <= 120 for x in numbers)


def test_maximised_and_flat():
    study = ft.Study(ft.Space(x=ft.Float(0, 1)), max_epochs=1, direction="maximize")
    for value in (0.1, 0.9):
        study.tell(study.ask(), value)
    text = parsed(study._repr_html_())
    assert text.index("0.9") < text.index("0.1")
    flat = ft.Study(ft.Space(x=ft.Float(0, 1)), max_epochs=1)
    flat.tell(flat.ask(), 0.5)
    assert "0.5" in parsed(flat._repr_html_())
