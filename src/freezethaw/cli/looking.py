"""Commands that look at a study and change nothing: studies, status, best, forecast, explain, replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freezethaw.cli import words
from freezethaw.cli.app import (
    JsonOption,
    NameOption,
    StoreOption,
    app,
    console,
    opened_store,
    opened_stored,
    opened_study,
    print_json,
)
from freezethaw.errors import StudyError

if TYPE_CHECKING:
    from freezethaw.store import Event, StoredStudy
    from freezethaw.study import Study

STATES = ("pending", "frozen", "finished", "diverged", "failed")
BANDS = (0.05, 0.25, 0.75, 0.95)


@app.command()
def studies(store: StoreOption, as_json: JsonOption = False) -> None:
    """List the studies of a store.

    \b
    Example:
      freezethaw studies --store sqlite:///digits.db
    """
    with opened_store(store) as opened:
        found = opened.studies()
    if as_json:
        print_json([asdict(study) for study in found])
        return
    if not found:
        typer.echo("no study yet")
        return
    from rich.table import Table

    table = Table("study", "runs", "epochs", "decisions", "created", box=None)
    for study in found:
        table.add_row(study.name, str(study.runs), str(study.epochs), str(study.decisions), study.created)
    console().print(table)


@app.command()
def status(
    store: StoreOption,
    name: NameOption = None,
    last: Annotated[int, typer.Option("--last", min=0, help="How many decisions and events to show.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Show how far a study is.

    Runs, budget, best loss, who trains what, the last decisions and why, and events.

    \b
    Examples:
      freezethaw status --store sqlite:///digits.db
      freezethaw status --store postgresql+psycopg://me@host/tuning --name mnist --last 20
      freezethaw status --store sqlite:///digits.db --json | jq .epochs
    """
    with opened_stored(store, name) as (opened, study):
        found = _status(study, last) | {"store": opened.url}
    if as_json:
        print_json(found)
    else:
        _show_status(found)


def _status(study: StoredStudy, last: int) -> dict[str, Any]:
    from freezethaw.store import Process
    from freezethaw.study.facts import Facts

    known = study.load()
    definition = known.definition
    facts = Facts(definition["max_epochs"], known.runs, known.pending, known.decisions, known.wishes)
    here = Process.current()
    holders = {lease.decision: lease for lease in study.leases() if lease.decision}
    pending = []
    for decision in known.pending:
        lease = holders.get(decision.number)
        held = lease is not None and lease.held
        pending.append(
            {
                "decision": decision.number,
                "run": decision.run,
                "epoch": facts.run(decision.run).epoch,
                "to_epoch": decision.to_epoch,
                "holder": str(lease.holder) if lease is not None and held else None,
                "dead": bool(lease is not None and held and lease.holder.is_dead(here)),
            }
        )
    decisions = [study.decision(n) for n in range(max(known.decisions - last, 0) + 1, known.decisions + 1)]
    states: Counter[str] = Counter(run.state for run in known.runs if not run.added)
    return {
        "name": study.name,
        "direction": definition["direction"],
        "max_epochs": definition["max_epochs"],
        "budget": definition.get("budget") or {},
        "epochs": facts.epochs_trained(),
        "hours": facts.seconds_trained() / 3600,
        "runs": {state: states[state] for state in STATES if states[state]},
        "added_runs": sum(run.added for run in known.runs),
        "best": _lowest(known.runs, definition["direction"]),
        "pending": pending,
        "wishes": len(known.wishes),
        "checkpoint_bytes": sum(checkpoint.bytes for checkpoint in known.checkpoints),
        "decisions": [
            {
                "number": d.decision.number,
                "kind": d.decision.kind,
                "run": d.decision.run,
                "to_epoch": d.decision.to_epoch,
                "state": d.state,
                "outcome": d.outcome,
                "reason": d.decision.reason,
            }
            for d in decisions
        ],
        "events": [_event(event) for event in _last_events(study, last)],
    }


def _lowest(runs: Sequence[Any], direction: str) -> dict[str, Any] | None:
    """The best loss as told: no model is asked, so that looking is quick."""
    sign = -1.0 if direction == "maximize" else 1.0
    losses = [(sign * loss, run.number, epoch) for run in runs for epoch, loss in enumerate(run.losses, 1)]
    if not losses:
        return None
    loss, run, epoch = min(losses)
    return {"loss": sign * loss, "run": run, "epoch": epoch, "config": dict(runs[run - 1].config)}


