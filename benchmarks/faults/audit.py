"""After the kills: the store must hold exactly what was acknowledged to the workers."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from benchmarks.faults.decider import decide
from benchmarks.faults.training import State
from benchmarks.faults.worker import Orders
from freezethaw.store import Storage, Store


class Broken(AssertionError):  # noqa: N818
    """A promise that was not kept."""


def audit(orders: Orders, runs: int, max_epochs: int, kills: int, replay: bool = True) -> dict[str, Any]:
    """Check everything; returns counts, raises Broken."""
    errors = [path.read_text() for path in orders.folder.glob("*.error")]
    _require(not errors, f"{len(errors)} worker(s) failed: {errors[:1]}")
    study = Store(orders.url).open("faults")
    trained, recorded, lost = _logs(orders.folder)
    now = study.load()
    curves = {run.number: run.losses for run in now.runs}
    for run, epoch, _, loss, _, _ in recorded:
        kept = curves[run][epoch - 1] if epoch <= len(curves[run]) else None
        _require(kept == loss, f"run {run} epoch {epoch} was acknowledged as {loss}; the store has {kept}")
    for run, losses in curves.items():
        expected = tuple(State.at(run, epoch).loss for epoch in range(1, len(losses) + 1))
        _require(losses == expected, f"run {run} has wrong losses")
    _require(len(curves) == runs, f"{len(curves)} runs, not {runs}")
    _require(all(len(losses) == max_epochs for losses in curves.values()), "not all runs were trained to the end")
    _require(now.pending == (), f"{len(now.pending)} decisions are pending still")
    _rows(study, now.change, runs * max_epochs)
    _owners(recorded)
    again = len(trained) - len({(run, epoch) for run, epoch, _ in trained})
    _require(again <= kills * orders.every, f"{again} epochs were trained again after {kills} kills")
    events = Counter(event.kind for event in study.events(most=1_000_000))
    wrong = set(events) - {"lease taken over"}
    _require(not wrong, f"unexpected events: {events}")
    if replay:
        _replay(study, now.decisions)
    return {
        "epochs": runs * max_epochs,
        "acknowledged": len(recorded),
        "trained_again": again,
        "allowed_again": kills * orders.every,
        "decisions": now.decisions,
        "replayed": now.decisions if replay else 0,
        "taken_over": events["lease taken over"],
        "lost": len(lost),
    }


def _logs(folder: Path) -> tuple[list[Any], list[Any], list[Any]]:
    trained, recorded, lost = [], [], []
    for path in folder.glob("*.log"):
        for line in path.read_text().splitlines():
            what, run, *rest = line.split()
            match what:
                case "trained":
                    trained.append((int(run), int(rest[0]), int(rest[1])))
                case "recorded":
                    epoch, token, loss, change = rest
                    recorded.append((int(run), int(epoch), int(token), float.fromhex(loss), int(change), path.stem))
                case "lost":
                    lost.append((int(run), path.stem))
    return trained, recorded, lost


def _rows(study: Storage, change: int, expected: int) -> None:
    """Rows as they are, below what the state makes of them: none twice, no gap, no change from nowhere."""
    with study._database.reading() as connection:
        counts = "count(*), count(DISTINCT epoch), min(epoch), max(epoch), max(change)"
        rows = list(connection.exec_driver_sql(f"SELECT run, {counts} FROM freezethaw_epochs GROUP BY run"))
        counted = dict(connection.exec_driver_sql("SELECT run, epochs FROM freezethaw_runs").all())  # type: ignore[arg-type]
    _require(sum(row[1] for row in rows) == expected, f"{sum(row[1] for row in rows)} rows, not {expected}")
    for run, count, distinct, first, last, newest in rows:
        whole = count == distinct == last == counted[run] and first == 1 and newest <= change
        _require(whole, f"run {run}: {count} rows, {distinct} epochs from {first} to {last}, counted {counted[run]}")


def _owners(recorded: list[Any]) -> None:
    """A token has one process, and in the order of commits tokens only grow."""
    by_run = defaultdict(list)
    for run, _, token, _, change, process in recorded:
        by_run[run].append((change, token, process))
    for run, writes in by_run.items():
        tokens = [token for _, token, _ in sorted(writes)]
        _require(tokens == sorted(tokens), f"run {run}: a write under an old token was accepted")
        owners = {(token, process) for _, token, process in writes}
        _require(len(owners) == len({token for token, _ in owners}), f"run {run}: two processes wrote under one token")
    changes = [change for _, _, _, _, change, _ in recorded]
    _require(len(changes) == len(set(changes)), "two writes got the same change counter")


def _replay(study: Storage, decisions: int) -> None:
    """Every decision equals the one that a replay takes from the store as it was."""
    for number in range(1, decisions + 1):
        kept = study.decision(number)
        proposal, state = decide(study.load(at=kept.basis), study.samples(before=number))
        found = (kept.decision.to_epoch, kept.decision.reason, dict(kept.decision.config))
        same = found == (proposal.to_epoch, proposal.reason, dict(proposal.config))
        same = same and proposal.run in (None, kept.decision.run) and state == study.samples(before=number + 1)
        _require(same, f"decision {number} was {kept.decision}; a replay takes {proposal}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Broken(message)
