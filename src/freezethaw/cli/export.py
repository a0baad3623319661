"""The command `export`."""

from __future__ import annotations

import csv
import io
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freezethaw.cli.app import NameOption, StoreOption, UsageError, app, fail, open_stored_study
from freezethaw.plain import plain

if TYPE_CHECKING:
    from freezethaw.records import StudyState
    from freezethaw.store import Storage


class Format(StrEnum):
    """File formats."""

    csv = "csv"
    json = "json"
    parquet = "parquet"


@app.command()
def export(
    store: StoreOption,
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

    Formats are CSV, JSON and Parquet (needs pandas and pyarrow). Columns of parameters start with `config.`, columns of
    further metrics with `metric.`.

    \b
    Examples:
      freezethaw export --store sqlite:///digits.db > digits.csv
      freezethaw export --store sqlite:///digits.db --runs -o runs.json
      freezethaw export --store sqlite:///digits.db -o digits.parquet
    """
    form = Format.json if as_json else form or _format_of(output)
    if form is Format.parquet and output is None:
        raise UsageError("Parquet is a binary format: --output FILE is required")
    with open_stored_study(store, name) as (_, study):
        known = study.load()
        tags = known.definition.get("tags")
        rows = _run_rows(known) if runs else _epoch_rows(known, study)
        rows = [row | {"tags": ", ".join(tags)} for row in rows] if tags else rows
    try:
        _write(rows, form, output)
    except OSError as error:
        if output is None:
            raise
        fail(f"cannot write {output}: {error.strerror}")


def _format_of(output: Path | None) -> Format:
    ending = "" if output is None else output.suffix.lstrip(".").lower()
    return Format(ending) if ending in list(Format) else Format.csv


def _epoch_rows(known: StudyState, study: Storage) -> list[dict[str, Any]]:
    rows = []
    for run in known.runs:
        metrics = study.metrics(run.number)
        config = {f"config.{key}": value for key, value in run.config.items()}
        for i, loss in enumerate(run.losses):
            row = {"run": run.number, "epoch": i + 1, "loss": loss, "seconds": run.seconds[i]}
            row |= {"state": run.state} | config
            rows.append(row | {f"metric.{key}": value for key, value in metrics[i].items()})
    return rows


def _run_rows(known: StudyState) -> list[dict[str, Any]]:
    sign = -1.0 if known.definition["direction"] == "maximize" else 1.0
    return [
        {
            "run": run.number,
            "state": run.state,
            "outcome": run.outcome,
            "epochs": run.epoch,
            "best_loss": min(run.losses, key=lambda y: sign * y) if run.losses else None,
            "last_loss": run.losses[-1] if run.losses else None,
            "from_elsewhere": run.added,
            **{f"config.{key}": value for key, value in run.config.items()},
        }
        for run in known.runs
    ]


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
