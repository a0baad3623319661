"""The kinds of parameters. Each maps its values to a unit coordinate, to draw them, and features, to compare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freezethaw.errors import SpaceError
from freezethaw.space.choice import Choice
from freezethaw.space.numeric import Float, Int
from freezethaw.space.values import listed

__all__ = ["Choice", "Config", "Float", "Int", "Parameter", "parameter_from_dict"]

Config = dict[str, Any]
Parameter = Float | Int | Choice


def parameter_from_dict(description: Mapping[str, Any]) -> Parameter:
    """Build a parameter from its plain description."""
    kinds: dict[str, tuple[type[Parameter], tuple[str, ...], tuple[str, ...]]] = {
        "float": (Float, ("low", "high"), ("log", "step", "guess", "when")),
        "int": (Int, ("low", "high"), ("log", "step", "guess", "when")),
        "choice": (Choice, ("values",), ("ordered", "guess", "when")),
    }
    kind = description.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        raise SpaceError(f"type is {kind!r}; it must be one of 'float', 'int', 'choice', 'fixed'")
    build, needed, optional = kinds[kind]
    options = {key: value for key, value in description.items() if key != "type"}
    missing = [key for key in needed if key not in options]
    unknown = [key for key in options if key not in needed + optional]
    if missing:
        raise SpaceError(f"a description of type {kind!r} needs {listed(missing)}")
    if unknown:
        raise SpaceError(f"unknown key {unknown[0]!r}; type {kind!r} has {listed(needed + optional)}")
    if build is Choice:
        values = options.pop("values")
        if not isinstance(values, list | tuple):
            raise SpaceError(f"values is {values!r}; it must be a list")
        return Choice(*values, **options)
    return build(**options)
