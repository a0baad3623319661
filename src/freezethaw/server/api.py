"""The HTTP API: a list of operations, from which the routes and the OpenAPI document are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from freezethaw.errors import AllPending, StudyError, StudyFinished, TellError
from freezethaw.figures import STUDY_FIGURES
from freezethaw.records import Best, Closing, Lease, Run
from freezethaw.server.actions import ACTIONS, act
from freezethaw.server.comparison_page import compare
from freezethaw.server.runs_table import RunsTable, Selection
from freezethaw.server.views import NotFound, StoreView
from freezethaw.space import Space
from freezethaw.study import Study
from freezethaw.study.study import parse_losses
from freezethaw.study.summary import STATES, decision_as_dict, weights_over_time

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MAX_ENTRIES = 1000  # of one response

Parameters = Mapping[str, Any]  # from the path, the query and the body
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 1}
LOSSES = {
    "type": "array",
    "items": {"type": ["number", "null"]},
    "minItems": 1,
    "description": "one per epoch; the last may be null: the run diverged",
}
SECONDS = {
    "type": "array",
    "items": {"type": "number", "minimum": 0},
    "description": "duration of each of these epochs",
}
CONFIG = {"type": "object", "description": "a value for each parameter of the space"}


@dataclass(frozen=True)
class Operation:
    """An operation of the API."""

    method: str
    path: str
    name: str
    text: str
    handle: Callable[[StoreView, Parameters], Any]
    body: dict[str, dict[str, Any]] = field(default_factory=dict)  # schema of each entry
    required: tuple[str, ...] = ()
    query: dict[str, dict[str, Any]] = field(default_factory=dict)


def integer(parameters: Parameters, key: str, default: int | None = None, least: int = 1) -> int:
    """An integer parameter."""
    value = parameters.get(key, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**53:
        raise StudyError(f"{key} must be an integer of at least {least}, not {value!r}")
    return value


def run_as_dict(run: Run, losses: bool = True) -> dict[str, Any]:
    """A run as JSON."""
    found: dict[str, Any] = {
        "run": run.number,
        "state": run.state,
        "outcome": run.outcome,
        "epoch": run.epoch,
        "added": run.added,
    }
    found |= {"config": dict(run.config), "last_loss": run.losses[-1] if run.losses else None}
    return found | {"losses": list(run.losses), "seconds": list(run.seconds)} if losses else found


def studies(store: StoreView, _: Parameters) -> Any:
    """All studies of the store."""
    keys = store.keys()
    return [asdict(info) | {"address": keys.get(info.uid, info.uid)} for info in store.studies()]


def create(store: StoreView, parameters: Parameters) -> Any:
    """Create or continue a study."""
    options = {
        key: parameters[key]
        for key in ("metric", "direction", "bounds", "seed", "budget", "finish_best")
        if parameters.get(key) is not None
    }
    described, name = parameters.get("space"), parameters.get("name")
    if not isinstance(described, dict) or not isinstance(name, str):
        raise StudyError("space must be an object of parameters, and name a string")
    budget = options.get("budget")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
        raise StudyError(f"budget must be an integer number of epochs, not {budget!r}")
    seed = options.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**53:
        raise StudyError(f"seed must be a non-negative integer, not {seed!r}")
    most = integer(parameters, "max_epochs")
    if not isinstance(options.get("finish_best", False), bool):
        raise StudyError("finish_best must be true or false")
    Study(Space.from_dict(described), most, name=name, store=store.url, **options).close()
    return one_study(store, {"study": name})


def one_study(store: StoreView, parameters: Parameters) -> Any:
    """The summary of a study, with the weights of earlier studies over time."""
    view = store.study(parameters["study"])
    found = view.summary(min(integer(parameters, "last", 30, 0), MAX_ENTRIES))
    return found | {"weights": weights_over_time(view.stored, view.known())}


def all_runs(store: StoreView, parameters: Parameters) -> Any:
    """Runs without their losses; by number unless a column to sort by is given."""
    table = RunsTable(store.study(parameters["study"]), Selection.of({"sort": "run"} | dict(parameters)))
    after, most = integer(parameters, "after", 0, 0), min(integer(parameters, "most", MAX_ENTRIES), MAX_ENTRIES)
    return [run_as_dict(run, losses=False) for run in table.rows[after : after + most]]


def one_run(store: StoreView, parameters: Parameters) -> Any:
    """A run with its losses, metrics and decisions."""
    view, number = store.study(parameters["study"]), integer(parameters, "run")
    known = view.known()
    if number > len(known.runs):
        raise NotFound(f"there is no run {number}")
    found = run_as_dict(known.runs[number - 1]) | {"metrics": list(view.stored.metrics(number))}
    with view.model_lock:
        _, study = view.read_only()
        taken = [t for t in study.history.decisions if t.decision.run == number]
    found["decisions"] = [
        {"number": t.decision.number, "kind": t.decision.kind, "from_epoch": t.decision.from_epoch,
         "to_epoch": t.decision.to_epoch, "outcome": t.outcome, "reason": t.decision.reason}
        for t in taken
    ]  # fmt: skip
    failed = view.failure(number)
    found["failure"] = None if failed is None else {"text": failed[0], "traceback": failed[1]}
    return found


def decisions(store: StoreView, parameters: Parameters) -> Any:
    """Decisions, newest last."""
    before = integer(parameters, "before") if "before" in parameters else None
    found = store.study(parameters["study"]).stored.decisions(
        min(integer(parameters, "most", 100), MAX_ENTRIES), before
    )
    return [decision_as_dict(taken) for taken in found]


def one_decision(store: StoreView, parameters: Parameters) -> Any:
    """A decision with its basket."""
    stored, number = store.study(parameters["study"]).stored, integer(parameters, "number")
    try:
        found = stored.decision(number)
    except StudyError as error:
        raise NotFound(str(error)) from None
    return decision_as_dict(found) | {"basket": [asdict(entry) for entry in found.basket]}


def best(store: StoreView, parameters: Parameters) -> Any:
    """The lowest measured loss, and the recommended epoch; null before the first loss."""
    view = store.study(parameters["study"])
    with view.model_lock:
        _, study = view.read_only()
        found, recommended = study.best, study.recommended
        if found is None or recommended is None:
            return None
        return _epoch(found) | {"recommended": _epoch(recommended)}


def _epoch(best: Best) -> dict[str, Any]:
    config = dict(best.config)
    return {"run": best.run, "epoch": best.epoch, "config": config, "loss": best.loss, "expected": best.expected}


def forecast(store: StoreView, parameters: Parameters) -> Any:
    """Forecast losses of a run or a configuration."""
    view = store.study(parameters["study"])
    what: Any = parameters.get("config")
    if what is None:
        what = integer(parameters, "run")
    elif not isinstance(what, dict):
        raise StudyError("config must be an object")
    epochs = parameters.get("epochs")
    if epochs is not None and not (
        isinstance(epochs, list)
        and 0 < len(epochs) <= MAX_ENTRIES
        and all(isinstance(e, int | float) and not isinstance(e, bool) and 0 < e < 1e9 for e in epochs)
    ):
        raise StudyError("epochs must be a list of positive numbers")
    with view.model_lock:
        _, study = view.read_only()
        if isinstance(what, int) and what > len(study.runs):
            raise NotFound(f"there is no run {what}")
        found = study.forecast(what, epochs)
        quantiles = found.quantile(QUANTILES)
        at = epochs or [study.max_epochs]
    names = ("low_90", "low_50", "median", "high_50", "high_90")
    return [
        {"epoch": epoch, "mean": float(found.mean[i])} | dict(zip(names, quantiles[:, i].tolist(), strict=True))
        for i, epoch in enumerate(at)
    ]


def ask(store: StoreView, parameters: Parameters) -> Any:
    """The next decision."""
    try:
        return {"decision": store.study(parameters["study"]).ask()}
    except StudyFinished as end:
        return {"decision": None, "finished": end.reason}
    except AllPending as wait:
        return {"decision": None, "wait": str(wait)}


def _lease(store: StoreView, parameters: Parameters) -> tuple[Any, Any, Lease]:
    view, number = store.study(parameters["study"]), integer(parameters, "decision")
    try:
        decision = view.stored.decision(number).decision
    except StudyError as error:
        raise NotFound(str(error)) from None
    return view, decision, Lease(decision.run, integer(parameters, "token"), number)


def tell(store: StoreView, parameters: Parameters) -> Any:
    """Record losses."""
    view, decision, lease = _lease(store, parameters)
    done = parameters.get("done", True)
    if not isinstance(done, bool):
        raise TellError("done must be true or false")
    losses, seconds = parameters.get("losses"), parameters.get("seconds")
    if not isinstance(losses, list):
        raise TellError("losses must be a list of numbers")
    epoch = view.known().runs[decision.run - 1].epoch
    values, granted = [math.nan if y is None else y for y in losses], max(decision.to_epoch - epoch, 0)
    report = parse_losses(values, seconds, granted, epoch + 1)
    close: Closing | None = "diverged" if report.diverged else "told" if done else None
    recorded = view.stored.record(lease, report, close=close)
    return {"epoch": recorded.epoch, "closed": close is not None}


def cancel(store: StoreView, parameters: Parameters) -> Any:
    """Cancel a decision."""
    view, _, lease = _lease(store, parameters)
    outcome = parameters.get("outcome", "interrupted")
    if outcome not in ("interrupted", "out_of_memory", "failed"):
        raise TellError(f"outcome must be interrupted, out_of_memory or failed, not {outcome!r}")
    view.stored.record(lease, close=outcome)
    return {"closed": True}


def heartbeat(store: StoreView, parameters: Parameters) -> Any:
    """Keep the lease of a decision."""
    view, _, lease = _lease(store, parameters)
    view.stored.beat(lease)
    return {"held": True}


def _action(action: str) -> Callable[[StoreView, Parameters], Any]:
    def handle(store: StoreView, parameters: Parameters) -> Any:
        return {"done": act(store.study(parameters["study"]), action, parameters)}

    return handle


AMONG = {"among": {"type": "array", "items": {"type": "string"}, "description": "studies to compare"}}
STUDY, LEASE = "/api/studies/{study}", {"decision": NUMBER, "token": NUMBER}
OPERATIONS = (
    Operation("GET", "/api/studies", "studies", "All studies of the store.", studies),
    Operation(
        "POST", "/api/studies", "create", "Create a study or continue an existing one.", create,
        {"name": {"type": "string", "minLength": 1, "maxLength": 200}, "space": {"type": "object"},
         "max_epochs": NUMBER, "direction": {"enum": ["minimize", "maximize"]}, "budget": NUMBER,
         "seed": {"type": "integer", "minimum": 0}, "finish_best": {"type": "boolean"}},
        ("name", "space", "max_epochs"),
    ),
    Operation("GET", "/api/compare", "compare", "Compare studies; by default the newest.",
              compare, query=AMONG),
    Operation("GET", STUDY, "study", "The progress of a study, its workers, last decisions and events.", one_study,
              query={"last": {"type": "integer", "minimum": 0}}),
    Operation("GET", f"{STUDY}/runs", "runs", "Runs without their losses.", all_runs,
              query={"after": {"type": "integer", "minimum": 0}, "most": NUMBER, "sort": {"type": "string"},
                     "order": {"enum": ["ascending", "descending"]}, "state": {"enum": list(STATES)},
                     "text": {"type": "string"}}),
    Operation("GET", f"{STUDY}/runs/{{run}}", "run", "A run with its losses, metrics and decisions.", one_run),
    Operation("GET", f"{STUDY}/decisions", "decisions", "Decisions, newest last.", decisions,
              query={"before": NUMBER, "most": NUMBER}),
    Operation("GET", f"{STUDY}/decisions/{{number}}", "decision", "A decision with its basket.", one_decision),
    Operation("GET", f"{STUDY}/best", "best", "The best epoch without noise; null before the first loss.", best),
    Operation("POST", f"{STUDY}/forecast", "forecast", "Forecast losses of a run or a configuration.", forecast,
              {"run": NUMBER, "config": CONFIG,
               "epochs": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 1}}),
    Operation("POST", f"{STUDY}/ask", "ask", "The next decision; null if the study has finished or all "
              "runs are being trained.", ask),
    Operation("POST", f"{STUDY}/tell", "tell", "Record the next losses; done: false keeps the decision "
              "open.", tell,
              LEASE | {"losses": LOSSES, "seconds": SECONDS, "done": {"type": "boolean"}},
              ("decision", "token", "losses")),
    Operation("POST", f"{STUDY}/cancel", "cancel", "Cancel a decision.", cancel,
              LEASE | {"outcome": {"enum": ["interrupted", "out_of_memory", "failed"]}}, ("decision", "token")),
    Operation("POST", f"{STUDY}/heartbeat", "heartbeat", "Keep the lease of a decision; after a minute without "
              "one, others may take it over.", heartbeat, LEASE, ("decision", "token")),
    *(
        Operation("POST", f"{STUDY}/{name}", name, action.text, _action(name), action.body, action.required)
        for name, action in ACTIONS.items()
    ),
)  # fmt: skip


def openapi(version: str) -> dict[str, Any]:
    """The OpenAPI document of these operations."""
    paths: dict[str, dict[str, Any]] = {}
    rejected = {"description": "rejected; see `error`", "content": {"application/json": {"schema": {
        "type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}}}}  # fmt: skip
    figure = Operation("GET", f"{STUDY}/figures/{{figure}}", "figure", "A figure as plotly JSON.", studies)
    drawn = Operation("GET", "/api/compare/comparison", "comparison", "Best losses as plotly JSON.", studies,
                      query=AMONG | {"against": {"enum": ["epochs", "hours", "cost"]}})  # fmt: skip
    for operation in (*OPERATIONS, figure, drawn):
        entry: dict[str, Any] = {"operationId": operation.name, "summary": operation.text, "parameters": []}
        for part in operation.path.split("/"):
            if part.startswith("{"):
                kinds = {"study": {"type": "string"}, "figure": {"enum": list(STUDY_FIGURES)}}
                schema = kinds.get(part[1:-1], NUMBER)
                entry["parameters"].append({"name": part[1:-1], "in": "path", "required": True, "schema": schema})
        for name, schema in operation.query.items():
            entry["parameters"].append({"name": name, "in": "query", "schema": schema})
        if operation.body:
            schema = {"type": "object", "properties": operation.body, "required": list(operation.required)}
            schema = {key: value for key, value in schema.items() if value}
            entry["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        entry["responses"] = {"200": {"description": "success", "content": {"application/json": {}}}}
        entry["responses"] |= dict.fromkeys(("400", "401", "404", "409"), rejected)
        paths.setdefault(operation.path, {})[operation.method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {"title": "freezethaw", "version": version, "description": "Tune from any language: ask, train, tell."},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }
