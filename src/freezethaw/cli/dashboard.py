"""The command `dashboard`."""

from __future__ import annotations

from typing import Annotated

import typer

from freezethaw.cli.app import ReadsStore, StoreArgument, app, open_store, print_json, store_url
from freezethaw.errors import FigureError


@app.command(cls=ReadsStore)
def dashboard(
    store: StoreArgument,
    more: Annotated[list[str] | None, typer.Argument(metavar="[STORE]...", help="Further stores.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 selects a free one.")] = 8750,
    token: Annotated[
        str | None, typer.Option(envvar="FREEZETHAW_TOKEN", help="Access token; by default a new random one.")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Create the store if it does not exist.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the link as JSON.")] = False,
) -> None:
    """Show the studies of one or more stores on a web page.

    The page updates itself and can stop a study, thaw runs and enqueue configurations. The server also provides the
    HTTP API. Access needs the token in the link; by default the server accepts connections from this machine only.

    \b
    Examples:
      freezethaw dashboard digits.db
      freezethaw dashboard digits.db mnist.db
      freezethaw dashboard postgresql+psycopg://me@host/tuning --port 9000
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise FigureError("the dashboard needs additional packages: pip install 'freezethaw[web]'") from None
    from freezethaw.server import serve
    from freezethaw.store import Store

    stores, shown = [store, *(str(store_url(url)) for url in more or ())], list[str]()
    for url in stores:
        with Store(url) if new else open_store(url) as opened:
            shown.append(opened.url)

    def announce(link: str) -> None:
        if as_json:
            print_json({"url": link})
        else:
            typer.echo(f"Studies of {', '.join(shown)}:\n\n    {link}\n\nCtrl-C stops the server; studies continue.")

    serve(stores, host, port, token, announce)
