"""The pages, as HTML. Whatever a user typed passes through `escape`; scripts and styles are files of their own."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from freezethaw.plain import plain
from freezethaw.records import Run
from freezethaw.runtime.places import beside
from freezethaw.server import parts
from freezethaw.server.api import one_decision, whole
from freezethaw.server.watching import Library, Unknown, Watched, address, address_of
from freezethaw.store import StudyInfo

LAST, BEST_RUNS = 25, 50
WIDE = ("curves", "timeline", "slices", "parallel_coordinates", "study_progression")
# shown at once, in words; the figure brings its own once it is there
FIGURES = {
    "curves": "Curves and forecasts",
    "best_loss": "Best loss so far",
    "run_asymptotes": "Asymptotes",
    "p_min": "Which run would end best",
    "basket": "What the last decision compared",
    "timeline": "Starts, freezes and thaws",
    "slices": "Slices through the best configuration",
    "importance": "Which hyperparameters matter",
    "forecast_calibration": "Were past forecasts right?",
    "parallel_coordinates": "Configurations and their losses",
    "study_progression": "The runs of the study",
}


def trouble(message: str) -> str:
    """What went wrong, on a page."""
    body = f'<h1>That did not work</h1><p class="trouble">{escape(message)}</p><p><a href="/">All studies</a></p>'
    return parts.document("That did not work", body, "/api/studies")


def _figures(key: str) -> str:
    return f"/api/studies/{key}/figures"


def list_of_studies(library: Library, _: Mapping[str, Any]) -> str:
    """All studies of the store; where there are several, with a form to compare some."""
    found = library.studies()
    several = len(found) > 1
    rows = "".join(
        f'<tr><th scope="row"><a href="/studies/{quote(address(info))}">{escape(info.name)}</a></th>'
        f"<td class=n>{info.runs}</td><td class=n>{info.epochs}</td><td class=n>{info.decisions}</td>"
        f"<td>{escape(info.created.replace('T', ' ')[:16])}</td><td>{parts.tags(info.tags)}</td>"
        + (f"<td>{_choice(info)}</td></tr>" if several else "</tr>")
        for info in reversed(found)
    )
    heads = ("Study", "Runs", "Epochs", "Decisions", "Created", "Tags", *(["Compare"] if several else []))
    table = parts.table("Studies", heads, rows, ("Runs", "Epochs", "Decisions"))
    if several:
        table = (
            f'<form class="plain" method="get" action="/compare">{table}<button>Compare those chosen</button></form>'
        )
    empty = "<p>No study yet. One comes with the first <code>freezethaw run</code> or <code>ft.tune</code>.</p>"
    body = f'<h1>Studies</h1><p class="soft under">in {escape(library.shown)}</p>{table if rows else empty}'
    return parts.document("Studies", body, "/api/studies")


def _choice(info: StudyInfo) -> str:
    return (
        f'<input type="checkbox" name="among" value="{escape(address(info))}" aria-label="compare {escape(info.name)}">'
    )


def study(library: Library, asked: Mapping[str, Any]) -> str:
    """One study: the live part, its figures, and what can be done."""
    watched = library.watched(asked["study"])
    key = quote(address_of(watched.stored))
    first, *others = (parts.place_of(_figures(key), name, title, name in WIDE) for name, title in FIGURES.items())
    above, below = _above(library, watched), _below(watched)
    body = f"""<div id="live" data-live="/studies/{key}/live" data-stream="/api/studies/{key}/stream">{above}
<details class="actions"><summary>Actions</summary>{_study_actions(key, watched)}</details>
<div class="figures">{first}</div>{below}
<h2 id="figures">Figures</h2><div class="figures">{"".join(others)}</div></div>"""
    return parts.document(watched.stored.name, body, f"/api/studies/{key}", [(watched.stored.name, f"/studies/{key}")])


def live(library: Library, asked: Mapping[str, Any]) -> str:
    """What of a study's page changes while it runs, besides the figures."""
    watched = library.watched(asked["study"])
    return _above(library, watched) + _below(watched)


def _above(library: Library, watched: Watched) -> str:
    key, found = quote(address_of(watched.stored)), watched.summary(LAST)
    state, words = _state(found)
    best = found["best"]
    cards = [_epochs_card(found), _hours_card(found), _disk_card(library, found)]
    if best is None:
        cards.insert(0, parts.card("Best loss", "–", "no loss yet"))
    else:
        where = f'<a href="/studies/{key}/runs/{best["run"]}">run {best["run"]}</a>, epoch {best["epoch"]}'
        cards.insert(0, parts.card("Best loss", parts.number(best["loss"]), where))
    runs = ", ".join(f"{count} {name}" for name, count in found["runs"].items()) or "none yet"
    cards.append(parts.card("Runs", str(sum(found["runs"].values())), runs))
    best_config = "" if best is None else f'<p class="config">Best: {parts.config_line(best["config"])}</p>'
    return f"""<div data-part="above"><div class="title"><h1>{escape(watched.stored.name)}</h1>
<span class="state {state}">{words}</span>
{parts.tags(found["tags"])}</div><div class="cards">{"".join(cards)}</div>{best_config}
{_workers(key, found)}</div>"""


