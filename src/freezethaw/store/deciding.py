"""Committing a decision: it, the lease of its run and the sampler state appear together or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from freezethaw.errors import StudyError
from freezethaw.records import Decision, Kind
from freezethaw.store import documents, heads, leases, wishes
from freezethaw.store.heads import Head
from freezethaw.store.processes import Process
from freezethaw.store.records import Committed, Proposal, StoredDecision
from freezethaw.store.tables import decisions, runs


def commit(connection: Connection, head: Head, proposal: Proposal, basis: int, here: Process) -> Committed:
    """Write a decision; the lease to decide has been checked."""
    if not proposal.reason:
        raise StudyError("a decision needs a reason")
    run, config, epoch = _advanced_run(connection, head, proposal)
    if not epoch < proposal.to_epoch <= head.max_epochs:
        raise StudyError(f"run {run} is at epoch {epoch} of {head.max_epochs}; cannot train to {proposal.to_epoch}")
    head.decisions += 1
    kind: Kind = "start" if epoch == 0 else "thaw"
    reason = documents.printable(proposal.reason)
    decision = Decision(head.decisions, kind, run, config, epoch, proposal.to_epoch, reason)
    row = {"study": head.study, "number": decision.number, "kind": kind, "run": run, "reason": reason}
    row |= {"from_epoch": epoch, "to_epoch": proposal.to_epoch, "basket": documents.dump(list(proposal.basket))}
    row |= {"definition": head.definition, "basis": basis, "state": "pending", "outcome": ""}
    row |= {"committed": head.change, "change": head.change}
    connection.execute(insert(decisions).values(row))
    if proposal.wish is not None:
        wishes.close(connection, head, proposal.wish)
    return Committed(decision, leases.grant(connection, head.study, run, decision.number, here))


def _advanced_run(connection: Connection, head: Head, proposal: Proposal) -> tuple[int, Mapping[str, Any], int]:
    """Make the run pending; a new one is created."""
    if proposal.run is None:
        head.runs += 1
        config = dict(proposal.config)
        insert_run(connection, head, head.runs, config, state="pending")
        return head.runs, config, 0
    where = (runs.c.study == head.study, runs.c.run == proposal.run)
    row = connection.execute(select(runs.c.config, runs.c.epochs, runs.c.state).where(*where)).one_or_none()
    if row is None:
        raise StudyError(f"there is no run {proposal.run!r}; the study has runs 1 to {head.runs}")
    if row.state != "frozen":
        raise StudyError(f"run {proposal.run} is {row.state}; only a frozen run can be advanced")
    connection.execute(update(runs).where(*where).values(state="pending", outcome="", change=head.change))
    return proposal.run, documents.load(row.config), row.epochs


def insert_run(
    connection: Connection,
    head: Head,
    run: int,
    config: Mapping[str, Any],
    state: str,
    epochs: int = 0,
    added: bool = False,
    outcome: str = "",
) -> None:
    """A new row of a run."""
    row = {"study": head.study, "run": run, "config": documents.dump(dict(config)), "state": state, "outcome": outcome}
    row |= {"added": added, "epochs": epochs, "created": head.change, "change": head.change}
    connection.execute(insert(runs).values(row))


def read(connection: Connection, study: int, number: int) -> StoredDecision:
    """One decision with its basket."""
    head = heads.read(connection, study)
    query = select(decisions, runs.c.config).join(
        runs, (runs.c.study == decisions.c.study) & (runs.c.run == decisions.c.run)
    )
    row = connection.execute(query.where(decisions.c.study == study, decisions.c.number == number)).one_or_none()
    if row is None:
        raise StudyError(f"there is no decision {number!r}; the study has decisions 1 to {head.decisions}")
    basket = tuple(documents.load(row.basket))
    ended = (row.state, row.outcome, row.reached, row.committed, row.closed)
    return StoredDecision(of_row(row), basket, row.basis, row.definition, *ended)


def listed(connection: Connection, study: int, last: int, before: int | None = None) -> tuple[StoredDecision, ...]:
    """So many decisions, the newest or those before another one, oldest first, without their baskets."""
    columns = [column for column in decisions.c if column.name != "basket"]
    query = select(*columns, runs.c.config).join(
        runs, (runs.c.study == decisions.c.study) & (runs.c.run == decisions.c.run)
    )
    query = query.where(decisions.c.study == study)
    query = query if before is None else query.where(decisions.c.number < before)
    rows = connection.execute(query.order_by(decisions.c.number.desc()).limit(last)).all()
    return tuple(without_basket(row) for row in reversed(rows))


def without_basket(row: Any) -> StoredDecision:
    """A decision whose basket was not read."""
    ended = (row.state, row.outcome, row.reached, row.committed, row.closed)
    return StoredDecision(of_row(row), (), row.basis, row.definition, *ended)


def of_row(row: Row[Any], config: Mapping[str, Any] | None = None) -> Decision:
    """A decision from its row; `config` where the row does not bring it."""
    config = documents.load(row.config) if config is None else config
    return Decision(row.number, row.kind, row.run, config, row.from_epoch, row.to_epoch, row.reason)
