"""The theory and the design page name only what exists: functions that import, tests and pictures that are there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
THEORY = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")


def table():
    """Rows of the table of equations: (equation, words, function, test)."""
    lines = THEORY[THEORY.index("| equation | in words | function | test |") :].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("|")]


def resolve(name):
    """Import the longest part of the name that is a module, and take attributes for the rest."""
    parts = ["freezethaw", *name.split(".")]
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
WAY = DESIGN[DESIGN.index("## The way of one epoch") : DESIGN.index("## Promises")]
FUNCTIONS = sorted({name for row in table() for name in re.findall(r"`([\w.]+)`", row[2])})
LAYERS = ("decide", "losses", "model", "policy", "study")
NAMED = sorted(set(re.findall(rf"`((?:{'|'.join(LAYERS)})\.[\w.]+)`", THEORY)) - set(FUNCTIONS))
PLACES = sorted({name for name in re.findall(r"`([a-z_]+\.[\w.]+)`", WAY) if not name.startswith("make")})
TESTS = sorted(set(re.findall(r"`(tests/[^`]+)`", THEORY)))


def test_every_equation_has_its_row():
    equations = [row[0] for row in table()]
    numbers = [int(number) for e in equations if e[0].isdigit() for number in re.findall(r"\d+", e)]
    assert sorted(numbers) == list(range(1, 22))
    assert "Algorithm 1" in equations
    for row in table():
        assert len(row) == 4
        assert row[1]
        assert "`" in row[2] or "not yet built" in row[2], row
        assert "`" in row[3] or "not yet" in row[2] + row[3], row


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_named_exists(name):
    assert callable(resolve(name))


@pytest.mark.parametrize("name", NAMED)
def test_every_name_in_the_text_exists(name):
    assert resolve(name)


@pytest.mark.parametrize("name", PLACES)
def test_every_place_on_the_way_of_an_epoch_exists(name):
    assert resolve(name)


@pytest.mark.parametrize("name", TESTS)
def test_every_test_named_exists(name):
    file, _, function = name.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert not function or re.search(rf"^def {re.escape(function)}\(", text, re.MULTILINE)


def test_a_name_that_does_not_exist_is_caught():
    with pytest.raises(AttributeError):
        resolve("model.kernels.no_such_kernel")


def test_every_picture_is_there_and_small():
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", THEORY)
    assert len(pictures) == 8
    for picture in pictures:
        assert 5_000 < (ROOT / "docs" / picture).stat().st_size < 200_000, picture