def _below(watched: Watched) -> str:
    key, found = quote(address_of(watched.stored)), watched.summary(LAST)
    known = watched.known()
    return f"""<div data-part="below"><div class="columns">
<section aria-labelledby="h-decisions"><h2 id="h-decisions">Decisions</h2>
{_decisions(key, found)}</section><section aria-labelledby="h-runs"><h2 id="h-runs">Runs</h2>
{_runs(key, known.runs, found)}</section></div>{_events(found)}</div>"""


def printed(library: Library, watched: Watched) -> str:
    """The live part for a file that stands alone: without links to pages."""
    return re.sub(r"</?a\b[^>]*>", "", _above(library, watched) + _below(watched)).replace("<details", "<details open")


def _state(found: Mapping[str, Any]) -> tuple[str, str]:
    if found["stopped"]:
        return "idle", "stopped"
    alive = [p for p in found["pending"] if p["holder"] and not p["dead"]]
    if alive:
        return "busy", f"{len(alive)} at work"
    limit = found["budget"].get("epochs")
    if limit and found["epochs"] >= limit:
        return "idle", "budget spent"
    return "idle", "nobody at work"


def _epochs_card(found: Mapping[str, Any]) -> str:
    limit = found["budget"].get("epochs")
    gauge = parts.gauge("epochs", found["epochs"], limit) if limit else ""
    return parts.card("Epochs", str(found["epochs"]), f"of {limit}" if limit else "no limit", gauge)


def _hours_card(found: Mapping[str, Any]) -> str:
    limit, hours = found["budget"].get("hours"), found["hours"]
    gauge = parts.gauge("hours", hours, limit) if limit else ""
    return parts.card("Training time", parts.duration(hours), f"of {limit:g} h" if limit else "no limit", gauge)


def _disk_card(library: Library, found: Mapping[str, Any]) -> str:
    used, room, gauge = found["checkpoint_bytes"], "", ""
    if found["disk_gb"]:
        gauge = parts.gauge("disk", used, 1e9 * found["disk_gb"])
        return parts.card("Checkpoints", parts.size(used), f"of {parts.size(1e9 * found['disk_gb'])} allowed", gauge)
    if library.url.startswith("sqlite:///"):
        folder = Path(beside(library.url))
        disk = shutil.disk_usage(folder if folder.exists() else folder.parent)
        room = f"{parts.size(disk.free)} free"
        gauge = parts.gauge("disk, of all space", disk.used, disk.total)
    return parts.card("Checkpoints", parts.size(used), room, gauge)


def _workers(key: str, found: Mapping[str, Any]) -> str:
    if not found["pending"] and not found["wishes"]:
        return ""
    rows = "".join(
        f'<tr><th scope="row"><a href="/studies/{key}/runs/{p["run"]}">run {p["run"]}</a></th>'
        f"<td>{p['epoch']} of {p['to_epoch']}</td><td>{_holder(p)}</td></tr>"
        for p in found["pending"]
    )
    waiting = f"<p>{found['wishes']} wishes wait for the next decision.</p>" if found["wishes"] else ""
    table = parts.table("Workers and leases", ("Run", "Epoch", "Lease"), rows) if rows else ""
    return f'<section aria-labelledby="h-workers"><h2 id="h-workers">At work</h2>{table}{waiting}</section>'


def _holder(pending: Mapping[str, Any]) -> str:
    if not pending["holder"]:
        return "held by nobody: any worker may take it over"
    ended = ", which has ended: any worker may take it over" if pending["dead"] else ""
    return escape(pending["holder"]) + ended


def _decisions(key: str, found: Mapping[str, Any]) -> str:
    if not found["decisions"]:
        return "<p class=soft>None yet.</p>"
    rows = "".join(
        f'<li value="{d["number"]}"><a href="/studies/{key}/decisions/{d["number"]}">{d["number"]}</a> '
        f'<span class="soft">run {d["run"]}{_outcome(d)}</span> {escape(d["reason"])}</li>'
        for d in reversed(found["decisions"])
    )
    return f'<ol class="log" reversed tabindex="0" aria-label="The last decisions">{rows}</ol>'


