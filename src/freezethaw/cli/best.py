"""The command `best`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from freezethaw.cli.app import JsonOption, NameOption, ReadsStore, StoreArgument, app, console, open_study, print_json
from freezethaw.cli.formatting import number
from freezethaw.errors import StudyError

if TYPE_CHECKING:
    from freezethaw.records import Best
    from freezethaw.study import Study


@app.command(cls=ReadsStore)
def best(
    store: StoreArgument,
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the best configuration.

    Prints its lowest measured loss, the expected loss without noise, the forecast of the last epoch and the checkpoint.

    \b
    Examples:
      freezethaw best digits.db
      freezethaw best digits.db --json | jq .config
    """
    with open_study(store, name) as study:
        found = _best(study)
    if as_json:
        print_json(found)
    else:
        _show(found)


def _best(study: Study) -> dict[str, Any]:
    from freezethaw.study import read

    reader = read(study)
    best = reader.best
    if best is None:
        raise StudyError(f"study {study.name!r} has no finite {reader.metric} yet")
    end, recommended = best.forecast, reader.recommended
    low, high = (float(end.quantile(q)[0]) for q in (0.05, 0.95))
    return {
        "run": best.run,
        "epoch": best.epoch,
        "config": dict(best.config),
        "metric": reader.metric,
        "loss": best.loss,
        "expected": best.expected,
        "trained": reader.state.run(best.run).epoch,
        "end": {"epoch": reader.max_epochs, "mean": float(end.mean[0]), "low": low, "high": high},
        "checkpoint": None if best.checkpoint is None else str(best.checkpoint),
        "recommended": None if recommended is None else _epoch(recommended),
    }


def _epoch(best: Best) -> dict[str, Any]:
    return {"run": best.run, "epoch": best.epoch, "loss": best.loss, "expected": best.expected}


def _show(found: Mapping[str, Any]) -> None:
    out, end = console(), found["end"]
    out.print(f"run {found['run']}, epoch {found['epoch']}: {found['metric']} {number(found['loss'])}", style="bold")
    out.print(f"expected    {number(found['expected'])} without noise")
    interval = f"forecast, 90 % interval {number(end['low'])} to {number(end['high'])}"
    how = "measured" if found["trained"] >= end["epoch"] else interval
    out.print(f"at epoch {end['epoch']}  {number(end['mean'])} {how}")
    for key, value in found["config"].items():
        out.print(f"  {key} = {value!r}")
    other = found["recommended"]
    if other is not None and (other["run"], other["epoch"]) != (found["run"], found["epoch"]):
        expected = f"expected {found['metric']} {number(other['expected'])} without noise"
        out.print(f"recommended run {other['run']}, epoch {other['epoch']}: {expected}")
    if found["checkpoint"] is None:
        out.print("checkpoint  none: this run would have to be trained again from epoch 1")
    else:
        out.print(f"checkpoint  {found['checkpoint']}", soft_wrap=True)  # to be copied
