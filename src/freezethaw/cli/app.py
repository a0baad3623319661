"""The Typer application, and what commands share: options, error messages, JSON output, opening a store."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from freezethaw.errors import FreezeThawError, StoreError, StudyError
from freezethaw.plain import plain

if TYPE_CHECKING:
    from rich.console import Console

    from freezethaw.store import Storage, Store
    from freezethaw.study import Study

PASSWORD = re.compile(r"(://[^\s/:@]*):[^\s@]*@")
SECRET = re.compile(r"([?&][^\s=&]*(?:pass|secret|token)[^\s=&]*)=[^\s&'\")]*", re.IGNORECASE)
ORDER = (
    "demo", "run", "worker", "check", "status", "best", "forecast", "explain", "replay", "stop", "resume", "enqueue",
    "budget", "dashboard", "report", "export", "studies", "delete",
)  # fmt: skip
VARIABLE = "FREEZETHAW_STORE"
TABLE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
UNLIMITED_WIDTH = 10_000  # columns: lines are not wrapped if the output is not a terminal

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # its module differs between versions of typer


class Commands(TyperGroup):
    """Prints errors of this package on one line, with exit code 1. Passwords are masked in all messages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands, in the order in which a new user needs them."""
        return sorted(super().list_commands(ctx), key=lambda name: (*ORDER, name).index(name))

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except FreezeThawError as error:
            fail(str(error), *getattr(error, "__notes__", ()))
        except UsageError as error:
            if hasattr(error, "message"):
                error.message = mask(str(error.message))
            raise


app = typer.Typer(
    cls=Commands,
    name="freezethaw",
    help="Tune the hyperparameters of anything that trains in epochs.",
    epilog="Try: freezethaw demo. STORE is an SQLite file or a URL; the environment variable FREEZETHAW_STORE is its "
    "default. --name selects a study of the store.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help is three times as fast
    pretty_exceptions_enable=False,  # would print local variables, including passwords
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from freezethaw import __version__

        typer.echo(f"freezethaw {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    _ = version


def store_url(store: str | None) -> str | None:
    """The URL of a store given as a URL or as the path of an SQLite file."""
    return store if store is None or ":" in store else f"sqlite:///{store}"


class ReadsStore(TyperCommand):
    """A command with a store as its first argument, which may be left out if FREEZETHAW_STORE is set."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the store of the environment first, unless the first argument is a store."""
        if not {"-h", "--help"} & set(args):
            first = self.make_parser(ctx).parse_args(list(args))[0].get("store")
            if not (isinstance(first, str) and may_be_store(first)):
                args = [default_store(f"{ctx.info_name} STORE ..."), *args]
        return super().parse_args(ctx, args)


def default_store(usage: str) -> str:
    """The store of the environment; an error if there is none."""
    found = os.environ.get(VARIABLE)
    if not found:
        raise UsageError(f"the store is missing: freezethaw {usage}, or set {VARIABLE}")
    return found


def may_be_store(text: str) -> bool:
    """Whether this is the path or URL of a store, not a number, name=value, JSON or a table of another tool."""
    if "://" in text:
        return True
    return not (text.isdigit() or "=" in text or text.lstrip().startswith("{") or text.lower().endswith(TABLE_SUFFIXES))


_STORE = typer.Argument(
    metavar="STORE",
    callback=store_url,
    show_default=False,
    help="An SQLite file (study.db) or a URL such as postgresql+psycopg://user@host/database; by default the "
    "environment variable FREEZETHAW_STORE.",
)
StoreArgument = Annotated[str, _STORE]
NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Name of the study; optional if the store has only one."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def fail(message: str, *notes: str) -> None:
    """Print one line to standard error, and notes such as the traceback of a training; exit with code 1."""
    line = " ".join(mask(message).split())
    typer.echo(f"freezethaw: {line}", err=True)
    for note in notes:
        typer.echo(mask(note), err=True)
    raise typer.Exit(1)


def mask(text: str) -> str:
    """Replace passwords in URLs by ***."""
    return SECRET.sub(r"\1=***", PASSWORD.sub(r"\1:***@", text))


def print_json(value: Any) -> None:
    """Print strict JSON: infinities and NaN become null."""
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def json_only(wanted: bool) -> Iterator[None]:
    """If `wanted`, redirect everything printed in this context, also by child processes, to standard error."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(output, 1)
        os.close(output)


def console() -> Console:
    """A console: coloured and wrapped on a terminal, plain otherwise."""
    from rich.console import Console

    found = Console(highlight=False, markup=False, emoji=False, soft_wrap=not sys.stdout.isatty())
    if not sys.stdout.isatty():
        found.width = UNLIMITED_WIDTH
    return found


@contextmanager
def open_store(url: str) -> Iterator[Store]:
    """Open an existing store; never create one."""
    from freezethaw.store import Store, urls

    parsed = urls.parse(url)
    if parsed.drivername == "sqlite" and not urls.sqlite_file(parsed).exists():
        raise StoreError(f"there is no store {urls.shown(parsed)}: no such file. `freezethaw run` creates one")
    with Store(url) as store:
        yield store


def study_name(store: Store, name: str | None) -> str:
    """The given name, or that of the only study."""
    if name is not None:
        return name
    names = [study.name for study in store.studies()]
    if len(names) == 1:
        return names[0]
    if not names:
        raise StudyError(f"{store.url} has no study")
    raise StudyError(f"choose a study with --name: {', '.join(map(repr, names[:20]))}")


@contextmanager
def open_stored_study(url: str, name: str | None) -> Iterator[tuple[Store, Storage]]:
    """Open a study for reading its records."""
    with open_store(url) as store:
        yield store, store.open(study_name(store, name))


@contextmanager
def open_study(url: str, name: str | None) -> Iterator[Study]:
    """Open a study with its model."""
    with open_store(url) as store:
        found = study_name(store, name)
        store.open(found)
    from freezethaw.study import Study

    study = Study.open(url, found)
    try:
        yield study
    finally:
        study.close()
