"""The command `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freezethaw.cli.app import NameOption, ReadsStore, StoreArgument, app, fail, open_store, print_json, study_name
from freezethaw.errors import FigureError


@app.command(cls=ReadsStore)
def report(
    store: StoreArgument,
    name: NameOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file; by default the study's name with .html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the path of the file as JSON.")] = False,
) -> None:
    """Write a report of a study as one HTML file.

    It contains all figures and needs no network.

    \b
    Example:
      freezethaw report digits.db -o report.html
    """
    try:
        import starlette  # noqa: F401
    except ImportError:
        raise FigureError("a report needs additional packages: pip install 'freezethaw[web]'") from None
    from freezethaw.server import report_html

    with open_store(store) as opened:
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
        typer.echo(f"wrote {file} ({len(text) / 1e6:.1f} MB)")
