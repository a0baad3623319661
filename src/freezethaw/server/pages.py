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

from freezethaw import __version__
from freezethaw.plain import plain
from freezethaw.records import Run
from freezethaw.runtime.places import beside
from freezethaw.server.api import one_decision, whole
from freezethaw.server.watching import Library, Unknown, Watched, address, address_of

LAST, BEST_RUNS = 25, 50
WIDTH, HEIGHT = 120, 26  # of a small curve
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


def number(value: float | None, digits: int = 5) -> str:
    """With as many digits as are useful; a dash for none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def shown(value: Any) -> str:
    """A value of a configuration."""
    return escape(number(value) if isinstance(value, float) else str(value))


def config_line(config: Mapping[str, Any]) -> str:
    """A configuration on one line."""
    return ", ".join(f"{escape(key)}&nbsp;=&nbsp;{shown(value)}" for key, value in config.items())


def document(title: str, body: str, json_at: str, trail: Sequence[tuple[str, str]] = ()) -> str:
    """A whole page."""
    links = "".join(f'<li><a href="{escape(to)}">{escape(name)}</a></li>' for name, to in trail)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} – freezethaw</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><link rel="stylesheet" href="/static/page.css?v={__version__}">
<script src="/static/page.js?v={__version__}" defer></script></head>
<body><a class="skip" href="#main">Skip to content</a>
<header class="top"><nav aria-label="Where you are"><ol><li><a href="/">freezethaw</a></li>{links}</ol></nav>
<a class="json" href="{escape(json_at)}">JSON</a></header>
<main id="main">{body}</main>
<div id="said" class="said" role="status" aria-live="polite"></div></body></html>"""


def trouble(message: str) -> str:
    """What went wrong, on a page."""
    body = f'<h1>That did not work</h1><p class="trouble">{escape(message)}</p><p><a href="/">All studies</a></p>'
    return document("That did not work", body, "/api/studies")


def list_of_studies(library: Library, _: Mapping[str, Any]) -> str:
    """All studies of the store."""
    rows = "".join(
        f'<tr><th scope="row"><a href="/studies/{quote(address(info))}">{escape(info.name)}</a></th>'
        f"<td class=n>{info.runs}</td><td class=n>{info.epochs}</td><td class=n>{info.decisions}</td>"
        f"<td>{escape(info.created.replace('T', ' ')[:16])}</td><td>{_tags(info.tags)}</td></tr>"
        for info in reversed(library.studies())
    )
    table = _table("Studies", ("Study", "Runs", "Epochs", "Decisions", "Created", "Tags"), rows)
    empty = "<p>No study yet. One comes with the first <code>freezethaw run</code> or <code>ft.tune</code>.</p>"
    body = f"<h1>Studies</h1><p class=soft>in {escape(library.shown)}</p>{table if rows else empty}"
    return document("Studies", body, "/api/studies")


