"""Writing a whole study that was kept in memory, or in another store, at once.

Only the present is known of such a study, so each run that was advanced gets one closed decision that stands for its
past. From there on every decision can be replayed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, insert

from freezethaw.errors import StudyError
from freezethaw.records import Run
from freezethaw.store import deciding, documents, leases, recording, sampler, wishes
from freezethaw.store.heads import Head
from freezethaw.store.processes import Process
from freezethaw.store.records import Lease, Report, Snapshot
from freezethaw.store.tables import decisions

REASON = "saved: what was decided before is not known here"


def write(connection: Connection, head: Head, snapshot: Snapshot, state: Any, here: Process) -> dict[int, Lease]:
    """Fill an empty study. Returns the leases of the decisions that are pending, by their numbers, for this process."""
    for run in snapshot.runs:
        head.runs += 1
        if run.number != head.runs:
            raise StudyError(f"runs are numbered from 1 without gaps; run {run.number} stands at place {head.runs}")
        recording.finite_losses(run.losses)
        deciding.insert_run(connection, head, run.number, run.config, run.state, run.epoch, run.added, run.outcome)
        if run.losses:
            recording.insert_epochs(connection, head, run.number, Report(1, run.losses, run.seconds))
    head.decisions = snapshot.decisions
    pending = {decision.run: decision for decision in snapshot.pending}
    begun = {run: decision.number for run, decision in pending.items()}
    for number, run in past(snapshot.runs, begun, snapshot.decisions):
        _closed(connection, head, number, run)
    granted = {}
    for decision in snapshot.pending:
        row = _row(head, decision.number, decision.run, decision.kind, decision.from_epoch, decision.to_epoch)
        connection.execute(
            insert(decisions).values(**row, reason=documents.printable(decision.reason), state="pending")
        )
        granted[decision.number] = leases.grant(connection, head.study, decision.run, decision.number, here)
    for wish in snapshot.wishes:
        wishes.add(connection, head, wish.run, None if wish.run else wish.config, wish.to_epoch)
    if state is not None and head.decisions:
        sampler.write(connection, head.study, head.decisions, None, documents.dump(state))
    return granted


def past(runs: Iterable[Run], pending: dict[int, int], count: int) -> list[tuple[int, Run]]:
    """Numbers of decisions that may stand for the past of runs: none twice, before a run's pending one, the last used.

    `pending` has the number of a run's pending decision, `count` is how many decisions there were in all.
    """
    free = [number for number in range(1, count + 1) if number not in pending.values()]
    had = [run for run in runs if not run.added and (run.number not in pending or run.losses)]
    had.sort(key=lambda run: pending.get(run.number, math.inf))
    chosen = free[: len(had)]
    if had and free and len(chosen) == len(had) and had[-1].number not in pending:
        chosen[-1] = free[-1]
    found = list(zip(chosen, had, strict=False))
    if len(found) < len(had) or any(number > pending.get(run.number, math.inf) for number, run in found):
        raise StudyError(f"{count} decisions cannot have led to these runs")
    return found


def _closed(connection: Connection, head: Head, number: int, run: Run) -> None:
    outcome = run.state if run.state in ("diverged", "failed") else run.outcome or "told"
    outcome = run.outcome if run.state == "failed" and run.outcome else outcome
    state = "told" if run.losses or outcome == "diverged" else "cancelled"
    row = _row(head, number, run.number, "start", 0, run.epoch)
    ended = {"reached": run.epoch, "closed": head.change}
    connection.execute(insert(decisions).values(**row | {"outcome": outcome}, **ended, reason=REASON, state=state))


def _row(head: Head, number: int, run: int, kind: str, from_epoch: int, to_epoch: int) -> dict[str, Any]:
    row = {"study": head.study, "number": number, "kind": kind, "run": run, "basket": "[]", "outcome": ""}
    row |= {"from_epoch": from_epoch, "to_epoch": to_epoch, "definition": head.definition, "basis": 0}
    return row | {"committed": head.change, "change": head.change}
