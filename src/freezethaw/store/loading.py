"""Reading a study: all of it, only what changed since a known state, or its state at an earlier change.

Losses carry the change that recorded them; decisions, requests and checkpoints carry when they began and ended.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, Select, func, or_, select

from freezethaw.errors import StudyError
from freezethaw.records import (
    RECENT_DECISIONS,
    BasketEntry,
    Decision,
    DecisionRecord,
    History,
    Overheads,
    Request,
    Run,
    StudyState,
)
from freezethaw.store import documents, rows, rules
from freezethaw.store.tables import decisions, definitions, epochs, requests, runs

FEW = 500  # changed runs that are queried one by one

Points = dict[int, list[tuple[float, float]]]  # losses and seconds by run


def load(connection: Connection, study: int, known: StudyState | None = None) -> StudyState:
    """The state now; with `known`, only what changed since is read."""
    head = rows.read_head(connection, study)
    since = -1 if known is None else known.change
    if known is not None and head.change == since:
        return known
    changed = list(connection.execute(select(runs).where(runs.c.study == study, runs.c.change > since)))
    points = _new_points(connection, study, [row.run for row in changed], since)
    by_number = {run.number: run for run in known.runs} if known is not None else {}
    for row in changed:
        by_number[row.run] = _run(row, by_number.get(row.run), points[row.run])
    same = known is not None and known.version == head.definition
    definition = known.definition if known is not None and same else read_definition(connection, study, head.definition)
    pending = _pending(connection, study, by_number)
    return StudyState(
        head.change,
        head.definition,
        definition,
        tuple(by_number[number] for number in sorted(by_number)),
        pending,
        head.decisions,
        _requests(connection, _waiting(study), by_number),
        rows.existing_checkpoints(connection, study),
        _last_run(connection, study, head.decisions, pending),
        known.overheads
        if known is not None and known.decisions == head.decisions
        else _overheads(connection, study, head.decisions),
    )


def load_at(connection: Connection, study: int, at: int) -> StudyState:
    """The state as of change `at`: what a decision saw, for a replay."""
    head = rows.read_head(connection, study)
    if not 0 <= at <= head.change:
        raise StudyError(f"the study has changes 0 to {head.change}, not {at!r}")
    query = select(definitions).where(definitions.c.study == study, definitions.c.change <= at)
    defined = connection.execute(query.order_by(definitions.c.version.desc()).limit(1)).one()
    definition = documents.load(defined.document)
    query = select(epochs.c.run, epochs.c.loss, epochs.c.seconds).where(epochs.c.study == study, epochs.c.change <= at)
    points = _points(connection.execute(query.order_by(epochs.c.run, epochs.c.epoch)))
    query = _joined_decisions().where(decisions.c.study == study, decisions.c.committed <= at)
    taken = [_record(row) for row in connection.execute(query.order_by(decisions.c.number))]
    latest = {d.decision.run: d for d in taken}  # a run has one decision at a time
    by_number: dict[int, Run] = {}
    query = select(runs).where(runs.c.study == study, runs.c.created <= at).order_by(runs.c.run)
    for row in connection.execute(query):
        run = _run(row, None, points[row.run])
        state, outcome = rules.state_at(run, latest.get(row.run), run.epoch, at, definition["max_epochs"])
        by_number[row.run] = replace(run, state=state, outcome=outcome)
    pending = tuple(d.decision for d in taken if rules.is_pending(d, at))
    return StudyState(
        at,
        defined.version,
        definition,
        tuple(by_number.values()),
        pending,
        taken[-1].decision.number if taken else 0,
        _requests(connection, _waiting(study, at), by_number),
        rows.existing_checkpoints(connection, study, at=at),
        taken[-1].decision.run if taken and taken[-1].decision not in pending else None,
        Overheads.of([(d.seconds, d.saving) for d in taken[-RECENT_DECISIONS:]]),
    )


def history(connection: Connection, study: int, known: History | None = None) -> History:
    """All decisions and epochs; with `known`, only what changed since is read."""
    head = rows.read_head(connection, study)
    since = -1 if known is None else known.change
    if known is not None and head.change == since:
        return known
    changed = connection.execute(_joined_decisions().where(decisions.c.study == study, decisions.c.change > since))
    taken = {} if known is None else {d.decision.number: d for d in known.decisions}
    for row in changed:
        taken[row.number] = _record(row)
    query = select(epochs.c.change, epochs.c.run, epochs.c.epoch).where(
        epochs.c.study == study, epochs.c.change > since
    )
    new = connection.execute(query.order_by(epochs.c.change, epochs.c.run, epochs.c.epoch))
    before = () if known is None else known.epochs
    return History(
        head.change,
        tuple(taken[number] for number in sorted(taken)),
        (*before, *((row.change, row.run, row.epoch) for row in new)),
    )


def decision(connection: Connection, study: int, number: int) -> DecisionRecord:
    """One decision with its basket."""
    query = _joined_decisions(decisions.c.basket).where(decisions.c.study == study, decisions.c.number == number)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise rules.unknown_decision(number, rows.read_head(connection, study).decisions)
    return replace(_record(row), basket=tuple(map(_basket_entry, documents.load(row.basket))))


def newest_decisions(
    connection: Connection, study: int, last: int, before: int | None = None
) -> tuple[DecisionRecord, ...]:
    """The newest decisions, or the newest before another one, oldest first, without their baskets."""
    query = _joined_decisions().where(decisions.c.study == study)
    query = query if before is None else query.where(decisions.c.number < before)
    found = connection.execute(query.order_by(decisions.c.number.desc()).limit(last)).all()
    return tuple(_record(row) for row in reversed(found))


def deciding_seconds(connection: Connection, study: int) -> float:
    """Seconds that all decisions took."""
    query = select(func.sum(decisions.c.seconds)).where(decisions.c.study == study)
    return float(connection.execute(query).scalar() or 0.0)


def read_definition(connection: Connection, study: int, version: int) -> dict[str, Any]:
    """One version of the study's definition."""
    where = (definitions.c.study == study, definitions.c.version == version)
    text = connection.execute(select(definitions.c.document).where(*where)).scalar_one()
    definition: dict[str, Any] = documents.load(text)
    return definition


