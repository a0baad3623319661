"""The command `export`."""

from __future__ import annotations

import csv
import io
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from freezethaw.cli.app import NameOption, ReadsStore, StoreArgument, UsageError, app, fail, open_stored_study
from freezethaw.plain import plain


class Format(StrEnum):
    """File formats."""

    csv = "csv"
    json = "json"
    parquet = "parquet"


@app.command(cls=ReadsStore)
def export(
    store: StoreArgument,
    name: NameOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file; by default standard output.")
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="File format; by default from the extension of the output file, or csv."),
    ] = None,
    runs: Annotated[bool, typer.Option("--runs", help="One row per run instead of one per epoch.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
) -> None:
    """Write all losses as a table.

    Formats are CSV, JSON and Parquet (needs pandas and pyarrow). Columns are those of `study.to_dataframe()`:
    parameters start with `config.`, further metrics with `metric.`.

    \b
    Examples:
      freezethaw export digits.db > digits.csv
      freezethaw export digits.db --runs -o runs.json
      freezethaw export digits.db -o digits.parquet
    """
    from freezethaw.study.summary import epoch_rows, run_rows

    form = Format.json if as_json else form or _format_of(output)
    if form is Format.parquet and output is None:
        raise UsageError("Parquet is a binary format: --output FILE is required")
    with open_stored_study(store, name) as (_, study):
        known = study.load()
        rows = run_rows(known) if runs else epoch_rows(study, known)
    try:
        _write(rows, form, output)
    except OSError as error:
        if output is None:
            raise
        fail(f"cannot write {output}: {error.strerror}")


def _format_of(output: Path | None) -> Format:
    ending = "" if output is None else output.suffix.lower()
    if ending and ending.lstrip(".") not in list(Format):
        raise UsageError(f"{output}: cannot write {ending} files; use .csv, .json or .parquet, or give --format")
    return Format(ending.lstrip(".")) if ending else Format.csv


def _write(rows: list[dict[str, Any]], form: Format, output: Path | None) -> None:
    if form is Format.parquet and output is not None:
        _write_parquet(rows, output)
        return
    text = json.dumps(plain(rows), indent=1, ensure_ascii=False) + "\n" if form is Format.json else _as_csv(rows)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


def _as_csv(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "" if value is None else value for key, value in plain(row).items()})
    return out.getvalue()


def _write_parquet(rows: list[dict[str, Any]], output: Path) -> None:
    try:
        import pandas as pd

        pd.DataFrame(rows).to_parquet(output)
    except ImportError:
        fail("Parquet needs pandas and pyarrow: pip install pandas pyarrow")
