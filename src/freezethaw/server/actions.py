"""What a user may do to a study from the page or by HTTP; each is said in words when it is done."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from freezethaw.errors import StudyError
from freezethaw.server.watching import Unknown, Watched
from freezethaw.study import Study

Fields = Mapping[str, Any]
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 1}
RUN = {"run": NUMBER}


@dataclass(frozen=True)
class Action:
    """One of them: what it does in words, what it needs, and how."""

    text: str
    do: Callable[[Study, Fields], str]
    body: dict[str, dict[str, Any]] = field(default_factory=dict)
    required: tuple[str, ...] = ()


def act(watched: Watched, action: str, fields: Fields) -> str:
    """Do it; gives what was done in words."""
    with watched.thinking:
        return ACTIONS[action].do(watched.steer(), fields)


def _number(fields: Fields, key: str, kind: type[int] | type[float] = int) -> Any:
    """A number as JSON has it or as a form sends it; None where it is not given."""
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
        raise StudyError("run must be a run's number")
    if not 1 <= run <= len(study.runs):
        raise Unknown(f"there is no run {run}")
    return run


def _stop(study: Study, _: Fields) -> str:
    study.stop()
    return "stopped: no more decisions; those under way are finished"


def _resume(study: Study, _: Fields) -> str:
    study.go_on_after_stop()
    return "goes on: workers that are there, or that come, decide again"


def _thaw(study: Study, fields: Fields) -> str:
    run, to_epoch = _run(study, fields), _number(fields, "to_epoch")
    to_epoch = study.max_epochs if to_epoch is None else to_epoch
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
            raise StudyError("the configuration is no JSON") from None
    if not isinstance(config, dict):
        raise StudyError("config must be an object with a value for each parameter")
    to_epoch = _number(fields, "to_epoch")
    study.enqueue(config, 1 if to_epoch is None else to_epoch)
    return "the configuration will be started next"


def _budget(study: Study, fields: Fields) -> str:
    limits = {"epochs": _number(fields, "epochs"), "hours": _number(fields, "hours", float)}
    given = {key: value for key, value in limits.items() if value is not None}
    if not given:
        raise StudyError("a budget needs epochs or hours")
    study.raise_budget(**given)
    return "the budget is now " + ", ".join(f"{value:g} {key}" for key, value in given.items())


def _mark(change: Callable[[Study, int], None], words: str) -> Callable[[Study, Fields], str]:
    def do(study: Study, fields: Fields) -> str:
        run = _run(study, fields)
        change(study, run)
        return words.format(run=run)

    return do


ACTIONS = {
    "stop": Action("Take no more decisions; those under way are finished.", _stop),
    "resume": Action("Decide again after a stop.", _resume),
    "thaw": Action("Thaw a run next.", _thaw, RUN | {"to_epoch": NUMBER}, ("run",)),
    "enqueue": Action(
        "Start a configuration next.", _enqueue, {"config": {"type": "object"}, "to_epoch": NUMBER}, ("config",)
    ),
    "budget": Action(
        "Other limits for the whole study.", _budget, {"epochs": NUMBER, "hours": {"type": "number", "minimum": 0}}
    ),
    "ban": Action(
        "Advance a run no more.", _mark(lambda s, r: s.ban(r), "run {run} will be advanced no more"), RUN, ("run",)
    ),
    "unban": Action(
        "Let a banned run be advanced again.",
        _mark(lambda s, r: s.ban(r, banned=False), "run {run} may be advanced again"),
        RUN,
        ("run",),
    ),
    "pin": Action(
        "Keep a run's checkpoints whatever the disk budget.",
        _mark(lambda s, r: s.pin(r), "the checkpoints of run {run} stay"),
        RUN,
        ("run",),
    ),
    "unpin": Action(
        "Let a run's checkpoints go where room is short.",
        _mark(lambda s, r: s.pin(r, pinned=False), "the checkpoints of run {run} may go"),
        RUN,
        ("run",),
    ),
}
