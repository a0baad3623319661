"""Several studies of a store side by side: their best losses over each other, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from freezethaw import plain
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


def figure(library: Library, asked: Mapping[str, Any]) -> tuple[int, str]:
    """Their best losses over each other, as JSON for plotly, and the change that it shows."""
    against = asked.get("against") if asked.get("against") in ("hours", "cost") else "epochs"
    seen = {watched.stored.name: watched.still() for watched in among(library, asked)}
    drawn = comparison({name: still for name, (_, still) in seen.items()}, against)  # type: ignore[arg-type]
    return sum(change for change, _ in seen.values()), str(drawn.to_json())


def page(library: Library, asked: Mapping[str, Any]) -> str:
    """The page."""
    query = "?" + urlencode([("among", address_of(watched.stored)) for watched in among(library, asked)])
    plot = parts.place_of("/api/compare", "comparison", "Best loss so far", True, query)
    here = f'data-live="/compare/live{escape(query)}" data-stream="/api/compare/stream{escape(query)}"'
    body = f"""<div class="title"><h1>Comparison</h1><a href="/">choose others</a></div>
<div id="live" {here}>{live(library, asked)}<div class="figures">{plot}</div></div>"""
    return parts.document("Comparison", body, f"/api/compare{query}", [("comparison", f"/compare{query}")])


def live(library: Library, asked: Mapping[str, Any]) -> str:
    """What of the page changes while studies run, besides the figure."""
    found = compared(library, asked)
    heads = ("Study", "Best loss", "Run", "Epochs", "Training time", "Runs", "Best configuration")
    mixed = len({one["direction"] for one in found}) > 1
    warning = "<p>Some of these studies are minimised and others maximised.</p>" if mixed else ""
    rows = "".join(_row(one) for one in found)
    table = parts.table("Studies", heads, rows, ("Best loss", "Epochs", "Training time", "Runs"))
    return f'<div data-part="studies">{warning}{table}</div>'


def _row(one: Mapping[str, Any]) -> str:
    key, best = quote(one["address"]), one["best"]
    loss, where, config = "–", "–", ""
    if best is not None:
        loss, config = plain.number(best["loss"]), parts.config_line(best["config"])
        where = f'<a href="/studies/{key}/runs/{best["run"]}">run {best["run"]}</a>, epoch {best["epoch"]}'
    return (
        f'<tr><th scope="row"><a href="/studies/{key}">{escape(one["name"])}</a></th><td class=n>{loss}</td>'
        f"<td class=whole>{where}</td><td class=n>{one['epochs']}</td>"
        f"<td class=n>{plain.duration(3600 * one['hours'])}</td>"
        f"<td class=n>{sum(one['runs'].values())}</td><td class=config>{config}</td></tr>"
    )