def _last_events(study: StoredStudy, last: int) -> list[Event]:
    events: list[Event] = []
    while page := study.events(after=events[-1].number if events else 0):
        events = [*events, *page][-max(last, 1) :]
    return events if last else []


def _event(event: Event) -> dict[str, Any]:
    return {"at": event.at, "kind": event.kind, "run": event.run, "epoch": event.epoch, "text": event.text}


def _show_status(found: Mapping[str, Any]) -> None:
    out = console()
    out.print(f"study {found['name']} in {found['store']}", style="bold")
    runs = ", ".join(f"{count} {state}" for state, count in found["runs"].items()) or "none yet"
    added = f", {found['added_runs']} from elsewhere" if found["added_runs"] else ""
    out.print(f"runs      {sum(found['runs'].values())}: {runs}{added}")
    out.print(f"budget    {_budget_line(found)}")
    best = found["best"]
    if best is None:
        out.print("best      no loss yet")
    else:
        where = f"run {best['run']}, epoch {best['epoch']} of {found['max_epochs']}"
        out.print(f"best      {words.number(best['loss'])} ({found['direction']}d): {where}")
        out.print(f"          {words.config(best['config'])}")
    if found["checkpoint_bytes"]:
        out.print(f"disk      {words.size(found['checkpoint_bytes'])} of checkpoints")
    for decision in found["pending"]:
        who = decision["holder"] or "nobody: any worker may take it over"
        dead = ", which has ended: any worker may take it over" if decision["dead"] else ""
        out.print(f"under way run {decision['run']}, epoch {decision['epoch']} of {decision['to_epoch']}: {who}{dead}")
    if found["wishes"]:
        out.print(f"wishes    {found['wishes']} waiting")
    if found["decisions"]:
        out.print("\nlast decisions", style="bold")
    for decision in found["decisions"]:
        state = decision["outcome"] or decision["state"]
        out.print(f"  {decision['number']:4d}  run {decision['run']:<4d} {state:11s} {decision['reason']}")
    if found["events"]:
        out.print("\nevents", style="bold")
    for event in found["events"]:
        out.print(f"  {event['at']}  {event['kind']}: {event['text']}")


def _budget_line(found: Mapping[str, Any]) -> str:
    budget = found["budget"]
    parts = [f"{found['epochs']}" + (f" of {budget['epochs']} epochs" if budget.get("epochs") else " epochs")]
    if budget.get("hours") or found["hours"] > 0:
        limit = f" of {budget['hours']:g} h" if budget.get("hours") else ""
        parts.append(f"{words.duration(3600 * found['hours'])}{limit} of training")
    if budget.get("target") is not None:
        parts.append(f"target {words.number(budget['target'])}")
    if budget.get("worthwhile") is not None:
        parts.append(f"until less than {words.number(budget['worthwhile'])} is expected")
    return ", ".join(parts)


