"""The page of a study, as HTML: records, workers, figures and actions."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from freezethaw import plain
from freezethaw.notebook import curve_svg
from freezethaw.records import Run
from freezethaw.server import components
from freezethaw.server.views import StoreView, StudyView, url_key
from freezethaw.store.urls import beside

LAST_DECISIONS, BEST_RUNS = 25, 50
WIDE = ("curves", "timeline", "slices", "parallel_coordinates", "study_progression")
# shown until the figure is drawn
FIGURES = {
    "curves": "Learning curves and forecasts",
    "best_loss": "Best {metric} so far",
    "run_asymptotes": "Asymptotes",
    "p_min": "Probability of the minimum",
    "basket": "Basket of the last decision",
    "timeline": "Starts, freezes and thaws",
    "slices": "Slices through the best configuration",
    "importance": "Hyperparameter importance",
    "forecast_calibration": "Calibration of past forecasts",
    "parallel_coordinates": "Configurations and their {metric}",
    "study_progression": "Runs, by time of training",
}


def page(store: StoreView, parameters: Mapping[str, Any]) -> str:
    """The page as HTML."""
    view = store.study(parameters["study"])
    key = quote(url_key(view.stored))
    titles = {name: title.replace("{metric}", view.known().metric) for name, title in FIGURES.items()}
    first, *others = (
        components.figure_slot(components.figures_of(key), name, title, name in WIDE) for name, title in titles.items()
    )
    above, below = _above(store, view), _below(view)
    body = f"""<div id="live" data-live="/studies/{key}/live" data-stream="/api/studies/{key}/stream">{above}
<details class="actions"><summary>Actions</summary>{_study_actions(key, view)}</details>
<div class="figures">{first}</div>{below}
<h2 id="figures">Figures</h2><div class="figures">{"".join(others)}</div></div>"""
    return components.document(view.stored.name, body, f"/api/studies/{key}", [(view.stored.name, f"/studies/{key}")])


def live(store: StoreView, parameters: Mapping[str, Any]) -> str:
    """The part of the page that is updated, without the figures."""
    view = store.study(parameters["study"])
    return _above(store, view) + _below(view)


def _above(store: StoreView, view: StudyView) -> str:
    key, found = quote(url_key(view.stored)), view.summary(LAST_DECISIONS)
    state, state_text = _state(found)
    best, title = found["best"], escape(f"Best {found['metric']}")
    cards = [_epochs_card(found), _hours_card(found), _disk_card(store, found)]
    if best is None:
        cards.insert(0, components.card(title, "–", "none yet"))
    else:
        where = f'<a href="/studies/{key}/runs/{best["run"]}">run {best["run"]}</a>, epoch {best["epoch"]}'
        cards.insert(0, components.card(title, plain.number(best["loss"]), where))
    runs = ", ".join(f"{count} {name}" for name, count in found["runs"].items()) or "none yet"
    cards.append(components.card("Runs", str(sum(found["runs"].values())), runs))
    best_config = "" if best is None else f'<p class="config">Best: {components.config_line(best["config"])}</p>'
    return f"""<div data-part="above"><div class="title"><h1>{escape(view.stored.name)}</h1>
<span class="state {state}">{state_text}</span>
{components.tags(found["tags"])}</div><div class="cards">{"".join(cards)}</div>{best_config}
{_workers(key, found)}</div>"""


def _below(view: StudyView) -> str:
    key, found = quote(url_key(view.stored)), view.summary(LAST_DECISIONS)
    known = view.known()
    return f"""<div data-part="below"><div class="columns">
