"""What can be asked and told by HTTP: one list of operations, from which both the routes and OpenAPI are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from freezethaw.errors import AllPending, StudyError, StudyFinished, TellError
from freezethaw.figures import OF_A_STUDY
from freezethaw.records import Run
from freezethaw.server.actions import ACTIONS, act
from freezethaw.server.comparing import compared
from freezethaw.server.watching import Library, Unknown, address
from freezethaw.space import Space
from freezethaw.store import Lease, Report
from freezethaw.study import Study
from freezethaw.study.summary import decision_as_dict
from freezethaw.study.told import read_losses

BANDS = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST = 1000  # entries of one answer

Asked = Mapping[str, Any]  # what stands in the path and the query, and the body's entries
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 1}
LOSSES = {
    "type": "array",
    "items": {"type": ["number", "null"]},
    "minItems": 1,
    "description": "in the order of epochs; the last may be null: the run diverged there",
}
SECONDS = {"type": "array", "items": {"type": "number", "minimum": 0}, "description": "of each of these epochs"}
CONFIG = {"type": "object", "description": "a value for each parameter of the space"}


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked."""

    method: str
    path: str
    name: str
    text: str
    answer: Callable[[Library, Asked], Any]
    body: dict[str, dict[str, Any]] = field(default_factory=dict)  # entries of the request, by name
    required: tuple[str, ...] = ()
    query: dict[str, dict[str, Any]] = field(default_factory=dict)


