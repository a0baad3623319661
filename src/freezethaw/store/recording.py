"""Recording losses under the lease of their run: never lost, never twice, no gaps.

An epoch that is trained again after a kill has a loss already: the first one stays, and a difference is an event.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Double, Text, bindparam, insert, select, text, update

from freezethaw.errors import TellError
from freezethaw.store import checkpoints, deciding, documents, events, heads, leases
from freezethaw.store.heads import Head
from freezethaw.store.records import CLOSINGS, Closing, Lease, NewCheckpoint, Recorded, Report
from freezethaw.store.tables import decisions, epochs, runs

# What is known of the run: only the holder of its lease, which is checked and locked before, can change it.
_FACTS = (
    select(runs.c.epochs, decisions.c.from_epoch, decisions.c.to_epoch)
    .join(decisions, (decisions.c.study == runs.c.study) & (decisions.c.run == runs.c.run))
    .where(
        runs.c.study == bindparam("study"),
        runs.c.run == bindparam("run"),
        decisions.c.number == bindparam("decision"),
        decisions.c.state == "pending",
    )
)
_GROWN = (
    update(runs)
    .where(runs.c.study == bindparam("of_study"), runs.c.run == bindparam("of_run"))
    .values(epochs=bindparam("new_epochs"), change=bindparam("new_change"))
)
_INSERT = insert(epochs)
# One more loss, by far the most frequent write: PostgreSQL takes all of it in one statement, so that the study's row is
# locked for one exchange with the server and not for several.
_ONE_MORE = text("""
    WITH advanced AS (UPDATE freezethaw_studies SET change = change + 1 WHERE id = :study RETURNING change),
    grown AS (
        UPDATE freezethaw_runs SET epochs = :epoch, change = (SELECT change FROM advanced)
        WHERE study = :study AND run = :run
    )
    INSERT INTO freezethaw_epochs (study, run, epoch, loss, seconds, metrics, change)
    SELECT :study, :run, :epoch, :loss, :seconds, :metrics, change FROM advanced RETURNING change
""").bindparams(bindparam("loss", type_=Double), bindparam("seconds", type_=Double), bindparam("metrics", type_=Text))


def record(
    connection: Connection,
    study: int,
    lease: Lease,
    report: Report | None,
    checkpoint: NewCheckpoint | None = None,
    close: Closing | None = None,
    replaced: Sequence[int] = (),
) -> Recorded:
    """Record what a worker has to say about its run; the lease beats, or ends where the decision is closed."""
    if close is not None and close not in CLOSINGS:
        raise TellError(f"a decision is closed as one of {', '.join(CLOSINGS)}, not {close!r}")
    (leases.beat if close is None else leases.end)(connection, study, lease)
    facts = connection.execute(_FACTS, {"study": study, "run": lease.run, "decision": lease.decision}).one_or_none()
    if facts is None:
        raise TellError(f"decision {lease.decision} of run {lease.run} was told or cancelled before")
    done, from_epoch, to_epoch = facts
    plain = checkpoint is None and close is None and not replaced and connection.dialect.name == "postgresql"
    if plain and report is not None and len(report.losses) == 1 and report.first_epoch == done + 1:
        checked(report, done, to_epoch)
        [row] = rows(study, lease.run, report)
        return Recorded(connection.execute(_ONE_MORE, row).scalar_one(), done + 1)
    head = heads.lock(connection, study)
    last, result = done, Recorded(head.change, done)
    if report is not None and report.losses:
        checked(report, done, to_epoch)
        last = max(done, report.first_epoch + len(report.losses) - 1)
        result = _written(connection, head, lease.run, report, done, last)
    if checkpoint is not None:
        checkpoints.insert_row(connection, head, lease.run, last, checkpoint)
    if replaced:
        checkpoints.drop(connection, head, replaced, "replaced", lease.run)
    if close is not None:
        _close(connection, head, lease, last, from_epoch, close)
    heads.advance(connection, head)
    return result


def checked(report: Report, done: int, granted: int) -> None:
    """Refuse gaps, epochs that were not granted, and losses that are no numbers."""
    first, count = report.first_epoch, len(report.losses)
    if not 1 <= first <= done + 1:
        raise TellError(f"epoch {first} cannot follow epoch {done}: curves have no gaps")
    if first + count - 1 > granted:
        raise TellError(f"epoch {first + count - 1} was not granted; the decision ends at epoch {granted}")
    finite_losses(report.losses)
    for what, values in (("seconds", report.seconds), ("metrics", report.metrics)):
        if values and len(values) != count:
            raise TellError(f"{count} losses but {len(values)} {what} were told")


def finite_losses(losses: Sequence[object]) -> None:
    """Refuse what is no finite number: a diverged run is a state, not a loss."""
    for loss in losses:
        if isinstance(loss, bool) or not isinstance(loss, int | float) or not math.isfinite(loss):
            raise TellError(f"the loss {loss!r} is no finite number; close the decision as diverged instead")


def rows(study: int, run: int, report: Report, after: int = 0) -> list[dict[str, Any]]:
    """What is in the rows of the epochs after `after`, but for the change."""
    count = len(report.losses)
    seconds = report.seconds or (math.nan,) * count
    metrics: Sequence[Mapping[str, Any] | None] = report.metrics or (None,) * count
    return [
        {
            "study": study,
            "run": run,
            "epoch": epoch,
            "loss": float(loss) + 0.0,  # SQLite has no -0.0
            "seconds": float(second) if math.isfinite(second) else None,
            "metrics": documents.dump(dict(others)) if others else None,
        }
        for epoch, loss, second, others in zip(
            range(report.first_epoch, report.first_epoch + count), report.losses, seconds, metrics, strict=True
        )
        if epoch > after
    ]


def _written(connection: Connection, head: Head, run: int, report: Report, done: int, last: int) -> Recorded:
    repeated: tuple[int, ...] = ()
    different: tuple[int, ...] = ()
    if report.first_epoch <= done:
        repeated, different = _compared(connection, head, run, report, done)
    if last > done:
        insert_epochs(connection, head, run, report, done)
        grown = {"of_study": head.study, "of_run": run, "new_epochs": last, "new_change": head.change}
        connection.execute(_GROWN, grown)
    return Recorded(head.change, last, repeated, different)


def insert_epochs(connection: Connection, head: Head, run: int, report: Report, after: int = 0) -> None:
    """Rows of the epochs after `after`."""
    connection.execute(_INSERT, [{**row, "change": head.change} for row in rows(head.study, run, report, after)])


def _compared(
    connection: Connection, head: Head, run: int, report: Report, done: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which of the reported epochs were recorded before, and which of those had another loss."""
    between = epochs.c.epoch.between(report.first_epoch, min(done, report.first_epoch + len(report.losses) - 1))
    query = select(epochs.c.epoch, epochs.c.loss).where(epochs.c.study == head.study, epochs.c.run == run, between)
    kept = {row.epoch: row.loss for row in connection.execute(query.order_by(epochs.c.epoch))}
    again = {epoch: report.losses[epoch - report.first_epoch] for epoch in kept}
    different = tuple(epoch for epoch in kept if again[epoch] != kept[epoch])
    if different:
        first = different[0]
        message = (
            f"run {run} was trained again from epoch {report.first_epoch} and {len(different)} loss(es) differ; "
            f"at epoch {first} the recorded {kept[first]!r} stays, {again[first]!r} came now"
        )
        details = {
            "epochs": list(different),
            "kept": [kept[e] for e in different],
            "again": [again[e] for e in different],
        }
        events.add(connection, head, "loss differs", message, run, first, details)
    return tuple(kept), different


