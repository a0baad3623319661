"""Write the defaults into the tables of docs/settings.md, from the signatures: `python -m docs.settings`.

What a setting means is written by hand; its default and whether `ft.Study` has it come from the code. A setting without
a row is added, with the words of the docstring missing, and a row without a setting is removed.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import freezethaw as ft

PAGE = Path(__file__).parent / "settings.md"
CLASSES = (ft.Budget, ft.Checkpoints, ft.Prices)
STUDY = "*s*"
MISSING = "(no words yet)"


def shown(default: object) -> str:
    """A default as the page shows it; nothing where there is none."""
    if default in (inspect.Parameter.empty, dataclasses.MISSING):
        return ""
    return f'`"{default}"`' if isinstance(default, str) else f"`{default}`"


def arguments() -> dict[str, str]:
    """The first two cells of the row of each argument of `ft.tune`."""
    of_study = inspect.signature(ft.Study).parameters
    found = {}
    for name, parameter in inspect.signature(ft.tune).parameters.items():
        first, default = f"`{name}`", shown(parameter.default)
        if name in of_study:
            first = f"{first} {STUDY}"
            if of_study[name].default != parameter.default:
                default = f"{default}; {shown(of_study[name].default)} in `ft.Study`"
        found[name] = f"| {first} | {default} |" if default else f"| {first} | |"
    return found


def fields() -> dict[str, str]:
    """The first two cells of the row of each field of the classes of settings."""
    found = {}
    for kind in CLASSES:
        for name, parameter in inspect.signature(kind).parameters.items():
            found[f"{kind.__name__}.{name}"] = f"| `{kind.__name__}.{name}` | {shown(parameter.default)} |"
    return found


def filled(page: str) -> str:
    """The page with the defaults of the code."""
    for head, rows in (("# All settings", arguments()), ("## Budget", fields())):
        before, title, rest = page.partition(head)
        first = rest.index("|---|---|---|\n") + len("|---|---|---|\n")
        after = rest.index("\n\n", first) if "\n\n" in rest[first:] else len(rest)
        words: dict[str, str] = {}
        for line in rest[first:after].splitlines():
            if found := re.match(r"\| `([\w.]+)`[^|]*\|[^|]*\| (.*) \|$", line):
                words[found[1]] = found[2]
        names = [name for name in words if name in rows] + [name for name in rows if name not in words]
        table = "\n".join(f"{rows[name]} {words.get(name, MISSING)} |" for name in names)
        page = before + title + rest[:first] + table + rest[after:]
    return page


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
