"""Writing studies, decisions and losses: never lost, never twice, no gaps.

An epoch that is trained again after a kill already has a loss: the first one is kept, and a difference is an event.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Double, Text, bindparam, insert, select, text, update

from freezethaw.errors import StudyError
from freezethaw.records import (
    Checkpoint,
    Closing,
    Decision,
    DecisionDraft,
    Kind,
    Lease,
    Recorded,
    Report,
    Run,
    StudyState,
    check_finite,
    closed_state,
)
from freezethaw.store import documents, leases, loading, rows, rules
from freezethaw.store.rows import Head
from freezethaw.store.storage import Definition, Process
from freezethaw.store.tables import decisions, definitions, epochs, runs, studies

# The run of a pending decision: only the holder of its lease, which is checked and locked before, can change it.
_PENDING = (
    select(runs.c.epochs, decisions.c.from_epoch, decisions.c.to_epoch)
    .join(decisions, (decisions.c.study == runs.c.study) & (decisions.c.run == runs.c.run))
    .where(
        runs.c.study == bindparam("study"),
        runs.c.run == bindparam("run"),
        decisions.c.number == bindparam("decision"),
        decisions.c.state == "pending",
    )
)
_GROW = (
    update(runs)
    .where(runs.c.study == bindparam("of_study"), runs.c.run == bindparam("of_run"))
    .values(epochs=bindparam("new_epochs"), change=bindparam("new_change"))
)
_INSERT = insert(epochs)
# One more loss is by far the most frequent write. PostgreSQL takes all of it in one statement, so that the study's row
# is locked for one exchange with the server and not for several.
_ONE_MORE = text("""
    WITH advanced AS (UPDATE freezethaw_studies SET change = change + 1 WHERE id = :study RETURNING change),
    grown AS (
        UPDATE freezethaw_runs SET epochs = :epoch, change = (SELECT change FROM advanced)
        WHERE study = :study AND run = :run
    )
    INSERT INTO freezethaw_epochs (study, run, epoch, loss, seconds, metrics, change)
    SELECT :study, :run, :epoch, :loss, :seconds, :metrics, change FROM advanced RETURNING change
""").bindparams(bindparam("loss", type_=Double), bindparam("seconds", type_=Double), bindparam("metrics", type_=Text))


# Losses.


def record(
    connection: Connection,
    study: int,
    lease: Lease,
    report: Report | None,
    checkpoint: Checkpoint | None = None,
    close: Closing | None = None,
    replaced: Sequence[int] = (),
) -> Recorded:
    """Record what a worker reports about its run; the heartbeat advances, or the lease ends with the decision."""
    rules.check_closing(close)
    (leases.beat if close is None else leases.end)(connection, study, lease)
    epoch, _, to_epoch = _pending(connection, study, lease)
    simple = checkpoint is None and close is None and not replaced and connection.dialect.name == "postgresql"
    if simple and report is not None and len(report.losses) == 1 and report.first_epoch == epoch + 1:
        report.check(epoch, to_epoch)
        [row] = _epoch_rows(study, lease.run, report)
        return Recorded(connection.execute(_ONE_MORE, row).scalar_one(), epoch + 1)
    head = rows.lock_study(connection, study)
    result = Recorded(head.change, epoch)
    if report is not None and report.losses:
        report.check(epoch, to_epoch)
        result = _write(connection, head, lease.run, report, epoch)
    finish(connection, head, lease, checkpoint, close, replaced)
    rows.advance(connection, head)
    return result


def finish(
    connection: Connection,
    head: Head,
    lease: Lease,
    checkpoint: Checkpoint | None,
    close: Closing | None,
    replaced: Sequence[int],
) -> None:
    """Record a checkpoint, and the end of a decision; its lease has been ended by then."""
    epoch, from_epoch, _ = _pending(connection, head.study, lease)
    if checkpoint is not None:
        rows.add_checkpoint(connection, head, lease.run, epoch, checkpoint)
    if replaced:
        rows.drop_checkpoints(connection, head, replaced, "replaced", lease.run)
    if close is None:
        return
    rules.check_has_loss(close, lease.decision, from_epoch, epoch)
    told = epoch > from_epoch or close == "diverged"
    row = {"state": "told" if told else "cancelled", "outcome": close, "reached": epoch}
    where = (decisions.c.study == head.study, decisions.c.number == lease.decision)
    connection.execute(update(decisions).where(*where).values(**row, closed=head.change, change=head.change))
    state, outcome = closed_state(close, epoch, head.max_epochs)
    where = (runs.c.study == head.study, runs.c.run == lease.run)
    connection.execute(update(runs).where(*where).values(state=state, outcome=outcome, change=head.change))


def _pending(connection: Connection, study: int, lease: Lease) -> tuple[int, int, int]:
    """The run's last epoch, and where its pending decision begins and ends."""
    found = connection.execute(_PENDING, {"study": study, "run": lease.run, "decision": lease.decision}).one_or_none()
    if found is None:
        raise rules.closed_before(lease)
    return found.epochs, found.from_epoch, found.to_epoch


