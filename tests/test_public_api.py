"""The public API, pinned: a name or an argument that changes shows in tests/public_api.txt, and in a review.

If the change is meant: python -m tests.test_public_api
"""

from __future__ import annotations

import inspect
from pathlib import Path

import freezethaw as ft

KEPT = Path(__file__).parent / "public_api.txt"


def public_api():
    """One line for each public name and method, with names and defaults of its arguments."""
    lines = []
    for name in ft.__all__:
        thing = getattr(ft, name)
        lines.append(f"{name}{_arguments(thing)}")
        if inspect.isclass(thing):
            lines += [f"{name}.{line}" for line in _members(thing)]
    return "\n".join(lines) + "\n"


def _members(thing):
    inherited = {n for base in (Exception, object) if issubclass(thing, base) for n in dir(base)}
    for name in sorted(set(dir(thing)) - inherited):
        found = inspect.getattr_static(thing, name)
        if name[0] != "_":
            callable_ = inspect.isfunction(found) or isinstance(found, staticmethod | classmethod)
            yield f"{name}{_arguments(getattr(thing, name))}" if callable_ else name


def _arguments(thing):
    if inspect.isclass(thing) and issubclass(thing, Exception) and "__init__" not in vars(thing):
        return ""
    found = inspect.signature(thing)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def test_the_public_api_is_as_it_was():
    assert public_api() == KEPT.read_text(encoding="utf-8"), "if that is meant: python -m tests.test_public_api"


if __name__ == "__main__":
    KEPT.write_text(public_api(), encoding="utf-8")
