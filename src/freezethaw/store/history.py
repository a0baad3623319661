"""The study as it was at an earlier change: what a decider saw, for a replay of its decision; and how it went.

Losses carry the change that brought them, decisions and wishes when they began and ended, so nothing more is kept.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, or_, select

from freezethaw.errors import StudyError
from freezethaw.records import Run, State
from freezethaw.store import checkpoints, deciding, documents, heads, loading
from freezethaw.store.records import Snapshot, StoredHistory
from freezethaw.store.tables import decisions, definitions, epochs, runs, wishes


def load(connection: Connection, study: int, at: int) -> Snapshot:
    """The study as of change `at`."""
    head = heads.read(connection, study)
    if not 0 <= at <= head.change:
        raise StudyError(f"the study has changes 0 to {head.change}, not {at!r}")
    query = select(definitions).where(definitions.c.study == study, definitions.c.change <= at)
    defined = connection.execute(query.order_by(definitions.c.version.desc()).limit(1)).one()
    definition = documents.load(defined.document)
    query = select(epochs.c.run, epochs.c.loss, epochs.c.seconds).where(epochs.c.study == study, epochs.c.change <= at)
    points = loading.points(connection.execute(query.order_by(epochs.c.run, epochs.c.epoch)))
    query = select(decisions).where(decisions.c.study == study, decisions.c.committed <= at)
    taken = list(connection.execute(query.order_by(decisions.c.number)))
    latest = {row.run: row for row in taken}  # a run has one decision at a time
    by_number: dict[int, Run] = {}
    query = select(runs).where(runs.c.study == study, runs.c.created <= at).order_by(runs.c.run)
    for row in connection.execute(query):
        losses, seconds = tuple(p[0] for p in points[row.run]), tuple(p[1] for p in points[row.run])
        state, outcome = _state(row, latest.get(row.run), len(losses), at, definition["max_epochs"])
        by_number[row.run] = Run(row.run, documents.load(row.config), losses, seconds, state, outcome, bool(row.added))
    pending = tuple(deciding.of_row(row, by_number[row.run].config) for row in taken if _open(row, at))
    waiting = or_(wishes.c.closed.is_(None), wishes.c.closed > at)
    query = select(wishes).where(wishes.c.study == study, wishes.c.created <= at, waiting)
    queue = loading.as_wishes(connection, query, by_number)
    last = taken[-1].number if taken else 0
    there = checkpoints.kept(connection, study, at=at)
    return Snapshot(at, defined.version, definition, tuple(by_number.values()), pending, last, queue, there)


def course(connection: Connection, study: int, known: StoredHistory | None = None) -> StoredHistory:
    """How the study went; with `known` only what changed since is read."""
    head = heads.read(connection, study)
    since = -1 if known is None else known.change
    if known is not None and head.change == since:
        return known
    columns = [column for column in decisions.c if column.name != "basket"]
    same_run = (runs.c.study == decisions.c.study) & (runs.c.run == decisions.c.run)
    query = select(*columns, runs.c.config).join(runs, same_run)
    changed = connection.execute(query.where(decisions.c.study == study, decisions.c.change > since))
    taken = {} if known is None else {d.decision.number: d for d in known.decisions}
    for row in changed:
        taken[row.number] = deciding.without_basket(row)
    query = select(epochs.c.change, epochs.c.run, epochs.c.epoch).where(
        epochs.c.study == study, epochs.c.change > since
    )
    new = connection.execute(query.order_by(epochs.c.change, epochs.c.run, epochs.c.epoch))
    before = () if known is None else known.epochs
    return StoredHistory(
        head.change,
        tuple(taken[number] for number in sorted(taken)),
        (*before, *((row.change, row.run, row.epoch) for row in new)),
    )


def _open(decision: Row[Any], at: int) -> bool:
    return decision.closed is None or decision.closed > at


def _state(run: Row[Any], latest: Row[Any] | None, done: int, at: int, max_epochs: int) -> tuple[State, str]:
    if latest is None:  # only a curve from elsewhere has no decision
        return run.state, run.outcome
    if _open(latest, at):
        return "pending", ""
    match latest.outcome:
        case "diverged":
            return "diverged", ""
        case "failed" | "out_of_memory":
            return "failed", latest.outcome
    return ("finished" if done >= max_epochs else "frozen"), ("interrupted" if latest.outcome == "interrupted" else "")