@app.command()
def best(
    store: StoreOption,
    name: NameOption = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(help="The folder of the checkpoints; beside an SQLite file unless said.", metavar="FOLDER"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the best configuration.

    With its loss, what is expected with the noise removed, and its checkpoint.

    \b
    Examples:
      freezethaw best --store sqlite:///digits.db
      freezethaw best --store sqlite:///digits.db --json | jq .config
    """
    with opened_study(store, name) as study:
        found = study.best
        if found is None:
            raise StudyError(f"study {study.name!r} has no finite loss yet")
        run, last = found.run, study.max_epochs
        end = found.forecast
        losses, sign = study.runs[run - 1].losses, -1.0 if study.direction == "maximize" else 1.0
        kept = study.shared.stored.checkpoints(run)
        saved = min(kept, key=lambda c: (c.epoch != found.epoch, sign * losses[c.epoch - 1]), default=None)
    place = None if saved is None else f"{_folder(store, checkpoints)}/{saved.place}"
    result = {
        "run": run,
        "epoch": found.epoch,
        "config": dict(found.config),
        "loss": found.loss,
        "expected": found.expected,
        "end": {"epoch": last, "mean": float(end.mean[0]), "low": _at(end, 0.05), "high": _at(end, 0.95)},
        "checkpoint": place,
        "checkpoint_epoch": None if saved is None else saved.epoch,
    }
    if as_json:
        print_json(result)
        return
    out = console()
    out.print(f"run {run}, epoch {found.epoch}: loss {words.number(found.loss)}", style="bold")
    out.print(f"expected    {words.number(found.expected)} with the noise removed")
    out.print(f"at epoch {last:<3d}{_interval(end)}")
    for key, value in found.config.items():
        out.print(f"  {key} = {value!r}")
    if saved is None:
        out.print("checkpoint  none")
    else:
        out.print(f"checkpoint  {place}" + ("" if saved.epoch == found.epoch else f" (of epoch {saved.epoch})"))


def _folder(store: str, folder: str | None) -> str:
    """Where `tune` keeps checkpoints unless told otherwise."""
    from pathlib import Path

    if folder is not None:
        return folder.rstrip("/")
    file = store.removeprefix("sqlite:///") if store.startswith("sqlite:///") else ""
    return str((Path(file).absolute().parent if file else Path().absolute()) / "checkpoints")


def _at(forecast: Any, q: float, entry: int = 0) -> float:
    return float(forecast.quantile(q)[entry])


def _interval(end: Any) -> str:
    low, high = words.number(_at(end, 0.05)), words.number(_at(end, 0.95))
    return f" {words.number(float(end.mean[0]))} forecast, 90 % between {low} and {high}"


@app.command()
def forecast(
    what: Annotated[
        list[str],
        typer.Argument(metavar="RUN|CONFIG", help="A run's number, name=value pairs, or a configuration in JSON."),
    ],
    store: StoreOption,
    name: NameOption = None,
    epochs: Annotated[
        str | None, typer.Option("--epochs", metavar="E,E,...", help="Epochs to forecast, besides the last one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Forecast losses.

    Of a run, or of a configuration that was never trained: mean, 50 % and 90 % intervals.

    \b
    Examples:
      freezethaw forecast 3 --store sqlite:///digits.db
      freezethaw forecast 3 --epochs 10,20 --store sqlite:///digits.db
      freezethaw forecast learning_rate=0.01 hidden=64 momentum=0.9 --store sqlite:///digits.db
    """
    at = _epochs(epochs)
    with opened_study(store, name) as study:
        found = _forecast(study, _run_or_config(what), at)
    if as_json:
        print_json(found)
        return
    from rich.table import Table

    out = console()
    subject = "a new run" if found["run"] is None else f"run {found['run']}, {found['state']}"
    out.print(f"{subject}: {words.config(found['config'])}", style="bold")
    if found["curve"]:
        shown = words.count(len(found["curve"]), "epoch")
        out.print(f"so far    {words.sparkline(found['curve'])}  {shown}, last loss {words.number(found['curve'][-1])}")
    out.print(f"forecast  {words.sparkline(found['path'])}  to epoch {found['max_epochs']}\n")
    table = Table("epoch", "mean", "50 %", "90 %", box=None)
    for entry in found["forecasts"]:
        bands = [f"{words.number(low)} to {words.number(high)}" for low, high in (entry["half"], entry["most"])]
        table.add_row(f"{entry['epoch']:g}", words.number(entry["mean"]), *bands)
    out.print(table)


def _epochs(text: str | None) -> list[float]:
    try:
        found = [float(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise typer.BadParameter(f"--epochs is {text!r}; write numbers with commas, such as 10,20") from None
    if any(not 0 < epoch < 1e9 for epoch in found):
        raise typer.BadParameter(f"--epochs is {text!r}; epochs are positive")
    return found


def _run_or_config(given: Sequence[str]) -> int | dict[str, Any]:
    import json

    if len(given) == 1 and given[0].isdigit():
        return int(given[0])
    if len(given) == 1 and given[0].lstrip().startswith("{"):
        try:
            found: dict[str, Any] = json.loads(given[0])
        except ValueError as error:
            raise typer.BadParameter(f"the configuration is no JSON: {error}") from None
        return found
    return read_pairs(given)


def read_pairs(given: Sequence[str]) -> dict[str, Any]:
    """name=value pairs; a value is read as JSON where it is some, else as text."""
    import json

    found: dict[str, Any] = {}
    for part in given:
        key, sign, value = part.partition("=")
        if not sign or not key:
            raise typer.BadParameter(f"{part!r} is neither a run's number nor name=value")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def _forecast(study: Study, what: int | dict[str, Any], at: list[float]) -> dict[str, Any]:
    import numpy as np

    last = study.max_epochs
    if isinstance(what, int):
        if not 1 <= what <= len(study.runs):
            raise StudyError(f"there is no run {what}; the study has {words.count(len(study.runs), 'run')}")
        run = study.runs[what - 1]
        number, config, curve, state = run.number, dict(run.config), list(run.losses), str(run.state)
    else:
        number, config, curve, state = None, study.space.validate(what), [], ""
    rows = sorted({*at, float(last)})
    path = [float(e) for e in np.unique(np.linspace(min(len(curve) + 1, last), last, 60).round())]
    subject = number if number is not None else config
    ahead = study.forecast(subject, rows)
    quantiles = ahead.quantile(BANDS)
    return {
        "run": number,
        "state": state,
        "config": config,
        "max_epochs": last,
        "curve": curve,
        "path": [float(y) for y in study.forecast(subject, path).mean],
        "forecasts": [
            {
                "epoch": epoch,
                "mean": float(ahead.mean[i]),
                "std": float(ahead.std[i]),
                "half": [float(quantiles[1, i]), float(quantiles[2, i])],
                "most": [float(quantiles[0, i]), float(quantiles[3, i])],
            }
            for i, epoch in enumerate(rows)
        ],
    }


NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="The decision's number.")]


@app.command()
def explain(number: NumberArgument, store: StoreOption, name: NameOption = None, as_json: JsonOption = False) -> None:
    """Show what a decision compared.

    The basket, best first, with its numbers.

    \b
    Example:
      freezethaw explain 17 --store sqlite:///digits.db
    """
    with opened_stored(store, name) as (_, study):
        found = study.decision(number)
    decision = found.decision
    if as_json:
        print_json(asdict(decision) | {"state": found.state, "outcome": found.outcome, "basket": list(found.basket)})
        return
    from rich.table import Table

    out = console()
    out.print(f"decision {number}: {decision.reason}", style="bold")
    out.print(
        f"{decision.kind} run {decision.run}, epoch {decision.from_epoch} to {decision.to_epoch}; "
        f"{found.outcome or found.state}\n{words.config(decision.config)}\n"
    )
    if not found.basket:
        out.print("no basket: nothing was compared for it")
        return
    table = Table("", "candidate", "epoch", "best up to", "score", "chance", "configuration", box=None)
    for place, entry in enumerate(found.basket, 1):
        candidate = "new" if entry["run"] is None else f"run {entry['run']}"
        numbers = (words.number(_float(entry["score"]), 3), words.percent(_float(entry["chance"])))
        table.add_row(
            str(place), candidate, str(entry["epoch"]), str(entry["to_epoch"]), *numbers, words.config(entry["config"])
        )
    out.print(table)


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)


@app.command()
def replay(number: NumberArgument, store: StoreOption, name: NameOption = None, as_json: JsonOption = False) -> None:
    """Take a decision again.

    From what was known then; says whether it is the same. Exit code 1 where it differs.

    \b
    Example:
      freezethaw replay 17 --store sqlite:///digits.db
    """
    with opened_study(store, name) as study:
        taken = study.shared.stored.decision(number).decision
        again = study.replay(number)
    run = taken.run if again.run is None and taken.from_epoch == 0 else again.run
    pairs = {
        "run": (taken.run, run),
        "config": (dict(taken.config), dict(again.config)),
        "to_epoch": (taken.to_epoch, again.to_epoch),
        "reason": (taken.reason, again.reason),
    }
    differs = {key: {"taken": old, "replayed": new} for key, (old, new) in pairs.items() if old != new}
    if as_json:
        print_json({"number": number, "same": not differs, "reason": taken.reason, "differences": differs})
    else:
        out = console()
        out.print(f"decision {number}: {taken.reason}")
        out.print("taken again: the same" if not differs else "taken again: it differs", style="bold")
        for key, values in differs.items():
            out.print(f"  {key}: was {values['taken']}, now {values['replayed']}")
    if differs:
        raise typer.Exit(1)
