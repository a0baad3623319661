"""The page of a run, as HTML: learning curve, forecast, configuration, decisions and actions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from html import escape
from typing import Any
from urllib.parse import quote

from freezethaw import plain
from freezethaw.records import Run, StudyState
from freezethaw.server import components, study_page
from freezethaw.server.api import integer
from freezethaw.server.views import NotFound, StoreView, StudyView

MARKS = ("banned", "pinned")
SEARCHED_BASKETS = 20  # decisions that are looked through for one with a basket
SHOWN, SEARCHED = 25, 2000  # decisions of the run shown, and of the study searched for them


def page(store: StoreView, parameters: Mapping[str, Any]) -> str:
    """The page as HTML."""
    view, which = store.study(parameters["study"]), integer(parameters, "run")
    known = view.known()
    if which > len(known.runs):
        raise NotFound(f"there is no run {which}")
    key, found = quote(view.key), known.runs[which - 1]
    marks = "".join(f'<span class="tag">{mark}</span>' for mark in MARKS if which in known.definition.get(mark, ()))
    plot = components.figure_slot(
        components.figures_of(key), "curves", "Learning curve and forecast", True, f"?run={which}"
    )
    body = f"""<div class="title"><h1>Run {which}</h1><span class="state">{escape(found.state)}</span>{marks}</div>
{study_page.navigation(key)}
<div class="cards">{_cards(known, found)}</div>{_waiting(view, known, found)}{_failure(view, which)}
<div class="figures">{plot}</div>
<div class="columns"><section><h2>Configuration</h2>{_configuration(found)}<details class="actions" open>
<summary>Actions</summary><div class="forms">{_actions(key, known.definition, found)}</div></details></section>
<section><h2>Decisions</h2>{_last_worker(view, which)}
{_decisions(view, key, which)}{_metrics(view, which)}</section></div>"""
    body = f'<div id="live" data-stream="/api/studies/{key}/stream">{body}</div>'
    trail = [(view.stored.name, f"/studies/{key}"), (f"run {which}", f"/studies/{key}/runs/{which}")]
    return components.document(f"Run {which}", body, f"/api/studies/{key}/runs/{which}", trail)


def _cards(known: StudyState, run: Run) -> str:
    sign = -1.0 if known.definition["direction"] == "maximize" else 1.0
    best = min(run.losses, key=lambda y: sign * y) if run.losses else None
    seconds = [s for s in run.seconds if math.isfinite(s)]
    size = sum(c.bytes for c in known.checkpoints if c.run == run.number)
    cards = (
        (
            escape(f"Best {known.metric}"),
            plain.number(best),
            "" if best is None else f"epoch {run.losses.index(best) + 1}",
        ),
        ("Epochs", str(run.epoch), f"of {known.definition['max_epochs']}"),
        ("Seconds per epoch", plain.number(sum(seconds) / len(seconds), 3) if seconds else "–", ""),
        ("Checkpoints", plain.size(size), ""),
    )
    return "".join(components.card(*card) for card in cards)


def _failure(view: StudyView, which: int) -> str:
    found = view.failure(which)
    if found is None:
        return ""
    text, traceback = found
    shown = f'<pre class="log">{escape(traceback.rstrip())}</pre>' if traceback else ""
    return f'<section aria-labelledby="h-failure"><h2 id="h-failure">Failure</h2><p>{escape(text)}</p>{shown}</section>'


def _waiting(view: StudyView, known: StudyState, run: Run) -> str:
    """Why a frozen run waits."""
    if run.state != "frozen" or run.epoch >= known.max_epochs:
        return ""
    if run.added:
        why = "It was imported: it informs the model and is not trained."
    elif run.number in known.banned:
        why = "It is banned: no decision thaws it."
    elif known.definition.get("stopped"):
        why = "The study is stopped."
    else:
        why = _against_others(view, known, run)
    return f'<p class="reason">Frozen after epoch {run.epoch} of {known.max_epochs}. {why}</p>'


def _against_others(view: StudyView, known: StudyState, run: Run) -> str:
    """The place of the run in the last basket."""
    for number in range(known.decisions, max(known.decisions - SEARCHED_BASKETS, 0), -1):
        basket = view.stored.decision(number).basket
        if len(basket) < 2:
            continue
        at = f'<a href="/studies/{quote(view.key)}/decisions/{number}">decision {number}</a>'
        place = next((i for i, entry in enumerate(basket) if entry.run == run.number), None)
        first = "a new run" if basket[0].run is None else f"run {basket[0].run}"
        chosen = f"{first} had the highest score, {plain.number(basket[0].score, 3)}"
        if place is None:
            return f"It was not among the {len(basket)} candidates compared in {at}: {chosen}."
        if place == 0:
            return f"It had the highest score in {at}."
        return f"Its score in {at} was {plain.number(basket[place].score, 3)}, place {place + 1}; {chosen}."
    return "No decision has compared it with others yet."


def _configuration(run: Run) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(k)}</th><td>{components.shown(v)}</td></tr>' for k, v in run.config.items()
    )
    return components.table("Configuration", ("Parameter", "Value"), rows)


def _actions(key: str, definition: Mapping[str, Any], run: Run) -> str:
    which, last = run.number, definition["max_epochs"]
    banned, pinned = (which in definition.get(mark, ()) for mark in MARKS)
    ban, pin = ("unban", "Allow again") if banned else ("ban", "Ban"), ("unpin", "Unpin") if pinned else ("pin", "Pin")
    actions = components.button(key, *ban, {"run": which}, "danger") + components.button(key, *pin, {"run": which})
    if run.state not in ("frozen", "pending") or run.epoch >= last:
        return actions
    return (
        f'{actions}<form method="post" action="/studies/{key}/thaw"><input type="hidden" name="run" value="{which}">'
        f'<label>to epoch <input name="to_epoch" type="number" min="{run.epoch + 1}" max="{last}" value="{last}">'
        '</label><button data-action="thaw" class="main">Thaw next</button></form>'
    )


def _last_worker(view: StudyView, which: int) -> str:
    """The last worker of the run; earlier ones are not recorded."""
    holder = view.stored.last_holder(which)
    return "" if holder is None else f'<p class="soft under">last trained by {escape(str(holder))}</p>'


def _decisions(view: StudyView, key: str, which: int) -> str:
    taken = [d for d in view.stored.decisions(SEARCHED) if d.decision.run == which][-SHOWN:]
    found = [asdict(d.decision) | {"outcome": d.outcome, "state": d.state} for d in taken]
    return components.decisions(key, found)


def _metrics(view: StudyView, which: int) -> str:
    """The further metrics, last epoch first."""
    metrics = view.stored.metrics(which)
    names = list(dict.fromkeys(name for row in metrics for name in row))[:8]
    if not names:
        return ""
    rows = ""
    for epoch, row in reversed(list(enumerate(metrics, 1))):
        cells = "".join(f"<td class=n>{components.shown(row.get(name, ''))}</td>" for name in names)
        rows += f'<tr><th scope="row">{epoch}</th>{cells}</tr>'
    return "<h2>Metrics</h2>" + components.table("Metrics", ("Epoch", *names), rows, names)