def _outcome(decision: Mapping[str, Any]) -> str:
    outcome = decision["outcome"] or decision["state"]
    return "" if outcome == "told" else f", {escape(outcome.replace('_', ' '))}"


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
        small = parts.small_curve(run.losses, low, high, found["max_epochs"]) if run.losses else ""
        rows += (
            f'<tr><th scope="row"><a href="/studies/{key}/runs/{run.number}">run {run.number}</a></th>'
            f"<td class=n>{parts.number(best)}</td><td class=n>{run.epoch}</td><td>{small}</td><td>{state}</td>"
            f'<td class="config">{parts.config_line(run.config)}</td></tr>'
        )
    more = (
        f"<p class=soft>the best {len(ranked)} of {len(runs)} runs</p>" if len(runs) > len(ranked) + len(rest) else ""
    )
    heads = ("Run", "Best loss", "Epochs", "Curve", "State", "Configuration")
    return parts.table("Runs, the best first", heads, rows, ("Best loss", "Epochs")) + more


def _events(found: Mapping[str, Any]) -> str:
    if not found["events"]:
        return ""
    rows = "".join(
        f"<li><time>{escape(e['at'].replace('T', ' ')[:19])}</time> <strong>{escape(e['kind'])}</strong> "
        f"{escape(e['text'])}</li>"
        for e in reversed(found["events"])
    )
    title = f"Events ({len(found['events'])} last)"
    return f'<details class="events"><summary>{title}</summary><ol class="log">{rows}</ol></details>'


def _study_actions(key: str, watched: Watched) -> str:
    definition = watched.known().definition
    budget = definition.get("budget") or {}
    stopped = bool(definition.get("stopped"))
    stop = (
        parts.button(key, "resume", "Go on", kind="main")
        if stopped
        else parts.button(key, "stop", "Stop the study", kind="danger")
    )
    example = escape(json.dumps(plain(_example(watched)), ensure_ascii=False))
    return f"""<div class="forms">{stop}
<form method="post" action="/studies/{key}/budget"><label>Budget in epochs
<input name="epochs" type="number" min="1" value="{budget.get("epochs") or ""}"></label><label>in hours
<input name="hours" type="number" min="0" step="any" value="{budget.get("hours") or ""}"></label>
<button data-action="budget">Change the budget</button></form>
<form method="post" action="/studies/{key}/enqueue" class="long"><label>A configuration to start next, in JSON
<textarea name="config" rows="3" spellcheck="false">{example}</textarea></label><label>to epoch
<input name="to_epoch" type="number" min="1" value="1"></label>
<button data-action="enqueue">Enqueue</button></form></div>"""


def _example(watched: Watched) -> dict[str, Any]:
    """The best configuration, to be edited; else the middle of the space."""
    best = watched.summary(0)["best"]
    if best is not None:
        return dict(best["config"])
    from freezethaw.space import Space

    space = Space.from_dict(watched.known().definition["space"])
    return dict(space.config([0.5] * len(space)))


