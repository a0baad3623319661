"""The row of a study and the versions of its definition: found, created, amended; and whole studies written at once."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update

from freezethaw.errors import StudyError
from freezethaw.records import Decision, Lease, Report, Run, StudyState, check_finite
from freezethaw.store import documents, leases, loading, recording, rows, rules
from freezethaw.store.rows import Head
from freezethaw.store.storage import Definition, Process
from freezethaw.store.tables import definitions, runs, studies

SAVED = "saved from memory: earlier decisions of this run are not recorded here"


def find(connection: Connection, name: str) -> tuple[int, str] | None:
    """The number and the uid of a study."""
    row = connection.execute(select(studies.c.id, studies.c.uid).where(studies.c.name == name)).one_or_none()
    return None if row is None else (row.id, row.uid)


def create(connection: Connection, name: str, definition: Mapping[str, Any]) -> tuple[int, str]:
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
    rows.add_event(connection, head, "definition changed", f"the study was continued with changes: {difference}")
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
        recording.insert_run(connection, head, run)
        if run.losses:
            recording.insert_epochs(connection, head, run.number, Report(1, run.losses, run.seconds))
    head.decisions = state.decisions
    numbers = {decision.run: decision.number for decision in state.pending}
    for number, run in past_decisions(state.runs, numbers, state.decisions):
        _insert_past(connection, head, number, run)
    granted = {}
    for decision in state.pending:
        recording.insert_decision(connection, head, decision, reason=documents.printable(decision.reason))
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
    recording.insert_decision(connection, head, decision, **ended)