<section aria-labelledby="h-decisions"><h2 id="h-decisions">Decisions</h2>
{components.decisions(key, found["decisions"])}</section><section aria-labelledby="h-runs"><h2 id="h-runs">Runs</h2>
{_runs(key, known.runs, found)}</section></div>{_events(found)}</div>"""


def static_html(store: StoreView, view: StudyView) -> str:
    """The updated part for a report: without links."""
    return re.sub(r"</?a\b[^>]*>", "", _above(store, view) + _below(view)).replace("<details", "<details open")


def _state(found: Mapping[str, Any]) -> tuple[str, str]:
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


def _disk_card(store: StoreView, found: Mapping[str, Any]) -> str:
    used, limit, gauge = found["checkpoint_bytes"], "", ""
    if found["disk_gb"]:
        gauge = components.gauge("disk", used, 1e9 * found["disk_gb"])
        return components.card("Checkpoints", plain.size(used), f"of {plain.size(1e9 * found['disk_gb'])}", gauge)
    if store.url.startswith("sqlite:///"):
        folder = Path(beside(store.url))
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


def _holder(pending: Mapping[str, Any]) -> str:
    if not pending["holder"]:
        return "no worker: any worker may take it over"
    ended = ", which has ended: any worker may take it over" if pending["dead"] else ""
    return escape(pending["holder"]) + ended


def _runs(key: str, runs: Sequence[Run], found: Mapping[str, Any]) -> str:
    sign = -1.0 if found["direction"] == "maximize" else 1.0
    ranked = sorted((r for r in runs if r.losses), key=lambda r: min(sign * y for y in r.losses))[:BEST_RUNS]
    rest = [run for run in runs if not run.losses][: max(BEST_RUNS - len(ranked), 0)]
    if not ranked and not rest:
        return "<p class=soft>None yet.</p>"
    values = [y for run in ranked for y in run.losses]
    ordered = sorted(values)
    low, high = (ordered[0], ordered[int(0.95 * (len(ordered) - 1))]) if ordered else (0.0, 1.0)
    rows = ""
    for run in [*ranked, *rest]:
        best = min(run.losses, key=lambda y: sign * y) if run.losses else None
        marks = "".join(f" {mark}" for mark in ("banned", "pinned") if run.number in found[mark])
        state = escape(run.outcome.replace("_", " ") if run.state == "failed" and run.outcome else run.state) + marks
        small = curve_svg(run.losses, low, high, found["max_epochs"]) if run.losses else ""
        rows += (
            f'<tr><th scope="row"><a href="/studies/{key}/runs/{run.number}">run {run.number}</a></th>'
            f"<td class=n>{plain.number(best)}</td><td class=n>{run.epoch}</td><td>{small}</td><td>{state}</td>"
            f'<td class="config">{components.config_line(run.config)}</td></tr>'
        )
    more = f"<p class=soft>best {len(ranked)} of {len(runs)} runs</p>" if len(runs) > len(ranked) + len(rest) else ""
    title = f"Best {found['metric']}"
    heads = ("Run", title, "Epochs", "Curve", "State", "Configuration")
    return components.table("Runs, best first", heads, rows, (title, "Epochs")) + more


def _events(found: Mapping[str, Any]) -> str:
    if not found["events"]:
        return ""
    rows = "".join(
        f"<li><time>{escape(e['at'].replace('T', ' ')[:19])}</time> <strong>{escape(e['kind'])}</strong> "
        f"{escape(e['text'])}</li>"
        for e in reversed(found["events"])
    )
    title = f"Last {len(found['events'])} events"
    return f'<details class="events"><summary>{title}</summary><ol class="log">{rows}</ol></details>'


def _study_actions(key: str, view: StudyView) -> str:
    definition = view.known().definition
    budget = definition.get("budget") or {}
    stopped = bool(definition.get("stopped"))
    stop = (
        components.button(key, "resume", "Resume", kind="main")
        if stopped
        else components.button(key, "stop", "Stop the study", kind="danger")
    )
    example = escape(json.dumps(plain.plain(_example(view)), ensure_ascii=False))
    return f"""<div class="forms">{stop}
<form method="post" action="/studies/{key}/budget"><label>Budget in epochs
<input name="epochs" type="number" min="1" value="{budget.get("epochs") or ""}"></label><label>in hours of training
<input name="training_hours" type="number" min="0" step="any" value="{budget.get("training_hours") or ""}"></label>
<button data-action="budget">Change budget</button></form>
<form method="post" action="/studies/{key}/enqueue" class="long"><label>Configuration to start next, as JSON
<textarea name="config" rows="3" spellcheck="false">{example}</textarea></label><label>to epoch
<input name="to_epoch" type="number" min="1" value="1"></label>
<button data-action="enqueue">Enqueue</button></form></div>"""


def _example(view: StudyView) -> dict[str, Any]:
    """The best configuration, or the middle of the space, to be edited."""
    best = view.summary(0)["best"]
    if best is not None:
        return dict(best["config"])
    from freezethaw.space import Space

    space = Space.from_dict(view.known().definition["space"])
    return dict(space.config([0.5] * len(space)))