def _write(connection: Connection, head: Head, run: int, report: Report, epoch: int) -> Recorded:
    repeated: tuple[int, ...] = ()
    different: tuple[int, ...] = ()
    last = max(epoch, report.first_epoch + len(report.losses) - 1)
    if report.first_epoch <= epoch:
        repeated, different = _compare(connection, head, run, report, epoch)
    if last > epoch:
        insert_epochs(connection, head, run, report, epoch)
        grown = {"of_study": head.study, "of_run": run, "new_epochs": last, "new_change": head.change}
        connection.execute(_GROW, grown)
    return Recorded(head.change, last, repeated, different)


def _compare(
    connection: Connection, head: Head, run: int, report: Report, epoch: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which of the reported epochs were recorded before, and which of those had another loss."""
    between = epochs.c.epoch.between(report.first_epoch, min(epoch, report.first_epoch + len(report.losses) - 1))
    query = select(epochs.c.epoch, epochs.c.loss).where(epochs.c.study == head.study, epochs.c.run == run, between)
    kept = {row.epoch: row.loss for row in connection.execute(query.order_by(epochs.c.epoch))}
    different = {e: loss for e, loss in kept.items() if report.losses[e - report.first_epoch] != loss}
    if different:
        message, details = rules.differing_losses(run, report, different)
        rows.add_event(connection, head, "loss differs", message, run, min(different), details)
    return tuple(kept), tuple(different)


def insert_epochs(connection: Connection, head: Head, run: int, report: Report, after: int = 0) -> None:
    """Rows of the epochs after `after`."""
    values = [{**row, "change": head.change} for row in _epoch_rows(head.study, run, report, after)]
    connection.execute(_INSERT, values)


def _epoch_rows(study: int, run: int, report: Report, after: int = 0) -> list[dict[str, Any]]:
    """The rows of the epochs after `after`, without the change."""
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


def add_run(connection: Connection, head: Head, config: Mapping[str, Any], report: Report) -> int:
    """Add an imported learning curve; returns the number of its run."""
    report.check_added(head.max_epochs)
    head.runs += 1
    run = Run(head.runs, config, report.losses, state="diverged" if report.diverged else "finished", added=True)
    insert_run(connection, head, run)
    if report.losses:
        insert_epochs(connection, head, run.number, report)
    return head.runs


# Decisions.


def commit(
    connection: Connection, head: Head, draft: DecisionDraft, basis: int, here: Process
) -> tuple[Decision, Lease]:
    """Insert a decision, close its requests and grant the lease of its run; the decision lease has been checked."""
    rules.check_reason(draft.reason)
    if draft.run is None:
        head.runs += 1
        run = Run(head.runs, dict(draft.config))
    else:
        run = _frozen(connection, head, draft.run)
    rules.check_advance(run, draft.to_epoch, head.max_epochs)
    if draft.run is None:
        insert_run(connection, head, run, state="pending")
    else:
        where = (runs.c.study == head.study, runs.c.run == run.number)
        connection.execute(update(runs).where(*where).values(state="pending", outcome="", change=head.change))
    head.decisions += 1
    kind: Kind = "start" if run.epoch == 0 else "thaw"
    reason = documents.printable(draft.reason)
    decision = Decision(head.decisions, kind, run.number, run.config, run.epoch, draft.to_epoch, reason)
    basket = documents.dump([asdict(entry) | {"config": dict(entry.config)} for entry in draft.basket])
    seconds = draft.seconds if math.isfinite(draft.seconds) else None
    saving = draft.saving if math.isfinite(draft.saving) else None
    insert_decision(connection, head, decision, basis=basis, basket=basket, seconds=seconds, saving=saving)
    for request in draft.requests:
        rows.close_request(connection, head, request)
    for planned in draft.plan:
        rows.add_request(connection, head, planned)
    return decision, leases.grant(connection, head.study, run.number, decision.number, here)


def insert_decision(connection: Connection, head: Head, decision: Decision, **others: Any) -> None:
    """A new row of a decision, pending unless `others` say more."""
    row: dict[str, Any] = {"study": head.study, "number": decision.number, "kind": decision.kind, "run": decision.run}
    row |= {"from_epoch": decision.from_epoch, "to_epoch": decision.to_epoch, "reason": decision.reason}
    row |= {"definition": head.definition, "basis": 0, "basket": "[]", "state": "pending", "outcome": ""}
    connection.execute(insert(decisions).values(row | {"committed": head.change, "change": head.change} | others))


def _frozen(connection: Connection, head: Head, number: int) -> Run:
    """A run without its losses, which are only counted."""
    where = (runs.c.study == head.study, runs.c.run == number)
    row = connection.execute(select(runs.c.config, runs.c.epochs, runs.c.state).where(*where)).one_or_none()
    if row is None:
        raise rules.unknown_run(number, head.runs)
    return Run(number, documents.load(row.config), (math.nan,) * row.epochs, state=row.state)


def insert_run(connection: Connection, head: Head, run: Run, state: str = "") -> None:
    """A new row of a run."""
    row = {"study": head.study, "run": run.number, "config": documents.dump(dict(run.config)), "epochs": run.epoch}
    row |= {"state": state or run.state, "outcome": run.outcome, "added": run.added}
    connection.execute(insert(runs).values(**row, created=head.change, change=head.change))


# The row of a study and the versions of its definition: found, created, amended; and whole studies written at once.


SAVED = "saved from memory: earlier decisions of this run are not recorded here"


def find_study(connection: Connection, name: str) -> tuple[int, str] | None:
    """The number and the uid of a study."""
    row = connection.execute(select(studies.c.id, studies.c.uid).where(studies.c.name == name)).one_or_none()
    return None if row is None else (row.id, row.uid)


def create_study(connection: Connection, name: str, definition: Mapping[str, Any]) -> tuple[int, str]:
    """A new study; returns its number and its uid."""
    uid = uuid.uuid4().hex
    counters = dict.fromkeys(("change", "runs", "decisions", "requests", "checkpoints"), 0)
    row = {"uid": uid, "name": name, "definition": 1, "max_epochs": definition["max_epochs"]}
    connection.execute(insert(studies).values(**row, created=documents.now(), **counters))
    number = connection.execute(select(studies.c.id).where(studies.c.uid == uid)).scalar_one()
    document = {"study": number, "version": 1, "change": 0, "document": documents.dump(dict(definition))}
    connection.execute(insert(definitions).values(**document, difference=""))
    leases.add_decision_lease(connection, number)
    return number, uid


def amend(connection: Connection, head: Head, name: str, definition: Definition) -> None:
    """Continue with another definition of the same study: a new version, with an event."""
    current = loading.read_definition(connection, head.study, head.definition)
    amendment = rules.amend(current, definition, name)
    if not amendment:
        return
    head.definition += 1
    head.max_epochs = definition["max_epochs"]
    difference = documents.printable(amendment.difference)
    row = {"study": head.study, "version": head.definition, "change": head.change, "difference": difference}
    connection.execute(insert(definitions).values(**row, document=documents.dump(dict(amendment.definition))))
    grown = (runs.c.study == head.study, runs.c.state == "finished", ~runs.c.added, runs.c.epochs < head.max_epochs)
    connection.execute(update(runs).where(*grown).values(state="frozen", change=head.change))
    rows.add_event(connection, head, *amendment.event)
    rows.advance(connection, head)


def set_entry(connection: Connection, head: Head, key: str, value: object) -> None:
    """Change an entry of the definition on which no decision depends, in the current version."""
    definition = loading.read_definition(connection, head.study, head.definition) | {key: value}
    where = (definitions.c.study == head.study, definitions.c.version == head.definition)
    connection.execute(update(definitions).where(*where).values(document=documents.dump(definition)))


def write_all(connection: Connection, head: Head, state: StudyState, samples: Any, here: Process) -> dict[int, Lease]:
    """Fill an empty study. Returns the leases (of this process) of the pending decisions, by their numbers.

    Only the present of such a study is known, so each run that was advanced gets one closed decision that stands for
    its past. From then on every decision can be replayed.
    """
    for run in state.runs:
        head.runs += 1
        if run.number != head.runs:
            raise StudyError(f"runs are numbered from 1 without gaps; run {run.number} is at place {head.runs}")
        check_finite(run.losses)
        insert_run(connection, head, run)
        if run.losses:
            insert_epochs(connection, head, run.number, Report(1, run.losses, run.seconds))
    head.decisions = state.decisions
    numbers = {decision.run: decision.number for decision in state.pending}
    for number, run in past_decisions(state.runs, numbers, state.decisions):
        _insert_past(connection, head, number, run)
    granted = {}
    for decision in state.pending:
        insert_decision(connection, head, decision, reason=documents.printable(decision.reason))
        granted[decision.number] = leases.grant(connection, head.study, decision.run, decision.number, here)
    for request in state.requests:
        rows.add_request(connection, head, request)
    if samples is not None and head.decisions:
        rows.write_samples(connection, head.study, head.decisions, None, documents.dump(samples))
    return granted


def past_decisions(runs: Iterable[Run], pending: dict[int, int], count: int) -> list[tuple[int, Run]]:
    """Numbers of decisions that may stand for the past of runs: distinct, and before a run's pending one.

    `pending` has the number of a run's pending decision, `count` is the number of decisions so far; the last of them is
    used, so that the next number follows it.
    """
    free = [number for number in range(1, count + 1) if number not in pending.values()]
    advanced = [run for run in runs if not run.added and (run.number not in pending or run.losses)]
    advanced.sort(key=lambda run: pending.get(run.number, math.inf))
    chosen = free[: len(advanced)]
    if advanced and free and len(chosen) == len(advanced) and advanced[-1].number not in pending:
        chosen[-1] = free[-1]
    found = list(zip(chosen, advanced, strict=False))
    if len(found) < len(advanced) or any(number > pending.get(run.number, math.inf) for number, run in found):
        raise StudyError(f"{count} decisions cannot have led to these runs")
    return found


def _insert_past(connection: Connection, head: Head, number: int, run: Run) -> None:
    outcome = run.state if run.state in ("diverged", "failed") else run.outcome or "told"
    outcome = run.outcome if run.state == "failed" and run.outcome else outcome
    state = "told" if run.losses or outcome == "diverged" else "cancelled"
    decision = Decision(number, "start", run.number, run.config, 0, run.epoch, SAVED)
    ended = {"state": state, "outcome": outcome, "reached": run.epoch, "closed": head.change}
    insert_decision(connection, head, decision, **ended)
