"""What is recorded of a study, as plain numbers and texts: a summary, and rows of tables. It needs no model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from freezethaw.decide.earlier import relevance
from freezethaw.model.hyperparameter_samples import HyperparameterSamples
from freezethaw.records import DecisionRecord, Event, StudyState
from freezethaw.store import Process, Storage

STATES = ("pending", "frozen", "finished", "diverged", "failed")


def summary(study: Storage, last: int, state: StudyState | None = None) -> dict[str, Any]:
    """Progress, pending runs with their workers, and the last decisions and events; `state` if it is known."""
    state = study.load() if state is None else state
    definition = state.definition
    states: Counter[str] = Counter(run.state for run in state.runs if not run.added)
    return {
        "name": study.name,
        "tags": definition.get("tags", []),
        "metric": state.metric,
        "direction": definition["direction"],
        "max_epochs": definition["max_epochs"],
        "budget": definition.get("budget") or {},
        "stopped": bool(definition.get("stopped")),
        "banned": list(definition.get("banned", ())),
        "pinned": list(definition.get("pinned", ())),
        "learns_from": _earlier(study, definition.get("learn_from", ())),
        "epochs": state.epochs_trained(),
        "training_hours": state.seconds_trained() / 3600,
        "deciding_hours": study.deciding_seconds() / 3600,
        "runs": {state: states[state] for state in STATES if states[state]},
        "added_runs": sum(run.added for run in state.runs),
        "best": lowest(state),
        "pending": _pending(study, state),
        "requests": sum(not request.reason for request in state.requests),  # of the user
        "disk_gb": definition.get("disk_gb"),
        "checkpoint_bytes": sum(checkpoint.bytes for checkpoint in state.checkpoints),
        "decisions": [decision_as_dict(d) for d in study.decisions(last)] if last else [],
        "events": [_event(event) for event in study.last_events(last)] if last else [],
    }


def _earlier(study: Storage, earlier: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The earlier studies that this one learns from, with the weight of each in the model; None before any loss."""
    return _weights(study.samples() if earlier else None, earlier)


def _weights(plain: Any, earlier: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The weight of each earlier study, given hyperparameter samples."""
    names = [each["name"] for each in earlier]
    if plain is None:
        return dict.fromkeys(names)
    weights = relevance(HyperparameterSamples.from_dict(plain), [each["spread"] for each in earlier])
    return dict(zip(names, weights.tolist(), strict=True))


def weights_over_time(study: Storage, state: StudyState) -> list[dict[str, Any]]:
    """The weights of the earlier studies after some decisions: the first ones, then fewer and fewer, and the last."""
    earlier = state.definition.get("learn_from", ())
    if not earlier:
        return []
    spaced = {round(2.0 ** (i / 2)) for i in range(2 * state.decisions.bit_length())}
    found = []
    for decision in sorted(n for n in spaced | {state.decisions} if 0 < n <= state.decisions):
        weights = _weights(study.samples(before=decision + 1), earlier)
        if None not in weights.values():
            found.append({"decision": decision, "weights": weights})
    return found


def _pending(study: Storage, state: StudyState) -> list[dict[str, Any]]:
    here = Process.current()
    holders = {lease.decision: lease for lease in study.leases() if lease.decision}
    found = []
    for decision in state.pending:
        lease = holders.get(decision.number)
        held = lease is not None and lease.held
        found.append(
            {
                "decision": decision.number,
                "run": decision.run,
                "epoch": state.run(decision.run).epoch,
                "to_epoch": decision.to_epoch,
                "holder": str(lease.holder) if lease is not None and held else None,
                "dead": bool(lease is not None and held and lease.holder.is_dead(here)),
            }
        )
    return found


def lowest(state: StudyState) -> dict[str, Any] | None:
    """The best measured loss."""
    if state.lowest is None:
        return None
    loss, number, epoch = state.lowest
    return {"loss": state.sign * loss, "run": number, "epoch": epoch, "config": dict(state.run(number).config)}


def decision_as_dict(record: DecisionRecord) -> dict[str, Any]:
    """One decision, without its basket."""
    return {
        "number": record.decision.number,
        "kind": record.decision.kind,
        "run": record.decision.run,
        "to_epoch": record.decision.to_epoch,
        "state": record.state,
        "outcome": record.outcome,
        "reason": record.decision.reason,
    }


def _event(event: Event) -> dict[str, Any]:
    return {"at": event.at, "kind": event.kind, "run": event.run, "epoch": event.epoch, "text": event.text} | {
        key: value for key, value in event.details.items() if key == "traceback"
    }


# Rows of tables, for data frames and files.


def epoch_rows(storage: Storage, state: StudyState) -> list[dict[str, Any]]:
    """One row for each epoch, with the configuration (`config.`) and the other metrics (`metric.`) of that epoch."""
    rows = []
    for run in state.runs:
        fixed = {"state": run.state, **_config(run.config)}
        metrics = storage.metrics(run.number)
        for i, (loss, seconds) in enumerate(zip(run.losses, run.seconds, strict=True)):
            others = {f"metric.{key}": value for key, value in metrics[i].items()} if i < len(metrics) else {}
            rows.append({"run": run.number, "epoch": i + 1, state.metric: loss, "seconds": seconds, **fixed, **others})
    return _tagged(rows, state)


def run_rows(state: StudyState) -> list[dict[str, Any]]:
    """One row for each run."""
    rows = [
        {
            "run": run.number,
            "state": run.state,
            "outcome": run.outcome,
            "epochs": run.epoch,
            f"best_{state.metric}": min(run.losses, key=lambda y: state.sign * y) if run.losses else None,
            f"last_{state.metric}": run.losses[-1] if run.losses else None,
            "imported": run.added,
            **_config(run.config),
        }
        for run in state.runs
    ]
    return _tagged(rows, state)


def _config(config: Any) -> dict[str, Any]:
    return {f"config.{key}": value for key, value in config.items()}


def _tagged(rows: list[dict[str, Any]], state: StudyState) -> list[dict[str, Any]]:
    tags = state.definition.get("tags")
    return [row | {"tags": ", ".join(tags)} for row in rows] if tags else rows
