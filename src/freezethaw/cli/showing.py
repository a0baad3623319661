"""Commands that show a study as pictures: the web page, and a report in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freezethaw.cli.app import NameOption, StoreOption, app, fail, opened_store, print_json, study_name, url_of
from freezethaw.errors import FigureError


@app.command()
def dashboard(
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE", envvar="FREEZETHAW_STORE", callback=url_of, help="A store's URL, or an SQLite file."
        ),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8750,
    token: Annotated[
        str | None, typer.Option(envvar="FREEZETHAW_TOKEN", help="What opens the page; a new one unless given.")
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Make the store if it is not there, for trainers that ask.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the link as JSON.")] = False,
) -> None:
    """Show the studies of a store on a web page.

    The page follows studies that run, and stops, thaws or enqueues where you say so. It also serves
    the HTTP API. Only whoever has the link can open it, and only from this machine unless --host says otherwise.

    \b
    Examples:
      freezethaw dashboard digits.db
      freezethaw dashboard postgresql+psycopg://me@host/tuning --port 9000
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise FigureError("the page needs some libraries: pip install 'freezethaw[web]'") from None
    from freezethaw.server import serve
    from freezethaw.store import Store

    with Store(store) if new else opened_store(store) as opened:
        shown = opened.url

    def say(link: str) -> None:
        if as_json:
            print_json({"url": link})
        else:
            typer.echo(f"The studies of {shown}:\n\n    {link}\n\nCtrl-C ends it; studies go on.")

    serve(store, host, port, token, say)


@app.command()
def report(
    store: StoreOption,
    name: NameOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; the study's name with .html unless said.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print where it is as JSON.")] = False,
) -> None:
    """Write a study with all its figures into one HTML file.

    The file opens offline, anywhere.

    \b
    Examples:
      freezethaw report --store sqlite:///digits.db -o report.html
    """
    try:
        import starlette  # noqa: F401
    except ImportError:
        raise FigureError("a report needs some libraries: pip install 'freezethaw[web]'") from None
    from freezethaw.server import report_html

    with opened_store(store) as opened:
        found = study_name(opened, name)
        opened.open(found)
    file = output or Path("".join(c if c.isalnum() or c in "-_." else "-" for c in found) + ".html")
    text = report_html(store, found)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")
    if as_json:
        print_json({"file": str(file)})
    else:
        typer.echo(f"{file} ({len(text) / 1e6:.1f} MB) opens in any browser")
