"""The page of a run, as HTML: its curve and forecast, its configuration, its decisions, and what can be done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from html import escape
from typing import Any
from urllib.parse import quote

from freezethaw import plain
from freezethaw.records import Run
from freezethaw.server import parts
from freezethaw.server.api import whole
from freezethaw.server.watching import Library, Unknown, Watched, address_of
from freezethaw.store import Snapshot

MARKS = ("banned", "pinned")
LAST, SEARCHED = 25, 2000  # decisions of the run that are shown, and of the study that are looked through for them


def page(library: Library, asked: Mapping[str, Any]) -> str:
    """One run."""
    watched, which = library.watched(asked["study"]), whole(asked, "run")
    known = watched.known()
    if which > len(known.runs):
        raise Unknown(f"there is no run {which}")
    key, found = quote(address_of(watched.stored)), known.runs[which - 1]
    marks = "".join(f'<span class="tag">{mark}</span>' for mark in MARKS if which in known.definition.get(mark, ()))
    plot = parts.place_of(parts.figures_of(key), "curves", "Curve and forecast", True, f"?run={which}")
    body = f"""<div class="title"><h1>Run {which}</h1><span class="state">{escape(found.state)}</span>{marks}</div>
<div class="cards">{_cards(known, found)}</div><div class="figures">{plot}</div>
<div class="columns"><section><h2>Configuration</h2>{_configuration(found)}<details class="actions" open>
<summary>Actions</summary><div class="forms">{_actions(key, known.definition, found)}</div></details></section>
<section><h2>Its decisions</h2>{_last_worker(watched, which)}
{_decisions(watched, key, which)}{_metrics(watched, which)}</section></div>"""
    body = f'<div id="live" data-stream="/api/studies/{key}/stream">{body}</div>'
    trail = [(watched.stored.name, f"/studies/{key}"), (f"run {which}", f"/studies/{key}/runs/{which}")]
    return parts.document(f"Run {which}", body, f"/api/studies/{key}/runs/{which}", trail)


def _cards(known: Snapshot, run: Run) -> str:
    sign = -1.0 if known.definition["direction"] == "maximize" else 1.0
    best = min(run.losses, key=lambda y: sign * y) if run.losses else None
    seconds = [s for s in run.seconds if math.isfinite(s)]
    size = sum(c.bytes for c in known.checkpoints if c.run == run.number)
    cards = (
        ("Best loss", plain.number(best), "" if best is None else f"epoch {run.losses.index(best) + 1}"),
        ("Epochs", str(run.epoch), f"of {known.definition['max_epochs']}"),
        ("Seconds an epoch", plain.number(sum(seconds) / len(seconds), 3) if seconds else "–", ""),
        ("Checkpoints", plain.size(size), ""),
    )
    return "".join(parts.card(*card) for card in cards)


def _configuration(run: Run) -> str:
    rows = "".join(f'<tr><th scope="row">{escape(k)}</th><td>{parts.shown(v)}</td></tr>' for k, v in run.config.items())
    return parts.table("Configuration", ("Parameter", "Value"), rows)


def _actions(key: str, definition: Mapping[str, Any], run: Run) -> str:
    which, last = run.number, definition["max_epochs"]
    banned, pinned = (which in definition.get(mark, ()) for mark in MARKS)
    ban, pin = ("unban", "Allow again") if banned else ("ban", "Ban"), ("unpin", "Unpin") if pinned else ("pin", "Pin")
    actions = parts.button(key, *ban, {"run": which}, "danger") + parts.button(key, *pin, {"run": which})
    if run.state not in ("frozen", "pending") or run.epoch >= last:
        return actions
    return (
        f'{actions}<form method="post" action="/studies/{key}/thaw"><input type="hidden" name="run" value="{which}">'
        f'<label>to epoch <input name="to_epoch" type="number" min="{run.epoch + 1}" max="{last}" value="{last}">'
        '</label><button data-action="thaw" class="main">Thaw next</button></form>'
    )


def _last_worker(watched: Watched, which: int) -> str:
    """Who trained the run last; of earlier decisions that is not recorded."""
    holder = watched.stored.last_holder(which)
    return "" if holder is None else f'<p class="soft under">last trained by {escape(str(holder))}</p>'


def _decisions(watched: Watched, key: str, which: int) -> str:
    taken = [d for d in watched.stored.decisions(SEARCHED) if d.decision.run == which][-LAST:]
    found = [asdict(d.decision) | {"outcome": d.outcome, "state": d.state} for d in taken]
    return parts.decisions(key, found)


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
