"""Learning curves of other tools, and how they are read from tables."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from freezethaw.errors import CurveError

Row = dict[str, Any]

# column names in order of preference, compared without case, spaces, dashes and underscores
RUN = ("runid", "trialid", "run", "trial", "runuuid", "trialnumber", "id", "name", "runname", "trialname")
EPOCH = ("epoch", "epochs", "trainingiteration", "iteration", "step", "globalstep", "trainer/globalstep")
METRIC = ("loss", "valloss", "validationloss", "val/loss", "validloss", "evalloss", "eval/loss", "testloss")
CONFIG = ("config/", "config.", "params.", "params/", "param.", "hparams.", "hparams/")  # prefixes of parameter columns
METADATA = {
    "runtime", "timestamp", "date", "datetime", "created", "createdat", "updatedat", "starttime", "endtime",
    "state", "status", "done", "hostname", "nodeip", "pid", "user", "username", "experimentid", "experimentname",
    "experimenttag", "trialid", "runid", "runuuid", "runname", "trialname", "trialnumber", "name", "id",
    "iterationssincerestore", "notes", "tags", "group", "jobtype", "sweep", "logdir", "entity", "project",
    "shouldcheckpoint", "checkpointdirname", "episodestotal", "artifacturi", "key", "value", "index",
}  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """The losses of one run, one per epoch. The last may be infinite or NaN: the run diverged."""

    config: dict[str, Any]
    losses: tuple[float, ...]
    name: str = ""
    about: dict[str, Any] = field(default_factory=dict)  # other values, kept as the metrics of the last epoch

    def __post_init__(self) -> None:
        if not self.losses:
            raise CurveError(f"run {self.name!r} has no losses")
        if not all(map(math.isfinite, self.losses[:-1])):
            raise CurveError(f"run {self.name!r} has a loss that is not finite before its last epoch")

    @property
    def diverged(self) -> bool:
        """Whether the last loss is not finite."""
        return not math.isfinite(self.losses[-1])


def curve_of(losses: Mapping[float, float], config: Mapping[str, Any], name: str, usual: float = 1.0) -> Curve:
    """A curve from losses by epoch. Epochs start at 0 or 1 and are equally spaced; a diverged curve ends there.

    The spacing of a curve with one loss is `usual`.
    """
    epochs = sorted(losses)
    if not epochs:
        raise CurveError(f"run {name!r} has no losses")
    distances = [later - earlier for earlier, later in pairwise(epochs)]
    distance = min(distances, default=usual)
    for before, found in zip(epochs, distances, strict=False):
        if found > 1.001 * distance:
            raise CurveError(
                f"run {name!r} has a gap: no loss between epochs {before:g} and {before + found:g}, but otherwise one "
                f"every {distance:g}; keep only equally spaced rows"
            )
    if epochs[0] > 1.001 * distance:
        raise CurveError(f"run {name!r} starts at epoch {epochs[0]:g}: its first losses are missing")
    values = [losses[epoch] for epoch in epochs]
    ends = next((i for i, value in enumerate(values, 1) if not math.isfinite(value)), len(values))
    return Curve(dict(config), tuple(values[:ends]), name)


def usual_distance(runs: Iterable[Iterable[float]]) -> float:
    """The smallest spacing of epochs; 1 if no run has two epochs."""
    return min((later - earlier for epochs in runs for earlier, later in pairwise(sorted(epochs))), default=1.0)


def read_table(path: str | Path, metric: str | None = None) -> tuple[Curve, ...]:
    """Read learning curves from a CSV, TSV, JSON or JSONL file with one row per epoch and run.

    Columns are recognised by name: the run (`run_id`, `trial_id`, `Name`, ...), the epoch (`epoch`,
    `training_iteration`, `step`, ...) and the loss (`metric`, or by default `loss`, `val_loss`, ...). Columns
    `config/...` and `params....` are the configuration; without any, every column that is constant within each run.
    A W&B chart, with a column `RUN - METRIC` for each run, is read too.
    """
    file = Path(path)
    rows = [row | _ray_tune_config(file) for row in _rows(file)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not rows:
        raise CurveError(f"{file.name} has no rows")
    chart = _chart(rows, columns, metric)
    if chart:
        return chart
    if {"key", "value"} <= set(columns):  # MLflow's metric history
        rows, columns, metric = _select_metric(rows, columns, metric)
    loss = str(_column(columns, METRIC, "loss", metric))
    rows = [row for row in rows if _present(row.get(loss))]
    if not rows:
        raise CurveError(f"column {loss!r} is empty; {_list(columns)}")
    run = _column(columns, RUN, "run", optional=True)
    epoch = _column(columns, EPOCH, "epoch", optional=run is not None)
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if run is not None and not _known(row.get(run)):
            raise CurveError(f"column {run!r} is empty in some rows; every row must name its run")
        groups.setdefault("1" if run is None else str(row[run]), []).append(row)
    if len(groups) > 1 and all(len(group) == 1 for group in groups.values()):
        raise CurveError(
            f"{file.name} has only one row per {run}: it is a summary; export the history, with one row per epoch"
        )
    names = _configuration(groups, [name for name in columns if name not in (run, epoch, loss)])
    usual = 1.0
    if epoch is not None:
        usual = usual_distance({_number(row, epoch, name) for row in group} for name, group in groups.items())
    return tuple(_read_run(name, group, epoch, loss, names, usual) for name, group in groups.items())


def _rows(file: Path) -> list[Row]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CurveError(f"cannot read {file}: {error}") from None
    try:
        match file.suffix.lower():
            case ".json" | ".jsonl" | ".ndjson":
                return [_flatten(row) for row in _json_rows(text)]
            case ".csv" | ".tsv" | ".txt":
                first = text.partition("\n")[0]
                reader = csv.DictReader(text.splitlines(), delimiter="\t" if "\t" in first else ",", strict=True)
                return [{k: _parse(v) for k, v in row.items() if k} for row in reader]
    except (ValueError, TypeError, csv.Error) as error:
        raise CurveError(f"{file.name} is not a table: {error}") from None
    raise CurveError(f"{file.name}: the extension must be .csv, .tsv, .json or .jsonl")


def _ray_tune_config(file: Path) -> Row:
    """The configuration in the params.json that Ray Tune writes beside the results of a run."""
    params = file.with_name("params.json")
    if file.name not in ("progress.csv", "result.json") or not params.is_file():
        return {}
    try:
        return _flatten({"config": json.loads(params.read_text(encoding="utf-8"))})
    except ValueError as error:
        raise CurveError(f"{params} is not valid JSON: {error}") from None


def _json_rows(text: str) -> list[Mapping[str, Any]]:
    """Rows from a list of rows, a dict of columns, or one row per line."""
    try:
        found = json.loads(text)
    except ValueError:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(found, Mapping):
        lists = {k: list(v.values()) if isinstance(v, Mapping) else v for k, v in found.items()}
        lengths = {len(v) if isinstance(v, list) else -1 for v in lists.values()}
        if len(lengths) != 1 or -1 in lengths:
            return [found]
        found = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    if not all(isinstance(row, Mapping) for row in found):
        raise ValueError("expected a list of rows, each with its columns")
    return list(found)


def _flatten(row: Mapping[str, Any], before: str = "") -> Row:
    """Flatten nested mappings: {"config": {"lr": 1}} becomes {"config/lr": 1}."""
    found: Row = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            found |= _flatten(value, f"{before}{key}/")
        elif isinstance(value, list):
            found[f"{before}{key}"] = json.dumps(value)
        else:
            found[f"{before}{key}"] = value
    return found


def _parse(text: Any) -> Any:
    """Parse a CSV cell as a number, a Boolean or a text; None if it is empty."""
    if text is None or not isinstance(text, str) or not text.strip():
        return None
    text = text.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _present(value: Any) -> bool:
    return value is not None and value != ""


def _known(value: Any) -> bool:
    return _present(value) and not (isinstance(value, float) and math.isnan(value))


def _normalised(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def _list(columns: Iterable[str]) -> str:
    names = list(columns)
    return f"there are: {', '.join(names[:30])}{' ...' if len(names) > 30 else ''}"


def _column(
    columns: Sequence[str], known: Sequence[str], what: str, wanted: str | None = None, optional: bool = False
) -> str | None:
    if wanted is not None:
        exact = [name for name in columns if name == wanted] or [
            name for name in columns if _normalised(name) == _normalised(wanted)
        ]
        if not exact:
            raise CurveError(f"there is no column {wanted!r}; {_list(columns)}")
        return exact[0]
    found = next((name for like in known for name in columns if _normalised(name) == like), None)
    if found is None and not optional:
        advice = "name it with metric" if what == "loss" else f"rename one to {what!r}"
        raise CurveError(f"no column looks like the {what}; {advice}; {_list(columns)}")
    return found


def _select_metric(rows: list[Row], columns: list[str], metric: str | None) -> tuple[list[Row], list[str], str]:
    """Select the rows of one metric, whose name is in the column `key`."""
    keys = list(dict.fromkeys(str(row.get("key")) for row in rows))
    wanted = keys[0] if metric is None and len(keys) == 1 else metric or _column(keys, METRIC, "loss")
    if wanted not in keys:
        raise CurveError(f"there is no metric {wanted!r} in the column 'key'; {_list(keys)}")
    return [row for row in rows if str(row.get("key")) == wanted], columns, "value"


def _chart(rows: list[Row], columns: list[str], metric: str | None) -> tuple[Curve, ...]:
    """The curves of a W&B chart: a column of epochs and a column `RUN - METRIC` per run. Empty if it is no chart."""
    epoch = _column(columns, EPOCH, "epoch", optional=True)
    named = {name: name.rsplit(" - ", 1) for name in columns if " - " in name and not name.endswith(("__MIN", "__MAX"))}
    if epoch is None or not named:
        return ()
    metrics = Counter(of for _, of in named.values() if of != epoch and not of.startswith("_"))
    of = metric or (next(iter(metrics)) if len(metrics) == 1 else _column(list(metrics), METRIC, "loss"))
    if of not in metrics:
        raise CurveError(f"there is no column '... - {of}'; {_list(columns)}")
    curves = []
    for column, (run, found) in named.items():
        losses = {_number(row, epoch, run): _number(row, column, run) for row in rows if _present(row.get(column))}
        if found == of and losses:
            curves.append(curve_of(losses, {}, run))
    return tuple(curves)


def _configuration(groups: Mapping[str, Sequence[Row]], columns: Sequence[str]) -> dict[str, str]:
    """The columns of the configuration, with the names of the parameters."""
    prefixed = {name: name[len(p) :] for name in columns for p in CONFIG if name.startswith(p) and name != p}
    if prefixed:
        return prefixed
    return {name: name for name in columns if not _is_metadata(name) and _is_value(name, groups)}


def _is_metadata(name: str) -> bool:
    normalised = _normalised(name)
    return (
        name.startswith("_")
        or normalised in METADATA
        or normalised.startswith(("time", "metrics.", "system/", "unnamed:"))
    )


def _is_value(name: str, groups: Mapping[str, Sequence[Row]]) -> bool:
    """Whether a column is constant within each run. A text that differs between all runs is a name, not a value."""
    found = [{json.dumps(row.get(name), default=str) for row in group} for group in groups.values()]
    if any(len(values) > 1 for values in found):
        return False
    values = [group[0].get(name) for group in groups.values()]
    texts = [value for value in values if isinstance(value, str)]
    return any(map(_known, values)) and not (len(texts) == len(values) > 2 and len(set(texts)) == len(texts))


def _read_run(
    name: str, rows: Sequence[Row], epoch: str | None, loss: str, names: Mapping[str, str], usual: float
) -> Curve:
    losses = {}
    for number, row in enumerate(rows, 1):  # the later of two rows for one epoch counts
        losses[float(number) if epoch is None else _number(row, epoch, name)] = _number(row, loss, name)
    last = rows[-1]
    values = {short: last.get(column) for column, short in names.items()}
    values = {k: _parse(v) if isinstance(v, str) else v for k, v in values.items()}  # MLflow stores numbers as texts
    config = {k: v for k, v in values.items() if _known(v)}
    return curve_of(losses, config, name, usual)


def _number(row: Row, column: str, run: str) -> float:
    value = row.get(column)
    if isinstance(value, str):  # JSON has no NaN: it is written as a text
        value = _parse(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CurveError(f"run {run!r}: {value!r} in column {column!r} is not a number")
    return float(value)