def whole(asked: Asked, key: str, default: int | None = None, least: int = 1) -> int:
    """An entry that is a whole number."""
    value = asked.get(key, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**53:
        raise StudyError(f"{key} must be a whole number of at least {least}, not {value!r}")
    return value


def run_as_dict(run: Run, losses: bool = True) -> dict[str, Any]:
    """A run."""
    found: dict[str, Any] = {
        "run": run.number,
        "state": run.state,
        "outcome": run.outcome,
        "epoch": run.epoch,
        "added": run.added,
    }
    found |= {"config": dict(run.config), "last_loss": run.losses[-1] if run.losses else None}
    return found | {"losses": list(run.losses), "seconds": list(run.seconds)} if losses else found


def studies(library: Library, _: Asked) -> Any:
    """All studies of the store."""
    return [asdict(info) | {"address": address(info)} for info in library.studies()]


def create(library: Library, asked: Asked) -> Any:
    """Create or continue a study."""
    options = {key: asked[key] for key in ("direction", "seed", "budget", "finish_best") if asked.get(key) is not None}
    described, name = asked.get("space"), asked.get("name")
    if not isinstance(described, dict) or not isinstance(name, str):
        raise StudyError("space must be an object of parameters, and name a text")
    budget = options.get("budget")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
        raise StudyError(f"budget must be a whole number of epochs, not {budget!r}")
    seed = options.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**53:
        raise StudyError(f"seed must be a whole number that is not negative, not {seed!r}")
    most = whole(asked, "max_epochs")
    if not isinstance(options.get("finish_best", False), bool):
        raise StudyError("finish_best must be true or false")
    Study(Space.from_dict(described), most, name=name, store=library.url, **options).close()
    return one_study(library, {"study": name})


def one_study(library: Library, asked: Asked) -> Any:
    """What is recorded of a study."""
    return library.watched(asked["study"]).summary(min(whole(asked, "last", 30, 0), MOST))


def all_runs(library: Library, asked: Asked) -> Any:
    """Runs, without their curves."""
    known = library.watched(asked["study"]).known()
    after, most = whole(asked, "after", 0, 0), min(whole(asked, "most", MOST), MOST)
    return [run_as_dict(run, losses=False) for run in known.runs[after : after + most]]


def one_run(library: Library, asked: Asked) -> Any:
    """A run with its curve, its metrics and its decisions."""
    watched, number = library.watched(asked["study"]), whole(asked, "run")
    known = watched.known()
    if number > len(known.runs):
        raise Unknown(f"there is no run {number}")
    found = run_as_dict(known.runs[number - 1]) | {"metrics": list(watched.stored.metrics(number))}
    with watched.thinking:
        _, still = watched.still()
        taken = [t for t in still.history().decisions if t.decision.run == number]
    found["decisions"] = [
        {"number": t.decision.number, "kind": t.decision.kind, "from_epoch": t.decision.from_epoch,
         "to_epoch": t.decision.to_epoch, "outcome": t.outcome, "reason": t.decision.reason}
        for t in taken
    ]  # fmt: skip
    return found


def decisions(library: Library, asked: Asked) -> Any:
    """Decisions, newest last."""
    before = whole(asked, "before") if "before" in asked else None
    found = library.watched(asked["study"]).stored.decisions(min(whole(asked, "most", 100), MOST), before)
    return [decision_as_dict(taken) for taken in found]


def one_decision(library: Library, asked: Asked) -> Any:
    """A decision with its basket."""
    stored, number = library.watched(asked["study"]).stored, whole(asked, "number")
    try:
        found = stored.decision(number)
    except StudyError as error:
        raise Unknown(str(error)) from None
    return decision_as_dict(found) | {"basket": list(found.basket)}


def best(library: Library, asked: Asked) -> Any:
    """The best epoch, noise removed; null before the first loss."""
    watched = library.watched(asked["study"])
    with watched.thinking:
        _, still = watched.still()
        found = still.best
    if found is None:
        return None
    return {"run": found.run, "epoch": found.epoch, "config": dict(found.config), "loss": found.loss} | {
        "expected": found.expected
    }


def forecast(library: Library, asked: Asked) -> Any:
    """Later losses of a run, or those of a configuration."""
    watched = library.watched(asked["study"])
    what: Any = asked.get("config")
    if what is None:
        what = whole(asked, "run")
    elif not isinstance(what, dict):
        raise StudyError("config must be an object")
    epochs = asked.get("epochs")
    if epochs is not None and not (
        isinstance(epochs, list)
        and 0 < len(epochs) <= MOST
        and all(isinstance(e, int | float) and not isinstance(e, bool) and 0 < e < 1e9 for e in epochs)
    ):
        raise StudyError("epochs must be a list of positive numbers")
    with watched.thinking:
        _, still = watched.still()
        if isinstance(what, int) and what > len(still.runs):
            raise Unknown(f"there is no run {what}")
        found = still.forecast(what, epochs)
        bands = found.quantile(BANDS)
        at = epochs or [still.max_epochs]
    names = ("low_90", "low_50", "median", "high_50", "high_90")
    return [
        {"epoch": epoch, "mean": float(found.mean[i])} | dict(zip(names, bands[:, i].tolist(), strict=True))
        for i, epoch in enumerate(at)
    ]


def ask(library: Library, asked: Asked) -> Any:
    """What to train next."""
    try:
        return {"decision": library.watched(asked["study"]).ask()}
    except StudyFinished as end:
        return {"decision": None, "finished": end.reason}
    except AllPending as wait:
        return {"decision": None, "wait": str(wait)}


def _lease(library: Library, asked: Asked) -> tuple[Any, Any, Lease]:
    watched, number = library.watched(asked["study"]), whole(asked, "decision")
    try:
        decision = watched.stored.decision(number).decision
    except StudyError as error:
        raise Unknown(str(error)) from None
    return watched, decision, Lease(decision.run, whole(asked, "token"), number)


def tell(library: Library, asked: Asked) -> Any:
    """Record losses."""
    watched, decision, lease = _lease(library, asked)
    done = asked.get("done", True)
    if not isinstance(done, bool):
        raise TellError("done must be true or false")
    losses, seconds = asked.get("losses"), asked.get("seconds")
    if not isinstance(losses, list):
        raise TellError("losses must be a list of numbers")
    epoch = watched.known().runs[decision.run - 1].epoch
    told = read_losses([math.nan if y is None else y for y in losses], seconds, max(decision.to_epoch - epoch, 0))
    report = Report(epoch + 1, told.losses, told.seconds) if told.losses else None
    close = "diverged" if told.diverged else "told" if done else None
    recorded = watched.stored.record(lease, report, close=close)
    return {"epoch": recorded.epoch, "closed": close is not None}


def cancel(library: Library, asked: Asked) -> Any:
    """Give a decision back."""
    watched, _, lease = _lease(library, asked)
    outcome = asked.get("outcome", "interrupted")
    if outcome not in ("interrupted", "out_of_memory", "failed"):
        raise TellError(f"outcome must be interrupted, out_of_memory or failed, not {outcome!r}")
    watched.stored.record(lease, close=outcome)
    return {"closed": True}


def heartbeat(library: Library, asked: Asked) -> Any:
    """Show that the trainer lives."""
    watched, _, lease = _lease(library, asked)
    watched.stored.beat(lease)
    return {"held": True}


def _steering(action: str) -> Callable[[Library, Asked], Any]:
    def answer(library: Library, asked: Asked) -> Any:
        return {"done": act(library.watched(asked["study"]), action, asked)}

    return answer


AMONG = {"among": {"type": "array", "items": {"type": "string"}, "description": "studies to compare"}}
STUDY, LEASE = "/api/studies/{study}", {"decision": NUMBER, "token": NUMBER}
OPERATIONS = (
    Operation("GET", "/api/studies", "studies", "All studies of the store.", studies),
    Operation(
        "POST", "/api/studies", "create", "Create a study, or continue it as far as it is the same one.", create,
        {"name": {"type": "string", "minLength": 1, "maxLength": 200}, "space": {"type": "object"},
         "max_epochs": NUMBER, "direction": {"enum": ["minimize", "maximize"]}, "budget": NUMBER,
         "seed": {"type": "integer", "minimum": 0}, "finish_best": {"type": "boolean"}},
        ("name", "space", "max_epochs"),
    ),
    Operation("GET", "/api/compare", "compare", "Several studies side by side; the newest where none is named.",
              compared, query=AMONG),
    Operation("GET", STUDY, "study", "How far a study is, who trains what, its last decisions and events.", one_study,
              query={"last": {"type": "integer", "minimum": 0}}),
    Operation("GET", f"{STUDY}/runs", "runs", "Runs without their curves.", all_runs,
              query={"after": {"type": "integer", "minimum": 0}, "most": NUMBER}),
    Operation("GET", f"{STUDY}/runs/{{run}}", "run", "A run: its curve, metrics and decisions.", one_run),
    Operation("GET", f"{STUDY}/decisions", "decisions", "Decisions, newest last.", decisions,
              query={"before": NUMBER, "most": NUMBER}),
    Operation("GET", f"{STUDY}/decisions/{{number}}", "decision", "A decision and all that it compared.", one_decision),
    Operation("GET", f"{STUDY}/best", "best", "The best epoch, noise removed; null before the first loss.", best),
    Operation("POST", f"{STUDY}/forecast", "forecast", "Losses to come, of a run or of a configuration.", forecast,
              {"run": NUMBER, "config": CONFIG,
               "epochs": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 1}}),
    Operation("POST", f"{STUDY}/ask", "ask", "What to train next; decision is null where the study has finished "
              "or all is under way.", ask),
    Operation("POST", f"{STUDY}/tell", "tell", "Record losses that follow those recorded; done: false keeps the "
              "decision open.", tell,
              LEASE | {"losses": LOSSES, "seconds": SECONDS, "done": {"type": "boolean"}},
              ("decision", "token", "losses")),
    Operation("POST", f"{STUDY}/cancel", "cancel", "Give a decision back without a loss.", cancel,
              LEASE | {"outcome": {"enum": ["interrupted", "out_of_memory", "failed"]}}, ("decision", "token")),
    Operation("POST", f"{STUDY}/heartbeat", "heartbeat", "Keep a decision; without one for a minute, others may take "
              "it over.", heartbeat, LEASE, ("decision", "token")),
    *(
        Operation("POST", f"{STUDY}/{name}", name, action.text, _steering(name), action.body, action.required)
        for name, action in ACTIONS.items()
    ),
)  # fmt: skip


