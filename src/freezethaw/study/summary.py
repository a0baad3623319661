"""What is recorded of a study, as plain numbers and texts. No model is asked, so that looking is quick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from freezethaw.records import Run
from freezethaw.store import Event, Process, Snapshot, StoredDecision, StoredStudy
from freezethaw.study.facts import Facts

STATES = ("pending", "frozen", "finished", "diverged", "failed")


def summary(study: StoredStudy, last: int, known: Snapshot | None = None) -> dict[str, Any]:
    """How far the study is, who trains what, and the last decisions and events; `known` spares reading it again."""
    known = study.load() if known is None else known
    definition = known.definition
    facts = Facts(definition["max_epochs"], known.runs, known.pending, known.decisions, known.wishes)
    states: Counter[str] = Counter(run.state for run in known.runs if not run.added)
    return {
        "name": study.name,
        "tags": definition.get("tags", []),
        "direction": definition["direction"],
        "max_epochs": definition["max_epochs"],
        "budget": definition.get("budget") or {},
        "stopped": bool(definition.get("stopped")),
        "banned": list(definition.get("banned", ())),
        "pinned": list(definition.get("pinned", ())),
        "epochs": facts.epochs_trained(),
        "hours": facts.seconds_trained() / 3600,
        "runs": {state: states[state] for state in STATES if states[state]},
        "added_runs": sum(run.added for run in known.runs),
        "best": lowest(known.runs, definition["direction"]),
        "pending": _pending(study, facts),
        "wishes": len(known.wishes),
        "disk_gb": definition.get("disk_gb"),
        "checkpoint_bytes": sum(checkpoint.bytes for checkpoint in known.checkpoints),
        "decisions": [decision_as_dict(d) for d in study.decisions(last)] if last else [],
        "events": [_event(event) for event in study.last_events(last)] if last else [],
    }


def _pending(study: StoredStudy, facts: Facts) -> list[dict[str, Any]]:
    here = Process.current()
    holders = {lease.decision: lease for lease in study.leases() if lease.decision}
    found = []
    for decision in facts.pending:
        lease = holders.get(decision.number)
        held = lease is not None and lease.held
        found.append(
            {
                "decision": decision.number,
                "run": decision.run,
                "epoch": facts.run(decision.run).epoch,
                "to_epoch": decision.to_epoch,
                "holder": str(lease.holder) if lease is not None and held else None,
                "dead": bool(lease is not None and held and lease.holder.is_dead(here)),
            }
        )
    return found


def lowest(runs: Sequence[Run], direction: str) -> dict[str, Any] | None:
    """The best loss as told."""
    sign = -1.0 if direction == "maximize" else 1.0
    best = min(((min(sign * loss for loss in run.losses), run.number) for run in runs if run.losses), default=None)
    if best is None:
        return None
    loss, number = best
    run = runs[number - 1]
    epoch = [sign * y for y in run.losses].index(loss) + 1
    return {"loss": sign * loss, "run": number, "epoch": epoch, "config": dict(run.config)}


def decision_as_dict(taken: StoredDecision) -> dict[str, Any]:
    """One decision, without its basket."""
    return {
        "number": taken.decision.number,
        "kind": taken.decision.kind,
        "run": taken.decision.run,
        "to_epoch": taken.decision.to_epoch,
        "state": taken.state,
        "outcome": taken.outcome,
        "reason": taken.decision.reason,
    }


def _event(event: Event) -> dict[str, Any]:
    return {"at": event.at, "kind": event.kind, "run": event.run, "epoch": event.epoch, "text": event.text}
