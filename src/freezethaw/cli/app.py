"""The application that commands belong to, and what they share: options, errors on one line, plain JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from freezethaw.errors import FreezeThawError, StoreError, StudyError
from freezethaw.plain import plain

if TYPE_CHECKING:
    from rich.console import Console

    from freezethaw.store import Store, StoredStudy
    from freezethaw.study import Study

PASSWORD = re.compile(r"(://[^\s/:@]*):[^\s@]*@")
SECRET = re.compile(r"([?&][^\s=&]*(?:pass|secret|token)[^\s=&]*)=[^\s&'\")]*", re.IGNORECASE)
ORDER = (
    "demo", "run", "worker", "check", "status", "best", "forecast", "explain", "replay", "dashboard", "report",
    "export", "studies",
)  # fmt: skip
WIDE = 10_000  # columns where nobody looks at a screen: lines are not broken

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # where it comes from differs between versions of typer


class Commands(TyperGroup):
    """Errors of this package are one line and exit code 1; no message shows a password."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order in which a new user needs them."""
        return sorted(super().list_commands(ctx), key=lambda name: (*ORDER, name).index(name))

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except FreezeThawError as error:
            fail(str(error))
        except UsageError as error:
            if hasattr(error, "message"):
                error.message = masked(str(error.message))
            raise


LEFT = 3  # exit code of a command that a signal asked to leave
app = typer.Typer(
    cls=Commands,
    name="freezethaw",
    help="Tune anything that trains in epochs: start runs, freeze them, thaw those worth it.",
    epilog="Start with: freezethaw demo. Options --store and --name say which study is meant; FREEZETHAW_STORE in the "
    "environment stands for --store.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help is three times as quick
    pretty_exceptions_enable=False,  # would show local variables, passwords among them
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


def url_of(store: str | None) -> str | None:
    """A store as it is told; the path of a file means an SQLite file."""
    return store if store is None or ":" in store else f"sqlite:///{store}"


_STORE = typer.Option(
    "--store",
    envvar="FREEZETHAW_STORE",
    metavar="URL",
    show_envvar=True,
    callback=url_of,
    help="Where the study is: sqlite:///study.db, or its file, or postgresql+psycopg://user@host/database.",
)
StoreOption = Annotated[str, _STORE]
MaybeStoreOption = Annotated[str | None, _STORE]  # where not all that a command does needs one
NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Which study; not needed where the store has only one."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def fail(message: str) -> None:
    """One line on standard error, exit code 1."""
    line = " ".join(masked(message).split())
    typer.echo(f"freezethaw: {line}", err=True)
    raise typer.Exit(1)


def masked(text: str) -> str:
    """Without the passwords of URLs."""
    return SECRET.sub(r"\1=***", PASSWORD.sub(r"\1:***@", text))


def print_json(value: Any) -> None:
    """JSON that every reader takes: what is not finite is null."""
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def only_json(wanted: bool) -> Iterator[None]:
    """Where JSON is wanted, all else that anybody prints in this context, also a child process, goes to errors."""
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
    """For people: colours and the screen's width on a terminal, plain long lines elsewhere."""
    from rich.console import Console

    made = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not sys.stdout.isatty():
        made.width = WIDE
    return made


@contextmanager
def opened_store(url: str) -> Iterator[Store]:
    """A store that exists: looking must not create one."""
    from freezethaw.store import Store, urls

    parsed = urls.parse(url)
    if parsed.drivername == "sqlite" and not urls.sqlite_file(parsed).exists():
        raise StoreError(
            f"there is no store {urls.shown(parsed)}: no such file. A search makes one: freezethaw run --help"
        )
    with Store(url) as store:
        yield store


def study_name(store: Store, name: str | None) -> str:
    """The study that is meant: the only one where none is named."""
    if name is not None:
        return name
    names = [study.name for study in store.studies()]
    if len(names) == 1:
        return names[0]
    if not names:
        raise StudyError(f"there is no study in {store.url} yet")
    raise StudyError(f"which study? --name is one of {', '.join(map(repr, names[:20]))}")


@contextmanager
def opened_stored(url: str, name: str | None) -> Iterator[tuple[Store, StoredStudy]]:
    """A study as it is stored."""
    with opened_store(url) as store:
        yield store, store.open(study_name(store, name))


@contextmanager
def opened_study(url: str, name: str | None) -> Iterator[Study]:
    """A study that can forecast and decide."""
    with opened_store(url) as store:
        found = study_name(store, name)
        store.open(found)
    from freezethaw.study import Study

    study = Study.open(url, found)
    try:
        yield study
    finally:
        study.close()