def metrics(connection: Connection, study: int, run: int) -> tuple[dict[str, Any], ...]:
    """Other metrics of a run, one dict for each epoch."""
    query = select(epochs.c.metrics).where(epochs.c.study == study, epochs.c.run == run).order_by(epochs.c.epoch)
    return tuple({} if row.metrics is None else documents.load(row.metrics) for row in connection.execute(query))


def _new_points(connection: Connection, study: int, changed: Sequence[int], since: int) -> Points:
    """Losses and seconds recorded since, by run, in the order of epochs."""
    if not changed:
        return defaultdict(list)
    query = select(epochs.c.run, epochs.c.loss, epochs.c.seconds).where(epochs.c.study == study)
    if since >= 0:
        query = query.where(epochs.c.change > since)
        query = query.where(epochs.c.run.in_(changed)) if len(changed) <= FEW else query
    return _points(connection.execute(query.order_by(epochs.c.run, epochs.c.epoch)))


def _points(found: Iterable[Any]) -> Points:
    points: Points = defaultdict(list)
    for run, loss, seconds in found:
        points[run].append((loss, math.nan if seconds is None else seconds))
    return points


def _run(row: Row[Any], before: Run | None, new: list[tuple[float, float]]) -> Run:
    losses, seconds = tuple(loss for loss, _ in new), tuple(second for _, second in new)
    if before is None:
        return Run(row.run, documents.load(row.config), losses, seconds, row.state, row.outcome, bool(row.added))
    losses, seconds = before.losses + losses, before.seconds + seconds
    return replace(before, losses=losses, seconds=seconds, state=row.state, outcome=row.outcome)


def _pending(connection: Connection, study: int, by_number: dict[int, Run]) -> tuple[Decision, ...]:
    busy = [run.number for run in by_number.values() if run.state == "pending"]
    if not busy:
        return ()
    query = select(decisions).where(decisions.c.study == study, decisions.c.state == "pending")
    query = query.where(decisions.c.run.in_(busy)) if len(busy) <= FEW else query
    return tuple(
        Decision(r.number, r.kind, r.run, by_number[r.run].config, r.from_epoch, r.to_epoch, r.reason)
        for r in connection.execute(query.order_by(decisions.c.number))
    )


def _last_run(connection: Connection, study: int, number: int, pending: Sequence[Decision]) -> int | None:
    """The run of the last decision, once it is closed."""
    if not number or any(d.number == number for d in pending):
        return None
    where = (decisions.c.study == study, decisions.c.number == number)
    found: int | None = connection.execute(select(decisions.c.run).where(*where)).scalar()
    return found


def _overheads(connection: Connection, study: int, last: int) -> Overheads:
    query = select(decisions.c.seconds, decisions.c.saving).where(decisions.c.study == study)
    found = connection.execute(query.where(decisions.c.number > last - RECENT_DECISIONS))
    return Overheads.of([(row.seconds, row.saving) for row in found])


def _joined_decisions(*more: Any) -> Select[Any]:
    """Decisions without their baskets, with the configurations of their runs."""
    columns = [column for column in decisions.c if column.name != "basket"]
    same_run = (runs.c.study == decisions.c.study) & (runs.c.run == decisions.c.run)
    return select(*columns, runs.c.config, *more).join(runs, same_run)


def _record(row: Row[Any]) -> DecisionRecord:
    config = documents.load(row.config)
    return DecisionRecord(
        Decision(row.number, row.kind, row.run, config, row.from_epoch, row.to_epoch, row.reason),
        row.basis,
        row.definition,
        row.state,
        row.outcome,
        row.reached,
        row.committed,
        row.closed,
        seconds=math.nan if row.seconds is None else row.seconds,
        saving=math.nan if row.saving is None else row.saving,
    )


def _basket_entry(entry: Mapping[str, Any]) -> BasketEntry:
    """An entry as it was written; older versions wrote fewer fields."""
    config, score, chance = entry.get("config", {}), entry.get("score", math.nan), entry.get("chance", math.nan)
    return BasketEntry(entry.get("run"), config, entry.get("epoch", 0), entry.get("to_epoch", 0), score, chance)


def _waiting(study: int, at: int | None = None) -> Select[Any]:
    query = select(requests).where(requests.c.study == study)
    if at is None:
        return query.where(requests.c.closed.is_(None))
    return query.where(requests.c.created <= at, or_(requests.c.closed.is_(None), requests.c.closed > at))


def _requests(connection: Connection, query: Select[Any], by_number: dict[int, Run]) -> tuple[Request, ...]:
    """Requests of the user in order, then planned ones; one to thaw has the configuration of its run."""
    found = [
        Request(r.number, r.run, _config(r, by_number), r.to_epoch, r.reason or "")
        for r in connection.execute(query.order_by(requests.c.number))
    ]
    return tuple(sorted(found, key=lambda r: r.reason != ""))


def _config(request: Row[Any], by_number: dict[int, Run]) -> Mapping[str, Any]:
    return by_number[request.run].config if request.config is None else documents.load(request.config)
