"""Several studies of a store side by side: their best losses over each other, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from freezethaw.errors import StudyError
from freezethaw.figures import comparison
from freezethaw.server import parts
from freezethaw.server.watching import Library, Watched, address, address_of

MOST = 12  # studies on one page


def among(library: Library, asked: Mapping[str, Any]) -> list[Watched]:
    """The studies that were named; the newest of the store where none was."""
    named: Sequence[str] = asked.get("among") or [address(info) for info in library.studies()[-MOST:]]
    if len(named) > MOST:
        raise StudyError(f"at most {MOST} studies can be compared at once, not {len(named)}")
    return [library.watched(key) for key in dict.fromkeys(named)]


def compared(library: Library, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is recorded of each study, without its decisions."""
    keys = ("name", "direction", "max_epochs", "budget", "epochs", "hours", "runs", "best")
    found = []
    for watched in among(library, asked):
        summary = watched.summary(0)
        found.append({"address": address_of(watched.stored)} | {key: summary[key] for key in keys})
    return found


def figure(library: Library, asked: Mapping[str, Any]) -> str:
    """Their best losses over each other, as JSON for plotly."""
    against = asked.get("against") if asked.get("against") in ("hours", "cost") else "epochs"
    studies = {watched.stored.name: watched.still()[1] for watched in among(library, asked)}
    return str(comparison(studies, against).to_json())  # type: ignore[arg-type]


def page(library: Library, asked: Mapping[str, Any]) -> str:
    """The page."""
    found = compared(library, asked)
    query = "?" + urlencode([("among", one["address"]) for one in found])
    rows = "".join(_row(one) for one in found)
    heads = ("Study", "Best loss", "Run", "Epochs", "Training time", "Runs", "Best configuration")
    plot = parts.place_of("/api/compare", "comparison", "Best loss so far", True, query)
    mixed = len({one["direction"] for one in found}) > 1
    warning = "<p>Some of these studies are minimised and others maximised.</p>" if mixed else ""
    table = parts.table("Studies", heads, rows, ("Best loss", "Epochs", "Training time", "Runs"))
    body = f"""<div class="title"><h1>Comparison</h1><a href="/">choose others</a></div>{warning}{table}
<div class="figures">{plot}</div>"""
    return parts.document("Comparison", body, f"/api/compare{query}", [("comparison", f"/compare{query}")])


def _row(one: Mapping[str, Any]) -> str:
    key, best = quote(one["address"]), one["best"]
    loss, where, config = "–", "–", ""
    if best is not None:
        loss, config = parts.number(best["loss"]), parts.config_line(best["config"])
        where = f'<a href="/studies/{key}/runs/{best["run"]}">run {best["run"]}</a>, epoch {best["epoch"]}'
    return (
        f'<tr><th scope="row"><a href="/studies/{key}">{escape(one["name"])}</a></th><td class=n>{loss}</td>'
        f"<td class=whole>{where}</td><td class=n>{one['epochs']}</td><td class=n>{parts.duration(one['hours'])}</td>"
        f"<td class=n>{sum(one['runs'].values())}</td><td class=config>{config}</td></tr>"
    )
