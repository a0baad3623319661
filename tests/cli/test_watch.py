"""`status --watch` shows a study with its curves, and follows it."""

from __future__ import annotations

import io

from rich.console import Console

import freezethaw as ft
from freezethaw.cli.status import watch_study
from freezethaw.study import session_of
from tests.cli.conftest import advance


def test_watch_without_a_terminal_shows_the_study_once(cli, filled):
    shown = cli("status", "--watch", store=filled).stdout
    assert "study one" in shown
    assert "▁" in shown
    assert "of 40 epochs" in shown


def test_watch_updates(tmp_path):
    url = f"sqlite:///{tmp_path}/watched.db"
    study = ft.Study(ft.Space(rate=ft.Float(0, 1), kind=ft.Choice("a", "b")), 9, name="seen", store=url, budget=40)
    out = Console(file=io.StringIO(), force_terminal=True, width=100)
    watch_study(session_of(study).storage, out, updates=2, pause=lambda _: advance(study, 1))
    shown = out.file.getvalue()
    assert "none yet" in shown
    assert "0 of 40 epochs" in shown
    assert "start a new run: no loss is known yet" in shown
    study.close()
