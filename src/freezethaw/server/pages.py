"""The list of studies, the page of a decision and the error page, as HTML. User text is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from freezethaw import plain
from freezethaw.records import StudyInfo
from freezethaw.server import components
from freezethaw.server.api import integer, one_decision
from freezethaw.server.views import StoreView, info_key, url_key


def error_page(message: str) -> str:
    """An error page."""
    body = f'<h1>Error</h1><p class="trouble">{escape(message)}</p><p><a href="/">All studies</a></p>'
    return components.document("Error", body, "/api/studies")


def studies_page(store: StoreView, _: Mapping[str, Any]) -> str:
    """All studies of the store, with a form to compare them if there are several."""
    found = store.studies()
    several = len(found) > 1
    rows = "".join(
        f'<tr><th scope="row"><a href="/studies/{quote(info_key(info))}">{escape(info.name)}</a></th>'
        f"<td class=n>{info.runs}</td><td class=n>{info.epochs}</td><td class=n>{info.decisions}</td>"
        f"<td>{escape(info.created.replace('T', ' ')[:16])}</td><td>{components.tags(info.tags)}</td>"
        + (f"<td>{_checkbox(info)}</td></tr>" if several else "</tr>")
        for info in reversed(found)
    )
    heads = ("Study", "Runs", "Epochs", "Decisions", "Created", "Tags", *(["Compare"] if several else []))
    table = components.table("Studies", heads, rows, ("Runs", "Epochs", "Decisions"))
    if several:
        table = f'<form class="plain" method="get" action="/compare">{table}<button>Compare selected</button></form>'
    empty = "<p>No study yet. Create one with <code>freezethaw run</code> or <code>ft.tune</code>.</p>"
    body = f'<h1>Studies</h1><p class="soft under">in {escape(store.shown)}</p>{table if rows else empty}'
    return components.document("Studies", body, "/api/studies")


def _checkbox(info: StudyInfo) -> str:
    key, name = escape(info_key(info)), escape(info.name)
    return f'<input type="checkbox" name="among" value="{key}" aria-label="compare {name}">'


def decision_page(store: StoreView, parameters: Mapping[str, Any]) -> str:
    """One decision and its basket."""
    view, which = store.study(parameters["study"]), integer(parameters, "number")
    key, found = quote(url_key(view.stored)), one_decision(store, parameters)
    rows = "".join(
        f'<tr><th scope="row">{"a new run" if e["run"] is None else "run " + str(e["run"])}</th>'
        f"<td class=n>{e['epoch']} to {e['to_epoch']}</td><td class=n>{plain.number(e['score'], 4)}</td>"
        f"<td class=n>{plain.number(100 * e['chance'], 3)} %</td>"
        f"<td class=config>{components.config_line(e['config'])}</td></tr>"
        for e in found["basket"]
    )
    heads = ("Candidate", "Epochs", "Score", "Probability", "Configuration")
    table = (
        components.table("Basket", heads, rows, heads[1:4])
        if rows
        else "<p class=soft>No basket: it compared no candidates.</p>"
    )
    figure = ""
    if len(found["basket"]) > 1:
        figure = components.figure_slot(components.figures_of(key), "basket", "Basket", True, f"?number={which}")
    run = f'<a href="/studies/{key}/runs/{found["run"]}">run {found["run"]}</a> to epoch {found["to_epoch"]}'
    body = f"""<h1>Decision {which}</h1><p>{escape(found["kind"])} {run}{components.outcome(found)}</p>
<p class="reason">{components.sentence(found["reason"])}</p><div class="figures">{figure}</div>{table}"""
    trail = [(view.stored.name, f"/studies/{key}"), (f"decision {which}", f"/studies/{key}/decisions/{which}")]
    return components.document(f"Decision {which}", body, f"/api/studies/{key}/decisions/{which}", trail)