def openapi(version: str) -> dict[str, Any]:
    """The OpenAPI document of these operations."""
    paths: dict[str, dict[str, Any]] = {}
    refused = {"description": "refused; `error` says why", "content": {"application/json": {"schema": {
        "type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}}}}  # fmt: skip
    figure = Operation("GET", f"{STUDY}/figures/{{figure}}", "figure", "A figure, as plotly draws it.", studies)
    drawn = Operation("GET", "/api/compare/comparison", "comparison", "Best losses, as plotly draws them.", studies,
                      query=AMONG | {"against": {"enum": ["epochs", "hours", "cost"]}})  # fmt: skip
    for operation in (*OPERATIONS, figure, drawn):
        entry: dict[str, Any] = {"operationId": operation.name, "summary": operation.text, "parameters": []}
        for part in operation.path.split("/"):
            if part.startswith("{"):
                kinds = {"study": {"type": "string"}, "figure": {"enum": list(OF_A_STUDY)}}
                schema = kinds.get(part[1:-1], NUMBER)
                entry["parameters"].append({"name": part[1:-1], "in": "path", "required": True, "schema": schema})
        for name, schema in operation.query.items():
            entry["parameters"].append({"name": name, "in": "query", "schema": schema})
        if operation.body:
            schema = {"type": "object", "properties": operation.body, "required": list(operation.required)}
            schema = {key: value for key, value in schema.items() if value}
            entry["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        entry["responses"] = {"200": {"description": "done", "content": {"application/json": {}}}}
        entry["responses"] |= dict.fromkeys(("400", "401", "404", "409"), refused)
        paths.setdefault(operation.path, {})[operation.method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {"title": "freezethaw", "version": version, "description": "Tune from any language: ask, train, tell."},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }
