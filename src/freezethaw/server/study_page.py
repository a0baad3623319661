"""The pages of a study, as HTML: one for each section. Each reads one snapshot of the records; figures load later."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from freezethaw import plain
from freezethaw.errors import StudyError
from freezethaw.notebook import curve_svg
from freezethaw.records import StudyState, best_of
from freezethaw.server import components, runs_table
from freezethaw.server.components import choice
from freezethaw.server.runs_table import RunsTable, Selection
from freezethaw.server.views import StoreView, StudyView
from freezethaw.store.urls import default_checkpoint_folder
from freezethaw.study.summary import decision_as_dict, weights_over_time

LAST_DECISIONS, BEST_RUNS, LAST_EVENTS, PAGE_OF_DECISIONS = 8, 8, 500, 50
WIDE = ("curves", "replay", "timeline", "slices", "parallel_coordinates", "study_progression", "time_spent")
# shown until the figure is drawn
FIGURES = {
    "curves": "Learning curves and forecasts",
    "best_loss": "Best {metric} so far",
    "replay": "Replay of the decisions",
    "study_progression": "Runs, by time of training",
    "timeline": "Starts, freezes and thaws",
    "time_spent": "Where the time went",
    "basket": "Basket of the last decision",
    "parallel_coordinates": "Configurations and their {metric}",
    "parameter_map": "Two hyperparameters",
    "importance": "Hyperparameter importance",
    "slices": "Slices through the best configuration",
    "run_asymptotes": "Asymptotes",
    "p_min": "Probability of the minimum",
    "forecast_calibration": "Calibration of past forecasts",
}
TOP = choice("shown", "best runs", [(str(n), str(n)) for n in (5, 1, 10, 20, 50)])
SCALES = (
    '<label class="check"><input type="checkbox" data-log="y">log {metric}</label>'
    '<label class="check"><input type="checkbox" data-log="x">log epochs</label>'
    '<span class="group"><button type="button" data-zoom="0.5">Zoom in</button>'
    '<button type="button" data-zoom="2">Zoom out</button><button type="button" data-zoom="reset">Reset</button></span>'
)
PLAYER = (
    '<div class="player"><button type="button" data-play>Play</button>'
    '<input type="range" min="0" max="0" value="0" step="1" aria-label="decision" data-frame>'
    '<output aria-live="off"></output></div>'
)


@dataclass(frozen=True)
class Snapshot:
    """What all parts of one page are made of."""

    store: StoreView
    view: StudyView
    key: str  # quoted
    known: StudyState
    found: Mapping[str, Any]  # the summary of `known`
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, store: StoreView, parameters: Mapping[str, Any]) -> Snapshot:
        """The current records of a study."""
        view = store.study(parameters["study"])
        known = view.known()
        return cls(store, view, quote(view.key), known, view.summary(LAST_DECISIONS, known), parameters)

    def figure(self, name: str, query: str = "", controls: str = "", more: str = "") -> str:
        """The place of a figure."""
        title = FIGURES[name].replace("{metric}", self.known.metric)
        folder = components.figures_of(self.key)
        return components.figure_slot(folder, name, title, name in WIDE, query, controls, more)

    def curves(self, runs: str = "", selectable: bool = False) -> str:
        """The figure of learning curves with its controls; `runs` are highlighted."""
        controls = SCALES.replace("{metric}", escape(self.known.metric))
        if selectable:
            given = f'<input data-option="runs" inputmode="numeric" placeholder="3, 7" value="{escape(runs)}">'
            controls = f'{TOP}<label class="choice">highlight runs {given}</label>{controls}'
            return self.figure("curves", controls=controls)
        return self.figure("curves", f"?runs={quote(runs)}" if runs else "", controls)


@dataclass(frozen=True)
class Section:
    """A page of a study."""

    title: str
    body: Callable[[Snapshot], str]
    json: Callable[[Snapshot], str]  # its URL


def page_of(section: str) -> Callable[[StoreView, Mapping[str, Any]], str]:
    """The function that makes the page of a section."""

    def page(store: StoreView, parameters: Mapping[str, Any]) -> str:
        """The page as HTML."""
        now, shown = Snapshot.of(store, parameters), SECTIONS[section]
        name = now.view.stored.name
        body = f"""<div id="live" data-live="yes" data-stream="/api/studies/{now.key}/stream" data-key="{now.key}">
{_header(now)}{navigation(now.key, section)}{shown.body(now)}</div>"""
        trail = [(name, f"/studies/{now.key}")]
        title = f"{shown.title}, {name}" if section else name
        return components.document(title, body, shown.json(now), trail)

    return page


def navigation(key: str, here: str | None = None) -> str:
    """Links to the sections of a study."""
    links = ""
    for section, shown in SECTIONS.items():
        current = ' aria-current="page"' if section == here else ""
        links += f'<li><a href="/studies/{key}{"/" if section else ""}{section}"{current}>{shown.title}</a></li>'
    return f'<nav class="sections" aria-label="Sections"><ul>{links}</ul></nav>'


def _header(now: Snapshot) -> str:
    state, text = state_of(now.found)
    clock = time.strftime("%H:%M:%S")
    return f"""<div class="title" data-part="title"><h1>{escape(now.view.stored.name)}</h1>
<span class="state {state}">{text}</span>{components.tags(now.found["tags"])}
<span class="soft asof">as of <time data-change="{now.known.change}">{clock}</time></span></div>"""


def _overview(now: Snapshot) -> str:
    below = f"""<div data-part="below" class="columns">
<section aria-labelledby="h-decisions"><h2 id="h-decisions">Last decisions</h2>
{components.decisions(now.key, now.found["decisions"])}</section><section aria-labelledby="h-runs">
<h2 id="h-runs">Best runs</h2>{_best_runs(now)}</section>{_earlier_studies(now)}</div>"""
    return f"""<div data-part="above">{_above(now)}</div>
<div class="figures lead">{now.figure("curves")}{now.figure("best_loss", controls=components.AGAINST)}</div>{below}
<details class="actions"><summary>Actions</summary>{_study_actions(now)}</details>"""


def _curves(now: Snapshot) -> str:
    drawn = now.curves(str(now.parameters.get("runs", "")), True)
    forecasts = choice("forecasts", "forecasts", [("no", "no"), ("yes", "yes")])
    scales = SCALES.replace("{metric}", escape(now.known.metric))
    replay = now.figure("replay", controls=forecasts + scales, more=PLAYER)
    return f'<div class="figures">{drawn}{replay}{now.figure("study_progression")}</div>'


def _runs(now: Snapshot) -> str:
    table = RunsTable(now.view, Selection.of(now.parameters))
    return f"""{table.form(now.key)}<div data-part="runs">{table.html(now.key)}</div>
<div id="compare" hidden><p class="bar"><a data-compare href="/studies/{now.key}/curves">Open in Curves</a>
<button type="button" data-clear>Clear selection</button></p><div class="figures">{now.curves("0")}</div></div>"""


def _decisions(now: Snapshot) -> str:
    try:
        before = int(str(now.parameters.get("before", "")) or 0) or None
    except ValueError:
        raise StudyError("before must be the number of a decision") from None
    records = now.view.stored.decisions(PAGE_OF_DECISIONS, before if before and before < 2**53 else None)
    found = [decision_as_dict(record) for record in records]
    older = ""
    if found and found[0]["number"] > 1:
        older = f'<a href="/studies/{now.key}/decisions?before={found[0]["number"]}">Older decisions</a>'
    figures = "".join(now.figure(name) for name in ("timeline", "time_spent"))
    listed = components.decisions(now.key, found, "Decisions", " tall")
    return f"""<div class="figures">{figures}</div><h2 id="h-decisions">Decisions</h2>
<div data-part="decisions">{listed}<p class="bar">{older}</p></div>"""


def _parameters(now: Snapshot) -> str:
    names = [(name, name) for name in now.known.definition["space"]]
    axes = choice("x", "across", [("", "most important"), *names]) + choice("y", "up", [("", "next"), *names])
    brushed = '<p class="brushed soft" role="status"></p>'
    lines, plane = now.figure("parallel_coordinates", more=brushed), now.figure("parameter_map", controls=axes)
    return f'<div class="figures">{lines}{plane}{now.figure("importance")}{now.figure("slices")}</div>'


def _forecasts(now: Snapshot) -> str:
    drawn = "".join(now.figure(name) for name in ("forecast_calibration", "p_min", "run_asymptotes", "basket"))
    return f'<div class="figures">{drawn}</div>'


def _events(now: Snapshot) -> str:
    text = str(now.parameters.get("text", ""))
    found = [
        event for event in reversed(now.view.stored.last_events(LAST_EVENTS))
        if text.lower() in f"{event.kind} {event.text}".lower()
    ]  # fmt: skip
    rows = "".join(
        f"<li><time>{escape(e.at.replace('T', ' ')[:19])}</time> <strong>{escape(e.kind)}</strong> {escape(e.text)}"
        f"{components.traceback(str(e.details.get('traceback', '')))}</li>"
        for e in found
    )
    shown = f'<ol class="log tall" tabindex="0" aria-label="Events">{rows}</ol>' if rows else "<p class=soft>None.</p>"
    return f"""<form method="get" action="/studies/{now.key}/events" class="filter" data-inplace="filter" role="search">