def close(connection: Connection, head: Head, lease: Lease, how: Closing) -> None:
    """End a decision that has all its losses; its lease has been ended."""
    facts = connection.execute(
        _FACTS, {"study": head.study, "run": lease.run, "decision": lease.decision}
    ).one_or_none()
    if facts is None:
        raise TellError(f"decision {lease.decision} of run {lease.run} was told or cancelled before")
    _close(connection, head, lease, facts.epochs, facts.from_epoch, how)


def _close(connection: Connection, head: Head, lease: Lease, last: int, from_epoch: int, close: Closing) -> None:
    """End a decision: what is left of it is given back."""
    state = "told" if last > from_epoch or close == "diverged" else "cancelled"
    if state == "cancelled" and close == "told":
        raise TellError(f"decision {lease.decision} has no loss yet; close it as interrupted or failed")
    run_state, outcome = _ended(close, last, head.max_epochs)
    row = {"state": state, "outcome": close, "reached": last, "closed": head.change, "change": head.change}
    where = (decisions.c.study == head.study, decisions.c.number == lease.decision)
    connection.execute(update(decisions).where(*where).values(row))
    row = {"state": run_state, "outcome": outcome, "change": head.change}
    connection.execute(update(runs).where(runs.c.study == head.study, runs.c.run == lease.run).values(row))


def _ended(close: Closing, last: int, max_epochs: int) -> tuple[str, str]:
    """State and outcome of a run after its decision was closed."""
    if close == "diverged":
        return "diverged", ""
    if close in ("failed", "out_of_memory"):
        return "failed", close
    return ("finished" if last >= max_epochs else "frozen"), ("interrupted" if close == "interrupted" else "")


def add_run(connection: Connection, head: Head, config: Mapping[str, Any], report: Report, diverged: bool) -> int:
    """A curve from elsewhere, as evidence; it is never trained here."""
    finite_losses(report.losses)
    if report.first_epoch != 1 or len(report.losses) > head.max_epochs or not (report.losses or diverged):
        raise TellError(f"a curve from elsewhere has 1 to {head.max_epochs} losses from epoch 1")
    head.runs += 1
    state = "diverged" if diverged else "finished"
    deciding.insert_run(connection, head, head.runs, config, state, len(report.losses), added=True)
    if report.losses:
        insert_epochs(connection, head, head.runs, report)
    return head.runs
