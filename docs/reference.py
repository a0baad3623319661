"""The references of the command line and of the API, written from the code: `python -m docs.reference FOLDER`.

The documentation's build calls it, so nothing here can be out of date. What has no words in the code comes out with
none, which a test forbids.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import freezethaw as ft
from freezethaw.cli import app
from freezethaw.cli.app import ORDER

FOLDER = Path(__file__).parent / "reference"
# public modules beside the package itself, and the adapters, whose libraries need not be installed
MODULES = ("freezethaw.figures", "freezethaw.integrations")
ADAPTERS = {
    "pytorch": ("thawed",), "distributed": ("everywhere",), "sklearn": ("thawed", "train_epoch"), "xgboost": ("boost",),
    "lightgbm": ("boost",), "keras": ("FreezeThaw",), "lightning": ("FreezeThaw",), "transformers": ("FreezeThaw",),
}  # fmt: skip
FIRST = ("tune", "Study", "Space", "Float", "Int", "Choice", "Budget", "Checkpoints", "Prices")  # what a new user meets
BASE = {name for kind in (object, Exception) for name in dir(kind)}


# Commands.


@dataclasses.dataclass(frozen=True)
class Option:
    """An option or an argument of a command."""

    names: str
    default: str
    words: str
    environment: str = ""


def commands() -> dict[str, tuple[str, list[Option]]]:
    """Every command: what it does, and its options."""
    found = {info.name or info.callback.__name__: info.callback for info in app.registered_commands if info.callback}
    return {name: (inspect.getdoc(found[name]) or "", list(_options(found[name]))) for name in ORDER if name in found}


def _options(command: Callable[..., Any]) -> Iterator[Option]:
    hints = typing.get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        said = getattr(hints[name], "__metadata__", (None,))[0]
        if said is None:  # the context
            continue
        if type(said).__name__ == "ArgumentInfo":
            names = said.metavar or name.upper()
        else:
            own = [d for d in (said.default, *(said.param_decls or ())) if isinstance(d, str)]
            long = "" if any(d.startswith("--") for d in own) else f"--{name.replace('_', '-')}"
            names = " ".join([*filter(None, [long]), *own, *([said.metavar] if said.metavar else [])])
        empty = parameter.default in (None, False, inspect.Parameter.empty)
        yield Option(names, "" if empty else str(parameter.default), said.help or "", said.envvar or "")


def commands_page() -> str:
    """The reference of the command line."""
    lines = [
        "# Commands",
        "",
        "Every command and option, written from the code. What they are for is said on [the guide's page](../cli.md).",
    ]
    for name, (words, options) in commands().items():
        lines += ["", f"## `freezethaw {name}`", "", *_said(words), "", "| option | | default |", "|---|---|---|"]
        for option in options:
            more = f" (or `{option.environment}` in the environment)" if option.environment else ""
            default = f"`{option.default}`" if option.default else ""
            lines.append(f"| `{_cell(option.names)}` | {_cell(option.words)}{more} | {default} |")
    return "\n".join(lines) + "\n"


def _said(docstring: str) -> list[str]:
    """The words of a command; what follows a line of \\b is kept line by line."""
    text, _, example = docstring.partition("\b")
    lines = text.strip().splitlines()
    if example.strip():
        lines += ["", "```sh", *textwrap.dedent("\n".join(example.strip().splitlines()[1:])).splitlines(), "```"]
    return lines


# The API.


@dataclasses.dataclass(frozen=True)
class Entry:
    """A public name: how it is called, what it is for, its fields and methods."""

    name: str
    call: str
    words: str
    fields: tuple[tuple[str, str, str], ...] = ()  # name, default, words
    members: tuple[tuple[str, str], ...] = ()  # call, words


def entry(name: str, thing: Any) -> Entry:
    """What the code says of a public name."""
    words = inspect.getdoc(thing) or ""
    if not inspect.isclass(thing):
        return Entry(name, f"{name}{_signature(thing)}", words)
    fields = tuple(_fields(thing))
    members = tuple(_members(thing))
    plain = issubclass(thing, BaseException) and "__init__" not in vars(thing)
    return Entry(name, name if plain else f"{name}{_signature(thing)}", words, fields, members)


def _signature(thing: Any) -> str:
    """With the names and defaults of arguments; types are in the code, and would hide them here."""
    found = inspect.signature(thing)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _fields(thing: type) -> Iterator[tuple[str, str, str]]:
    """Fields of a dataclass, with the comment beside each."""
    if not dataclasses.is_dataclass(thing):
        return
    source = textwrap.dedent(inspect.getsource(thing))
    lines = source.splitlines()
    body = typing.cast(ast.ClassDef, ast.parse(source).body[0]).body
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            comment = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")[2]
            default = "" if node.value is None else ast.unparse(node.value)
            yield node.target.id, "" if default.startswith("field(") else default, comment


def _members(thing: type) -> Iterator[tuple[str, str]]:
    for name in dir(thing):
        if name.startswith("_") or (name in BASE and issubclass(thing, BaseException)):
            continue
        found = inspect.getattr_static(thing, name)
        if isinstance(found, property):
            yield name, inspect.getdoc(found) or ""
        elif isinstance(found, staticmethod | classmethod) or inspect.isfunction(found):
            call = _signature(getattr(thing, name)).replace("(self, ", "(").replace("(self)", "()")
            yield f"{name}{call}", inspect.getdoc(getattr(thing, name)) or ""


def entries() -> dict[str, list[Entry]]:
    """Every public name, by the module that one imports it from."""
    from freezethaw.trainers import TrainingRun

    own = {name: getattr(ft, name) for name in (*FIRST, *sorted(set(ft.__all__) - set(FIRST)))}
    errors = [name for name, thing in own.items() if inspect.isclass(thing) and issubclass(thing, Exception)]
    found = {"freezethaw": [entry(name, thing) for name, thing in own.items() if name not in errors]}
    found["freezethaw"].insert(len(FIRST), entry("TrainingRun", TrainingRun))
    found["freezethaw: errors"] = [entry(name, own[name]) for name in errors]
    for name in MODULES:
        module = importlib.import_module(name)
        public = [(n, getattr(module, n)) for n in module.__all__ if callable(getattr(module, n))]
        found[name] = [entry(n, thing) for n, thing in public if n not in ft.__all__]
    return found


def adapters() -> dict[str, list[Entry]]:
    """The names of the adapters, read without importing their libraries."""
    found: dict[str, list[Entry]] = {}
    for module, names in ADAPTERS.items():
        file = Path(ft.__file__).parent / "trainers" / f"{module}.py"
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
                made = node if isinstance(node, ast.FunctionDef) else _made_by(node)
                call = f"{node.name}({_arguments(made)})"
                found.setdefault(f"freezethaw.trainers.{module}", []).append(
                    Entry(node.name, call, ast.get_docstring(node) or "")
                )
    return found


def _made_by(node: ast.ClassDef) -> ast.FunctionDef:
    return next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")


def _arguments(function: ast.FunctionDef) -> str:
    given = function.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if argument is not None:
            argument.annotation = None
    return ast.unparse(given).removeprefix("self, ")


def api_page() -> str:
    """The reference of the API."""
    lines = ["# API", "", "Every public name, written from the code. `import freezethaw as ft`."]
    for module, found in (entries() | adapters()).items():
        lines += ["", f"## `{module}`"]
        for one in found:
            call = ["", "```py", one.call, "```"] if "(" in one.call else []
            lines += ["", f"### `{one.name}`", *call, "", *one.words.splitlines()]
            if fields := [field for field in one.fields if field[2]]:  # others say it by their names
                lines += ["", "| field | default | |", "|---|---|---|"]
                lines += [f"| `{n}` | {f'`{_cell(d)}`' if d else ''} | {_cell(w)} |" for n, d, w in fields]
            if one.members:
                lines += ["", "| | |", "|---|---|"]
                lines += [f"| `{_cell(c)}` | {_cell(' '.join(w.split()))} |" for c, w in one.members]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def write(folder: Path = FOLDER) -> None:
    """Write both pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("commands.md", commands_page()), ("api.md", api_page())):
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:  # an unchanged page is not built anew
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
