"""Actions on a study, from its page or by HTTP. Each returns a message."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from freezethaw.errors import StudyError
from freezethaw.server.views import NotFound, StudyView
from freezethaw.study import Study

Fields = Mapping[str, Any]
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 1}
RUN = {"run": NUMBER}


@dataclass(frozen=True)
class Action:
    """An action: its description, its function and its fields."""

    text: str
    do: Callable[[Study, Fields], str]
    body: dict[str, dict[str, Any]] = field(default_factory=dict)
    required: tuple[str, ...] = ()


def act(view: StudyView, action: str, fields: Fields) -> str:
    """Perform an action and return its message."""
    with view.model_lock:
        return ACTIONS[action].do(view.writable(), fields)


def _number(fields: Fields, key: str, kind: type[int] | type[float] = int) -> Any:
    """A number from JSON or from a form; None if missing."""
    value = fields.get(key)
    if value in (None, ""):
        return None
    if isinstance(value, str):
        try:
            value = kind(value)
        except ValueError:
            raise StudyError(f"{key} must be a number, not {value!r}") from None
    if isinstance(value, bool) or not isinstance(value, int | kind) or not -(2**53) < value < 2**53:
        raise StudyError(f"{key} must be a number, not {value!r}")
    return value


def _run(study: Study, fields: Fields) -> int:
    run: int | None = _number(fields, "run")
    if run is None:
        raise StudyError("run must be a run number")
    if not 1 <= run <= len(study.runs):
        raise NotFound(f"there is no run {run}")
    return run


def _stop(study: Study, _: Fields) -> str:
    study.stop()
    return "stopped: open decisions are finished, no new ones are taken"


def _resume(study: Study, _: Fields) -> str:
    study.resume()
    return "resumed: workers take decisions again"


def _thaw(study: Study, fields: Fields) -> str:
    run, to_epoch = _run(study, fields), _number(fields, "to_epoch")
    to_epoch = study.definition.max_epochs if to_epoch is None else to_epoch
    state = study.runs[run - 1].state
    if state in ("diverged", "failed", "finished"):
        raise StudyError(f"run {run} is {state}; it cannot be thawed")
    study.thaw(run, to_epoch)
    return f"run {run} will be thawed next, to epoch {to_epoch}"


def _enqueue(study: Study, fields: Fields) -> str:
    config: Any = fields.get("config")
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            raise StudyError("the configuration is not valid JSON") from None
    if not isinstance(config, dict):
        raise StudyError("config must be an object with a value for each parameter")
    to_epoch = _number(fields, "to_epoch")
    study.enqueue(config, 1 if to_epoch is None else to_epoch)
    return "the configuration will be started next"


def _budget(study: Study, fields: Fields) -> str:
    limits = {key: _number(fields, key, kind) for key, kind in (("epochs", int), ("training_hours", float))}
    given = {key: value for key, value in limits.items() if value is not None}
    if not given:
        raise StudyError("a budget needs epochs or training_hours")
    study.set_budget(replace(study.definition.budget, **given))
    return "the budget is now " + ", ".join(f"{value:g} {key.replace('_', ' ')}" for key, value in given.items())


def _mark(change: Callable[[Study, int], None], message: str) -> Callable[[Study, Fields], str]:
    def do(study: Study, fields: Fields) -> str:
        run = _run(study, fields)
        change(study, run)
        return message.format(run=run)

    return do


ACTIONS = {
    "stop": Action("Stop: open decisions are finished, no new ones are taken.", _stop),
    "resume": Action("Resume after a stop.", _resume),
    "thaw": Action("Thaw a run next.", _thaw, RUN | {"to_epoch": NUMBER}, ("run",)),
    "enqueue": Action(
        "Start a configuration next.", _enqueue, {"config": {"type": "object"}, "to_epoch": NUMBER}, ("config",)
    ),
    "budget": Action(
        "Change the budget of the study.",
        _budget,
        {"epochs": NUMBER, "training_hours": {"type": "number", "minimum": 0}},
    ),
    "ban": Action(
        "Ban a run: it is not thawed any more.",
        _mark(lambda s, r: s.ban(r), "run {run} will not be thawed any more"),
        RUN,
        ("run",),
    ),
    "unban": Action(
        "Lift the ban of a run.",
        _mark(lambda s, r: s.ban(r, banned=False), "run {run} may be thawed again"),
        RUN,
        ("run",),
    ),
    "pin": Action(
        "Pin a run: its checkpoints are kept regardless of the disk budget.",
        _mark(lambda s, r: s.pin(r), "the checkpoints of run {run} are kept"),
        RUN,
        ("run",),
    ),
    "unpin": Action(
        "Unpin a run: its checkpoints may be deleted.",
        _mark(lambda s, r: s.pin(r, pinned=False), "the checkpoints of run {run} may be deleted"),
        RUN,
        ("run",),
    ),
}
