"""Reading a study: all of it, or only what changed since a snapshot that is at hand."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from freezethaw.records import Decision, Run, Wish
from freezethaw.store import checkpoints, deciding, documents, heads
from freezethaw.store.records import Snapshot
from freezethaw.store.tables import decisions, definitions, epochs, runs, wishes

FEW = 500  # changed runs that are asked for one by one

Points = dict[int, list[tuple[float, float]]]


def load(connection: Connection, study: int, known: Snapshot | None = None) -> Snapshot:
    """The study now; with `known` only what changed since is read."""
    head = heads.read(connection, study)
    since = -1 if known is None else known.change
    if known is not None and head.change == since:
        return known
    changed = list(connection.execute(select(runs).where(runs.c.study == study, runs.c.change > since)))
    points = _points(connection, study, [row.run for row in changed], since)
    by_number = {run.number: run for run in known.runs} if known is not None else {}
    for row in changed:
        by_number[row.run] = _run(row, by_number.get(row.run), points[row.run])
    ordered = tuple(by_number[number] for number in sorted(by_number))
    version = head.definition
    definition = (
        known.definition if known is not None and known.version == version else read(connection, study, version)
    )
    return Snapshot(
        head.change,
        version,
        definition,
        ordered,
        _pending(connection, study, by_number),
        head.decisions,
        queue(connection, study, by_number),
        checkpoints.kept(connection, study),
    )


def read(connection: Connection, study: int, version: int) -> dict[str, Any]:
    """One version of the study's definition."""
    where = (definitions.c.study == study, definitions.c.version == version)
    text = connection.execute(select(definitions.c.document).where(*where)).scalar_one()
    definition: dict[str, Any] = documents.load(text)
    return definition


def _points(connection: Connection, study: int, changed: Sequence[int], since: int) -> Points:
    """Losses and seconds recorded since, by run, in the order of epochs."""
    if not changed:
        return defaultdict(list)
    query = select(epochs.c.run, epochs.c.loss, epochs.c.seconds).where(epochs.c.study == study)
    if since >= 0:
        query = query.where(epochs.c.change > since)
        query = query.where(epochs.c.run.in_(changed)) if len(changed) <= FEW else query
    return points(connection.execute(query.order_by(epochs.c.run, epochs.c.epoch)))


def points(rows: Iterable[Any]) -> Points:
    """Losses and seconds by run."""
    found: Points = defaultdict(list)
    for run, loss, seconds in rows:
        found[run].append((loss, math.nan if seconds is None else seconds))
    return found


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
    rows = connection.execute(query.order_by(decisions.c.number))
    return tuple(deciding.of_row(row, by_number[row.run].config) for row in rows)


def queue(connection: Connection, study: int, by_number: dict[int, Run]) -> tuple[Wish, ...]:
    """Wishes that wait."""
    return as_wishes(connection, select(wishes).where(wishes.c.study == study, wishes.c.closed.is_(None)), by_number)


def as_wishes(connection: Connection, query: Select[Any], by_number: dict[int, Run]) -> tuple[Wish, ...]:
    """Wishes in order; one to thaw has the configuration of its run."""
    return tuple(
        Wish(r.number, r.run, by_number[r.run].config if r.config is None else documents.load(r.config), r.to_epoch)
        for r in connection.execute(query.order_by(wishes.c.number))
    )


def metrics(connection: Connection, study: int, run: int) -> tuple[dict[str, Any], ...]:
    """Other metrics of a run, one dict for each epoch."""
    query = select(epochs.c.metrics).where(epochs.c.study == study, epochs.c.run == run).order_by(epochs.c.epoch)
    return tuple({} if row.metrics is None else documents.load(row.metrics) for row in connection.execute(query))