<label class="grow">Text <input name="text" type="search" value="{escape(text)}"></label>
<button class="main">Filter</button></form><div data-part="events">{shown}</div>"""


def _above(now: Snapshot) -> str:
    key, found = now.key, now.found
    best, title = found["best"], escape(f"Best {found['metric']}")
    cards = [_epochs_card(found), _hours_card(found), _disk_card(now.view, found)]
    if best is None:
        cards.insert(0, components.card(title, "–", "none yet"))
    else:
        where = f'<a href="/studies/{key}/runs/{best["run"]}">run {best["run"]}</a>, epoch {best["epoch"]}'
        cards.insert(0, components.card(title, plain.number(best["loss"]), where))
    runs = ", ".join(f"{count} {name}" for name, count in found["runs"].items()) or "none yet"
    cards.append(components.card("Runs", str(sum(found["runs"].values())), runs))
    best_config = "" if best is None else f'<p class="config">Best: {components.config_line(best["config"])}</p>'
    return f'<div class="cards">{"".join(cards)}</div>{best_config}{_workers(key, found)}'


def static_html(store: StoreView, view: StudyView) -> str:
    """What a report shows of the records: without links and actions."""
    now = Snapshot.of(store, {"study": view.key})
    body = f"""{_header(now)}{_above(now)}<h2>Last decisions</h2>{components.decisions(now.key, now.found["decisions"])}
<h2>Best runs</h2>{_best_runs(now)}"""
    return re.sub(r"</?a\b[^>]*>", "", body)


def state_of(found: Mapping[str, Any]) -> tuple[str, str]:
    """The style and the words for what a study is doing."""
    if found["stopped"]:
        return "idle", "stopped"
    alive = [p for p in found["pending"] if p["holder"] and not p["dead"]]
    if alive:
        return "busy", f"{len(alive)} training"
    limit = found["budget"].get("epochs")
    if limit and found["epochs"] >= limit:
        return "idle", "budget spent"
    return "idle", "no worker"


def _epochs_card(found: Mapping[str, Any]) -> str:
    limit = found["budget"].get("epochs")
    gauge = components.gauge("epochs", found["epochs"], limit) if limit else ""
    return components.card("Epochs", str(found["epochs"]), f"of {limit}" if limit else "no limit", gauge)


def _hours_card(found: Mapping[str, Any]) -> str:
    limit, hours = found["budget"].get("training_hours"), found["training_hours"]
    gauge = components.gauge("hours", hours, limit) if limit else ""
    deciding = plain.duration(3600 * found["deciding_hours"])
    limit_text = f"of {limit:g} h; deciding took {deciding}" if limit else f"deciding took {deciding}"
    return components.card("Training time", plain.duration(3600 * hours), limit_text, gauge)


def _disk_card(view: StudyView, found: Mapping[str, Any]) -> str:
    used, limit, gauge = found["checkpoint_bytes"], "", ""
    if found["disk_gb"]:
        gauge = components.gauge("disk", used, 1e9 * found["disk_gb"])
        return components.card("Checkpoints", plain.size(used), f"of {plain.size(1e9 * found['disk_gb'])}", gauge)
    if view.url.startswith("sqlite:///"):
        folder = Path(default_checkpoint_folder(view.url))
        disk = shutil.disk_usage(folder if folder.exists() else folder.parent)
        limit = f"{plain.size(disk.free)} free"
        gauge = components.gauge("disk, of all space", disk.used, disk.total)
    return components.card("Checkpoints", plain.size(used), limit, gauge)


def _workers(key: str, found: Mapping[str, Any]) -> str:
    if not found["pending"] and not found["requests"]:
        return ""
    rows = "".join(
        f'<tr><th scope="row"><a href="/studies/{key}/runs/{p["run"]}">run {p["run"]}</a></th>'
        f"<td>{p['epoch']} of {p['to_epoch']}</td><td>{_holder(p)}</td></tr>"
        for p in found["pending"]
    )
    waiting = f"<p>{found['requests']} requests wait for the next decision.</p>" if found["requests"] else ""
    table = components.table("Workers and leases", ("Run", "Epoch", "Lease"), rows) if rows else ""
    return f'<section aria-labelledby="h-workers"><h2 id="h-workers">Workers</h2>{table}{waiting}</section>'


def _earlier_studies(now: Snapshot) -> str:
    """The weight of each earlier study in the model, now and since the first decisions."""
    if not now.found["learns_from"]:
        return ""
    over = weights_over_time(now.view.stored, now.known)
    highest = max((weight for entry in over for weight in entry["weights"].values()), default=1.0)
    rows = ""
    for name, weight in now.found["learns_from"].items():
        before = [entry["weights"][name] for entry in over]
        shown = "no loss yet" if weight is None else plain.percent(weight)
        trend = curve_svg(before, 0.0, highest, len(before), f"over {len(before)} decisions") if before else ""
        rows += f'<tr><th scope="row">{escape(name)}</th><td class=n>{shown}</td><td>{trend}</td></tr>'
    heads = ("Study", "Weight", f"Since decision {over[0]['decision']}" if over else "")
    return f"""<section aria-labelledby="h-earlier"><h2 id="h-earlier">Earlier studies</h2>