def study(library: Library, asked: Mapping[str, Any]) -> str:
    """One study: the live part, its figures, and what can be done."""
    watched = library.watched(asked["study"])
    key = quote(address_of(watched.stored))
    first, *others = (_figure(key, name, title, name in WIDE) for name, title in FIGURES.items())
    above, below = _above(library, watched), _below(watched)
    body = f"""<div id="live" data-live="/studies/{key}/live" data-stream="/api/studies/{key}/stream">{above}
<details class="actions"><summary>Actions</summary>{_study_actions(key, watched)}</details>
<div class="figures">{first}</div>{below}
<h2 id="figures">Figures</h2><div class="figures">{"".join(others)}</div></div>"""
    return document(watched.stored.name, body, f"/api/studies/{key}", [(watched.stored.name, f"/studies/{key}")])


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
        cards.insert(0, _card("Best loss", "–", "no loss yet"))
    else:
        where = f'<a href="/studies/{key}/runs/{best["run"]}">run {best["run"]}</a>, epoch {best["epoch"]}'
        cards.insert(0, _card("Best loss", number(best["loss"]), where))
    runs = ", ".join(f"{count} {name}" for name, count in found["runs"].items()) or "none yet"
    cards.append(_card("Runs", str(sum(found["runs"].values())), runs))
    best_config = "" if best is None else f'<p class="config">Best: {config_line(best["config"])}</p>'
    return f"""<div data-part="above"><div class="title"><h1>{escape(watched.stored.name)}</h1>
<span class="state {state}">{words}</span>
{_tags(found["tags"])}</div><div class="cards">{"".join(cards)}</div>{best_config}
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


def _card(title: str, value: str, below: str, gauge: str = "") -> str:
    return f'<div class="card"><h2>{title}</h2><p class="value">{value}</p>{gauge}<p class="soft">{below}</p></div>'


def _gauge(name: str, value: float, limit: float) -> str:
    share = min(value / limit, 1.0) if limit > 0 else 0.0
    return f'<progress max="1" value="{share:.4f}" aria-label="{name}: {100 * share:.0f} % of the budget"></progress>'


def _epochs_card(found: Mapping[str, Any]) -> str:
    limit = found["budget"].get("epochs")
    gauge = _gauge("epochs", found["epochs"], limit) if limit else ""
    return _card("Epochs", str(found["epochs"]), f"of {limit}" if limit else "no limit", gauge)


def _hours_card(found: Mapping[str, Any]) -> str:
    limit, hours = found["budget"].get("hours"), found["hours"]
    told = f"{60 * hours:.3g} min" if hours < 1 else f"{hours:.3g} h"
    gauge = _gauge("hours", hours, limit) if limit else ""
    return _card("Training time", told if hours > 0 else "–", f"of {limit:g} h" if limit else "no limit", gauge)


def _disk_card(library: Library, found: Mapping[str, Any]) -> str:
    used, room, gauge = found["checkpoint_bytes"], "", ""
    if library.url.startswith("sqlite:///"):
        folder = Path(beside(library.url))
        disk = shutil.disk_usage(folder if folder.exists() else folder.parent)
        room = f"{_size(disk.free)} free"
        gauge = _gauge("disk, of all space", disk.used, disk.total)
    return _card("Checkpoints", _size(used), room, gauge)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} GB"


def _tags(tags: Sequence[str]) -> str:
    return "".join(f'<span class="tag">{escape(tag)}</span>' for tag in tags)


def _table(caption: str, heads: Sequence[str], rows: str) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _workers(key: str, found: Mapping[str, Any]) -> str:
    if not found["pending"] and not found["wishes"]:
        return ""
    rows = "".join(
        f'<tr><th scope="row"><a href="/studies/{key}/runs/{p["run"]}">run {p["run"]}</a></th>'
        f"<td>{p['epoch']} of {p['to_epoch']}</td><td>{_holder(p)}</td></tr>"
        for p in found["pending"]
    )
    waiting = f"<p>{found['wishes']} wishes wait for the next decision.</p>" if found["wishes"] else ""
    table = _table("Workers and leases", ("Run", "Epoch", "Lease"), rows) if rows else ""
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
        small = small_curve(run.losses, low, high, found["max_epochs"]) if run.losses else ""
        rows += (
            f'<tr><th scope="row"><a href="/studies/{key}/runs/{run.number}">run {run.number}</a></th>'
            f"<td class=n>{number(best)}</td><td class=n>{run.epoch}</td><td>{small}</td><td>{state}</td>"
            f'<td class="config">{config_line(run.config)}</td></tr>'
        )
    more = (
        f"<p class=soft>the best {len(ranked)} of {len(runs)} runs</p>" if len(runs) > len(ranked) + len(rest) else ""
    )
    heads = ("Run", "Best loss", "Epochs", "Curve", "State", "Configuration")
    return _table("Runs, the best first", heads, rows) + more


def small_curve(losses: Sequence[float], low: float, high: float, max_epochs: int) -> str:
    """A curve as a small picture; all of a table share their axes."""
    span = high - low if math.isfinite(high - low) and high > low else 1.0
    step = max(len(losses) // 60, 1)
    places = sorted({*range(0, len(losses), step), len(losses) - 1})
    points = [
        f"{2 + (WIDTH - 4) * place / max(max_epochs - 1, 1):.1f},"
        f"{2 + (HEIGHT - 4) * min(max((high - losses[place]) / span, 0.0), 1.0):.1f}"
        for place in places
    ]
    x, y = points[-1].split(",")
    return (
        f'<svg class="spark" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{len(losses)} epochs">'
        f'<polyline points="{" ".join(points)}"/><circle cx="{x}" cy="{y}" r="2.2"/></svg>'
    )


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


def _figure(key: str, name: str, title: str, wide: bool = False, query: str = "") -> str:
    choice = ""
    if name == "best_loss":
        options = "".join(f'<option value="{v}">{v}</option>' for v in ("epochs", "hours", "cost"))
        choice = f'<label class="choice">against <select data-option="against">{options}</select></label>'
    at = f"/api/studies/{key}/figures/{name}"
    return (
        f'<figure class="plot{" wide" if wide else ""}" id="figure-{name}" data-figure="{escape(at + query)}">'
        f'<figcaption><h3>{escape(title)}</h3>{choice}<p class="soft"></p></figcaption>'
        f'<div class="canvas" role="img" aria-label="{escape(title)}"><p class="waiting">Drawing…</p></div></figure>'
    )


def _button(key: str, action: str, words: str, fields: Mapping[str, Any] | None = None, kind: str = "") -> str:
    hidden = "".join(f'<input type="hidden" name="{k}" value="{escape(str(v))}">' for k, v in (fields or {}).items())
    return (
        f'<form method="post" action="/studies/{key}/{action}">{hidden}'
        f'<button class="{kind}" data-action="{action}">{escape(words)}</button></form>'
    )


def _study_actions(key: str, watched: Watched) -> str:
    definition = watched.known().definition
    budget = definition.get("budget") or {}
    stopped = bool(definition.get("stopped"))
    stop = (
        _button(key, "resume", "Go on", kind="main")
        if stopped
        else _button(key, "stop", "Stop the study", kind="danger")
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
        _card("Best loss", number(best), "" if best is None else f"epoch {found.losses.index(best) + 1}"),
        _card("Epochs", str(found.epoch), f"of {definition['max_epochs']}"),
        _card("Seconds an epoch", number(sum(seconds) / len(seconds), 3) if seconds else "–", ""),
        _card("Checkpoints", _size(size), ""),
    ]
    rows = "".join(f'<tr><th scope="row">{escape(k)}</th><td>{shown(v)}</td></tr>' for k, v in found.config.items())
    actions = _button(key, "unban" if banned else "ban", "Allow again" if banned else "Ban", {"run": which}, "danger")
    actions += _button(key, "unpin" if pinned else "pin", "Unpin" if pinned else "Pin", {"run": which})
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
<div class="figures">{_figure(key, "curves", "Curve and forecast", True, f"?run={which}")}</div>
<div class="columns"><section><h2>Configuration</h2>{_table("Configuration", ("Parameter", "Value"), rows)}
<details class="actions" open><summary>Actions</summary><div class="forms">{actions}</div></details></section>
<section><h2>Its decisions</h2>{_run_decisions(watched, key, which)}{metrics}</section></div>"""
    body = f'<div id="live" data-stream="/api/studies/{key}/stream">{body}</div>'
    trail = [(watched.stored.name, f"/studies/{key}"), (f"run {which}", f"/studies/{key}/runs/{which}")]
    return document(f"Run {which}", body, f"/api/studies/{key}/runs/{which}", trail)


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
        cells = "".join(f"<td class=n>{shown(row.get(name, ''))}</td>" for name in names)
        rows += f'<tr><th scope="row">{epoch}</th>{cells}</tr>'
    return "<h2>Metrics</h2>" + _table("Metrics", ("Epoch", *names), rows)


