"""The page of the command line says what is there: every command, every variable, study files that are read."""

from __future__ import annotations

import re
from pathlib import Path

import freezethaw as ft
from freezethaw.cli import app
from freezethaw.cli.training_source import KEYS, read_study
from freezethaw.trainers import command

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_command_is_on_the_page():
    names = {info.name or info.callback.__name__ for info in app.registered_commands}
    assert names == set(re.findall(r"^\| `(\w+)", PAGE.partition("## Study files")[0], re.MULTILINE))


def test_the_study_file_on_the_page_is_one(tmp_path):
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "study.toml").write_text(text)
    found = read_study(tmp_path / "study.toml")
    assert set(KEYS) - set(found) == {"command"}
    assert len(ft.Space.from_dict(found["space"])) == 3


def test_every_variable_and_exit_code_is_on_the_page():
    module = command.__module__
    source = (Path(__file__).parents[2] / "src" / Path(*module.split("."))).with_suffix(".py").read_text()
    for name in set(re.findall(r"FREEZETHAW_[A-Z]+", source)):
        assert name in PAGE
    for code in ("| 0 |", "| 10 |", "| 11 |", "| 12 |"):
        assert code in PAGE
