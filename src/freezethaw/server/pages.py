"""The smaller pages, as HTML: the studies of a store, one decision, and what went wrong.

Whatever a user typed passes through `escape`; scripts and styles are files of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from freezethaw import plain
from freezethaw.server import parts
from freezethaw.server.api import one_decision, whole
from freezethaw.server.watching import Library, address, address_of
from freezethaw.store import StudyInfo


def trouble(message: str) -> str:
    """What went wrong, on a page."""
    body = f'<h1>That did not work</h1><p class="trouble">{escape(message)}</p><p><a href="/">All studies</a></p>'
    return parts.document("That did not work", body, "/api/studies")


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


def decision(library: Library, asked: Mapping[str, Any]) -> str:
    """One decision and its basket."""
    watched, which = library.watched(asked["study"]), whole(asked, "number")
    key, found = quote(address_of(watched.stored)), one_decision(library, asked)
    rows = "".join(
        f'<tr><th scope="row">{"a new run" if e["run"] is None else "run " + str(e["run"])}</th>'
        f"<td class=n>{e['epoch']} to {e['to_epoch']}</td><td class=n>{plain.number(e['score'], 4)}</td>"
        f"<td class=n>{plain.number(100 * e['chance'], 3)} %</td>"
        f"<td class=config>{parts.config_line(e['config'])}</td></tr>"
        for e in found["basket"]
    )
    heads = ("Candidate", "Epochs", "Score", "Chance", "Configuration")
    table = parts.table("Basket", heads, rows, heads[1:4]) if rows else "<p class=soft>It compared nothing.</p>"
    figure = ""
    if len(found["basket"]) > 1:
        figure = parts.place_of(parts.figures_of(key), "basket", "Basket", True, f"?number={which}")
    said = f'<a href="/studies/{key}/runs/{found["run"]}">run {found["run"]}</a> to epoch {found["to_epoch"]}'
    body = f"""<h1>Decision {which}</h1><p>{escape(found["kind"])} {said}{parts.outcome(found)}</p>
<p class="reason">{parts.words(found["reason"])}</p><div class="figures">{figure}</div>{table}"""
    trail = [(watched.stored.name, f"/studies/{key}"), (f"decision {which}", f"/studies/{key}/decisions/{which}")]
    return parts.document(f"Decision {which}", body, f"/api/studies/{key}/decisions/{which}", trail)