def run(library: Library, asked: Mapping[str, Any]) -> str:
    """One run."""
    watched, which = library.watched(asked["study"]), whole(asked, "run")
    known = watched.known()
    if which > len(known.runs):
        raise Unknown(f"there is no run {which}")
    key, found = quote(address_of(watched.stored)), known.runs[which - 1]
    definition = known.definition
    banned, pinned = which in definition.get("banned", ()), which in definition.get("pinned", ())
    sign = -1.0 if definition["direction"] == "maximize" else 1.0
    best = min(found.losses, key=lambda y: sign * y) if found.losses else None
    seconds = [s for s in found.seconds if math.isfinite(s)]
    size = sum(c.bytes for c in known.checkpoints if c.run == which)
    cards = [
        parts.card("Best loss", parts.number(best), "" if best is None else f"epoch {found.losses.index(best) + 1}"),
        parts.card("Epochs", str(found.epoch), f"of {definition['max_epochs']}"),
        parts.card("Seconds an epoch", parts.number(sum(seconds) / len(seconds), 3) if seconds else "–", ""),
        parts.card("Checkpoints", parts.size(size), ""),
    ]
    rows = "".join(
        f'<tr><th scope="row">{escape(k)}</th><td>{parts.shown(v)}</td></tr>' for k, v in found.config.items()
    )
    actions = parts.button(
        key, "unban" if banned else "ban", "Allow again" if banned else "Ban", {"run": which}, "danger"
    )
    actions += parts.button(key, "unpin" if pinned else "pin", "Unpin" if pinned else "Pin", {"run": which})
    if found.state in ("frozen", "pending") and found.epoch < definition["max_epochs"]:
        actions += (
            f'<form method="post" action="/studies/{key}/thaw"><input type="hidden" name="run" value="{which}">'
            f'<label>to epoch <input name="to_epoch" type="number" min="{found.epoch + 1}" '
            f'max="{definition["max_epochs"]}" value="{definition["max_epochs"]}"></label>'
            '<button data-action="thaw" class="main">Thaw next</button></form>'
        )
    marks = "".join(f'<span class="tag">{mark}</span>' for mark, on in (("banned", banned), ("pinned", pinned)) if on)
    metrics = _metrics(watched, which)
    body = f"""<div class="title"><h1>Run {which}</h1><span class="state">{escape(found.state)}</span>{marks}</div>
<div class="cards">{"".join(cards)}</div>
<div class="figures">{parts.place_of(_figures(key), "curves", "Curve and forecast", True, f"?run={which}")}</div>
<div class="columns"><section><h2>Configuration</h2>{parts.table("Configuration", ("Parameter", "Value"), rows)}
<details class="actions" open><summary>Actions</summary><div class="forms">{actions}</div></details></section>
<section><h2>Its decisions</h2>{_last_worker(watched, which)}
{_run_decisions(watched, key, which)}{metrics}</section></div>"""
    body = f'<div id="live" data-stream="/api/studies/{key}/stream">{body}</div>'
    trail = [(watched.stored.name, f"/studies/{key}"), (f"run {which}", f"/studies/{key}/runs/{which}")]
    return parts.document(f"Run {which}", body, f"/api/studies/{key}/runs/{which}", trail)


def _last_worker(watched: Watched, which: int) -> str:
    """Who trained the run last; of earlier decisions that is not recorded."""
    holder = watched.stored.last_holder(which)
    return "" if holder is None else f'<p class="soft under">last trained by {escape(str(holder))}</p>'


def _run_decisions(watched: Watched, key: str, which: int) -> str:
    history = watched.stored.decisions(2000)
    taken = [d for d in history if d.decision.run == which][-LAST:]
    found = {"decisions": [{"number": d.decision.number, "run": which, "reason": d.decision.reason,
                            "outcome": d.outcome, "state": d.state} for d in taken]}  # fmt: skip
    return _decisions(key, found)


def _metrics(watched: Watched, which: int) -> str:
    """The other metrics of the last epochs."""
    metrics = watched.stored.metrics(which)
    names = list(dict.fromkeys(name for row in metrics for name in row))[:8]
    if not names:
        return ""
    rows = ""
    for epoch, row in reversed(list(enumerate(metrics, 1))):
        cells = "".join(f"<td class=n>{parts.shown(row.get(name, ''))}</td>" for name in names)
        rows += f'<tr><th scope="row">{epoch}</th>{cells}</tr>'
    return "<h2>Metrics</h2>" + parts.table("Metrics", ("Epoch", *names), rows, names)


def decision(library: Library, asked: Mapping[str, Any]) -> str:
    """One decision and its basket."""
    watched, which = library.watched(asked["study"]), whole(asked, "number")
    key, found = quote(address_of(watched.stored)), one_decision(library, asked)
    rows = "".join(
        f'<tr><th scope="row">{"a new run" if e["run"] is None else "run " + str(e["run"])}</th>'
        f"<td class=n>{e['epoch']} to {e['to_epoch']}</td><td class=n>{parts.number(e['score'], 4)}</td>"
        f"<td class=n>{parts.number(100 * e['chance'], 3)} %</td>"
        f"<td class=config>{parts.config_line(e['config'])}</td></tr>"
        for e in found["basket"]
    )
    heads = ("Candidate", "Epochs", "Score", "Chance", "Configuration")
    table = parts.table("Basket", heads, rows, heads[1:4]) if rows else "<p class=soft>It compared nothing.</p>"
    figure = ""
    if len(found["basket"]) > 1:
        figure = parts.place_of(_figures(key), "basket", "Basket", True, f"?number={which}")
    said = f'<a href="/studies/{key}/runs/{found["run"]}">run {found["run"]}</a> to epoch {found["to_epoch"]}'
    body = f"""<h1>Decision {which}</h1><p>{escape(found["kind"])} {said}{_outcome(found)}</p>
<p class="reason">{escape(found["reason"])}</p><div class="figures">{figure}</div>{table}"""
    trail = [(watched.stored.name, f"/studies/{key}"), (f"decision {which}", f"/studies/{key}/decisions/{which}")]
    return parts.document(f"Decision {which}", body, f"/api/studies/{key}/decisions/{which}", trail)