<p class="soft under">Weight: how much of the differences between configurations the model expects from each
study.</p>{components.table("Earlier studies", heads, rows, ("Weight",))}</section>"""


def _holder(pending: Mapping[str, Any]) -> str:
    if not pending["holder"]:
        return "no worker: any worker may take it over"
    ended = ", which has ended: any worker may take it over" if pending["dead"] else ""
    return escape(pending["holder"]) + ended


def _best_runs(now: Snapshot) -> str:
    found, sign, runs = now.found, now.known.sign, now.known.runs
    ranked = sorted((r for r in runs if r.losses), key=lambda r: best_of(r, sign))[:BEST_RUNS]
    rest = [run for run in runs if not run.losses][: max(BEST_RUNS - len(ranked), 0)]
    if not ranked and not rest:
        return "<p class=soft>None yet.</p>"
    ordered = sorted(y for run in ranked for y in run.losses)
    low, high = (ordered[0], ordered[int(0.95 * (len(ordered) - 1))]) if ordered else (0.0, 1.0)
    rows = ""
    for run in [*ranked, *rest]:
        best = min(run.losses, key=lambda y: sign * y) if run.losses else None
        marks = "".join(f" {mark}" for mark in ("banned", "pinned") if run.number in found[mark])
        state = escape(run.outcome.replace("_", " ") if run.state == "failed" and run.outcome else run.state) + marks
        small = curve_svg(run.losses, low, high, found["max_epochs"]) if run.losses else ""
        rows += (
            f'<tr><th scope="row"><a href="/studies/{now.key}/runs/{run.number}">run {run.number}</a></th>'
            f"<td class=n>{plain.number(best)}</td><td class=n>{run.epoch}</td><td>{small}</td><td>{state}</td></tr>"
        )
    title = f"Best {found['metric']}"
    table = components.table("Best runs", ("Run", title, "Epochs", "Curve", "State"), rows, (title, "Epochs"))
    return f'{table}<p class="bar"><a href="/studies/{now.key}/runs">All {len(runs)} runs</a></p>'


def _study_actions(now: Snapshot) -> str:
    key, definition = now.key, now.known.definition
    budget = definition.get("budget") or {}
    stopped = bool(definition.get("stopped"))
    stop = (
        components.button(key, "resume", "Resume", kind="main")
        if stopped
        else components.button(key, "stop", "Stop the study", kind="danger")
    )
    example = escape(json.dumps(plain.plain(_example(now)), ensure_ascii=False))
    return f"""<div class="forms">{stop}
<form method="post" action="/studies/{key}/budget"><label>Budget in epochs
<input name="epochs" type="number" min="1" value="{budget.get("epochs") or ""}"></label><label>in hours of training
<input name="training_hours" type="number" min="0" step="any" value="{budget.get("training_hours") or ""}"></label>
<button data-action="budget">Change budget</button></form>
<form method="post" action="/studies/{key}/enqueue" class="long"><label>Configuration to start next, as JSON
<textarea name="config" rows="3" spellcheck="false">{example}</textarea></label><label>to epoch
<input name="to_epoch" type="number" min="1" value="1"></label>
<button data-action="enqueue">Enqueue</button></form></div>"""


def _example(now: Snapshot) -> dict[str, Any]:
    """The best configuration, or the middle of the space, to be edited."""
    best = now.found["best"]
    if best is not None:
        return dict(best["config"])
    from freezethaw.space import Space

    space = Space.from_dict(now.known.definition["space"])
    return dict(space.config([0.5] * len(space)))


def _of_study(now: Snapshot) -> str:
    return f"/api/studies/{now.key}"


def _drawn(name: str) -> Callable[[Snapshot], str]:
    return lambda now: f"/api/studies/{now.key}/figures/{name}"


SECTIONS = {
    "": Section("Overview", _overview, _of_study),
    "curves": Section("Curves", _curves, _drawn("curves")),
    "runs": Section("Runs", _runs, lambda now: runs_table.json_link(now.key, Selection.of(now.parameters))),
    "decisions": Section("Decisions", _decisions, lambda now: f"/api/studies/{now.key}/decisions"),
    "parameters": Section("Parameters", _parameters, _drawn("parallel_coordinates")),
    "forecasts": Section("Forecast quality", _forecasts, _drawn("forecast_calibration")),
    "events": Section("Events", _events, _of_study),
}
