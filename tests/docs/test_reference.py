"""Nothing public is undocumented: names, methods, commands, options, settings, variables of the environment."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

import freezethaw as ft
from docs import reference, settings

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "docs" / "settings.md").read_text("utf-8")
STUDY = "*s*"


def rows(start, end):
    """First cells of a table's rows, without markup."""
    part = SETTINGS.partition(start)[2].partition(end)[0]
    return [line.split("|")[1].strip() for line in part.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize(("module", "entries"), [*reference.entries().items(), *reference.adapters().items()])
def test_every_public_name_has_words(module, entries):
    assert entries
    for entry in entries:
        assert entry.words.strip(), f"{module}.{entry.name} has no docstring"
        for call, words in entry.members:
            assert words.strip(), f"{module}.{entry.name}.{call} has no docstring"


def test_every_public_name_is_in_the_reference():
    page = reference.api_page()
    for name in ft.__all__:
        assert f"### `{name}`" in page
    for module, names in reference.ADAPTERS.items():
        found = reference.adapters()[f"freezethaw.trainers.{module}"]
        assert {entry.name for entry in found} == set(names)


def test_every_adapter_is_in_the_reference():
    from tests.trainers.test_missing_libraries import ADAPTERS

    named = {f"freezethaw.trainers.{module}" for module in reference.ADAPTERS} | {"freezethaw.search_cv"}
    assert {f"freezethaw.{adapter}" for adapter in ADAPTERS} <= named


def test_every_command_and_option_has_words():
    from freezethaw.cli import app

    found = reference.commands()
    assert set(found) == {info.name or info.callback.__name__ for info in app.registered_commands}
    for name, (words, options) in found.items():
        assert words.strip(), name
        assert any("--json" in option.names for option in options), name
        for option in options:
            assert option.words.strip(), f"freezethaw {name} {option.names}"


def test_every_setting_is_on_its_page():
    said = rows("# All settings", "## Budget")
    assert [row.replace(STUDY, "").strip(" `") for row in said if row] == sorted(
        inspect.signature(ft.tune).parameters, key=[row.replace(STUDY, "").strip(" `") for row in said].index
    )
    of_study = {row.replace(STUDY, "").strip(" `") for row in said if STUDY in row}
    assert of_study == set(inspect.signature(ft.Study).parameters)


def test_every_field_of_the_settings_is_on_their_page():
    kinds = (ft.Budget, ft.Checkpoints, ft.Prices)
    fields = [f"{kind.__name__}.{field.name}" for kind in kinds for field in dataclasses.fields(kind)]
    assert [row.strip("`") for row in rows("## Budget", "## Environment")] == fields


def test_the_defaults_on_the_page_are_those_of_the_code():
    """`python -m docs.settings` writes them."""
    assert settings.filled(SETTINGS) == SETTINGS
    assert settings.MISSING not in SETTINGS


def test_a_wrong_default_and_a_setting_without_a_row_are_noticed():
    wrong = SETTINGS.replace("| `workers` | `1` |", "| `workers` | `2` |")
    assert wrong != SETTINGS
    assert settings.filled(wrong) == SETTINGS
    without = "\n".join(line for line in SETTINGS.splitlines() if not line.startswith("| `Budget.target`"))
    assert f"| `Budget.target` | `None` | {settings.MISSING} |" in settings.filled(without)


def test_every_variable_of_the_environment_is_on_the_page():
    source = "".join(file.read_text("utf-8") for file in (ROOT / "src").rglob("*.py"))
    for variable in sorted(set(re.findall(r"FREEZETHAW_[A-Z]+", source))):
        assert f"`{variable}`" in SETTINGS, variable