def decision(library: Library, asked: Mapping[str, Any]) -> str:
    """One decision and its basket."""
    watched, which = library.watched(asked["study"]), whole(asked, "number")
    key, found = quote(address_of(watched.stored)), one_decision(library, asked)
    rows = "".join(
        f'<tr><th scope="row">{"a new run" if e["run"] is None else "run " + str(e["run"])}</th>'
        f"<td class=n>{e['epoch']} to {e['to_epoch']}</td><td class=n>{number(e['score'], 4)}</td>"
        f"<td class=n>{number(100 * e['chance'], 3)} %</td><td class=config>{config_line(e['config'])}</td></tr>"
        for e in found["basket"]
    )
    heads = ("Candidate", "Epochs", "Score", "Chance", "Configuration")
    table = _table("Basket", heads, rows) if rows else "<p class=soft>It compared nothing.</p>"
    figure = _figure(key, "basket", "Basket", True, f"?number={which}") if len(found["basket"]) > 1 else ""
    said = f'<a href="/studies/{key}/runs/{found["run"]}">run {found["run"]}</a> to epoch {found["to_epoch"]}'
    body = f"""<h1>Decision {which}</h1><p>{escape(found["kind"])} {said}{_outcome(found)}</p>
<p class="reason">{escape(found["reason"])}</p><div class="figures">{figure}</div>{table}"""
    trail = [(watched.stored.name, f"/studies/{key}"), (f"decision {which}", f"/studies/{key}/decisions/{which}")]
    return document(f"Decision {which}", body, f"/api/studies/{key}/decisions/{which}", trail)
