"""Spaces as plain values and TOML, and how two of them differ."""

from __future__ import annotations

import json
import math
import tomllib
from typing import Any

import pytest

from freezethaw.errors import SpaceError
from freezethaw.space import Choice, Float, Int, Space
from tests.space.spaces import EXAMPLE


def test_description_is_short_and_plain() -> None:
    space = Space(
        learning_rate=Float(1e-6, 0.1, log=True), optimizer=Choice("sgd", "adam"),
        momentum=Float(0, 1, guess=0.9, when={"optimizer": "sgd"}), seed=3, note=None,
    )  # fmt: skip
    described = {
        "learning_rate": {"type": "float", "low": 1e-6, "high": 0.1, "log": True},
        "optimizer": {"type": "choice", "values": ["sgd", "adam"]},
        "momentum": {"type": "float", "low": 0.0, "high": 1.0, "guess": 0.9, "when": {"optimizer": "sgd"}},
        "seed": {"type": "fixed", "value": 3},
        "note": {"type": "fixed"},
    }
    assert space.to_dict() == described
    assert Space.from_dict(described) == space
    assert Space.from_dict(described | {"seed": 3, "note": None}) == space
    assert Space.from_dict(EXAMPLE.to_dict()) == EXAMPLE


def test_description_in_toml() -> None:
    text = """
    seed = 3
    optimizer = {type = "choice", values = ["sgd", "adam"]}
    [learning_rate]
    type = "float"
    low = 1e-6
    high = 1e-1
    log = true
    """
    assert Space.from_dict(tomllib.loads(text)) == Space(
        seed=3, optimizer=Choice("sgd", "adam"), learning_rate=Float(1e-6, 0.1, log=True)
    )


def test_list_valued_choices_and_their_children_survive_a_description() -> None:
    space = Space(layers=Choice((64, 64), (128,)), x=Float(0, 1, when={"layers": [(128,)]}))
    again = Space.from_dict(json.loads(json.dumps(space.to_dict())))
    assert again == space
    assert "x" in again.config([1, 0])
    assert "x" not in again.config([0, 0])


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"x": {"low": 0, "high": 1}}, "x: the description has no type; give 'float', 'int', 'choice' or 'fixed'"),
        ({"x": {"type": "real", "low": 0}}, "x: type is 'real'; it must be one of 'float'"),
        ({"x": {"type": ["int"]}}, r"x: type is \['int'\]; it must be one of 'float'"),
        ({"x": {"type": "int", "low": 0}}, "x: a description of type 'int' needs 'high'"),
        (
            {"x": {"type": "int", "low": 0, "high": 3, "logg": True}},
            "x: unknown key 'logg'; type 'int' has 'low', 'high'",
        ),
        ({"x": {"type": "fixed", "valeu": 0}}, "x: unknown key 'valeu'; type 'fixed' has 'value'"),
        ({"x": {"type": "choice", "values": "ab"}}, "x: values is 'ab'; it must be a list"),
        ({"x": {"type": "float", "low": 2, "high": 1}}, "x: low is 2.0 and high is 1.0"),
        ([1], r"a space is described by a dict of parameters, not \[1\]"),
    ],
)
def test_wrong_descriptions_are_refused(description: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        Space.from_dict(description)


def test_values_that_no_file_can_hold_may_be_searched_but_not_described() -> None:
    space = Space(activation=Choice(math.tanh, math.erf))
    assert space.config([0.0]) == {"activation": math.tanh}
    with pytest.raises(SpaceError, match="activation: <built-in function tanh> cannot be stored; use a text"):
        space.to_dict()


def test_difference_tells_added_from_removed_from_changed() -> None:
    old = Space(a=Float(0, 1), b=Int(1, 3), c=Choice(1, 2), d=4, same=Int(0, 1))
    new = Space(same=Int(0, 1), a=Float(0, 2), c=Int(1, 2), d=5, e=Float(0, 1))
    difference = old.difference(new)
    assert difference.added == ("c=Int(1, 2)", "e=Float(0.0, 1.0)")
    assert difference.removed == ("b=Int(1, 3)", "c=Choice(1, 2)")
    assert difference.changed == ("a=Float(0.0, 1.0) to Float(0.0, 2.0)", "d=4 to 5")
    assert str(difference).startswith("added: c=Int(1, 2), e=Float(0.0, 1.0); removed: b=")
    assert str(old.difference(old)) == "no difference"
    assert not old.difference(Space(dict(reversed(list(old.parameters.items()))), d=4))  # the order is no difference
