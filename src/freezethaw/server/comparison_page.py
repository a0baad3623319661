"""The comparison of several studies: a figure of their best losses and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from freezethaw import plain
from freezethaw.errors import StudyError
from freezethaw.figures import comparison
from freezethaw.server import components
from freezethaw.server.views import StoreView, StudyView

MAX_STUDIES = 12


def selected(store: StoreView, parameters: Mapping[str, Any]) -> list[StudyView]:
    """The studies named by the request; by default the newest."""
    named: Sequence[str] = parameters.get("among") or list(store.keys().values())[-MAX_STUDIES:]
    if len(named) > MAX_STUDIES:
        raise StudyError(f"at most {MAX_STUDIES} studies can be compared, not {len(named)}")
    return [store.study(key) for key in dict.fromkeys(named)]


def compare(store: StoreView, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The summary of each study, without its decisions."""
    keys = ("name", "metric", "direction", "max_epochs", "budget", "epochs", "training_hours", "runs", "best")
    found = []
    for view in selected(store, parameters):
        summary = view.summary(0)
        found.append({"address": view.key} | {key: summary[key] for key in keys})
    return found


def figure(store: StoreView, parameters: Mapping[str, Any]) -> tuple[int, str]:
    """The sum of the change counters, and the figure as JSON."""
    against = parameters.get("against") if parameters.get("against") in ("hours", "cost") else "epochs"
    seen = {view.stored.name: view.read_only(model=False) for view in selected(store, parameters)}
    drawn = comparison({name: study for name, (_, study) in seen.items()}, against)  # type: ignore[arg-type]
    return sum(change for change, _ in seen.values()), str(drawn.to_json())


def page(store: StoreView, parameters: Mapping[str, Any]) -> str:
    """The page as HTML."""
    query = "?" + urlencode([("among", view.key) for view in selected(store, parameters)])
    plot = components.figure_slot("/api/compare", "comparison", "Best so far", True, query, components.AGAINST)
    here = f'data-live="yes" data-stream="/api/compare/stream{escape(query)}"'
    body = f"""<div class="title"><h1>Comparison</h1><a href="/">select others</a></div>
<div id="live" {here}>{_table(store, parameters)}<div class="figures">{plot}</div></div>"""
    return components.document("Comparison", body, f"/api/compare{query}", [("comparison", f"/compare{query}")])


def _table(store: StoreView, parameters: Mapping[str, Any]) -> str:
    """The part of the page that is updated, without the figure."""
    found = compare(store, parameters)
    best = " / ".join(dict.fromkeys(f"Best {one['metric']}" for one in found)) or "Best loss"
    heads = ("Study", best, "Run", "Epochs", "Training time", "Runs", "Best configuration")
    mixed = len({one["direction"] for one in found}) > 1
    warning = "<p>Some of these studies are minimised, others are maximised.</p>" if mixed else ""
    rows = "".join(_row(one) for one in found)
    table = components.table("Studies", heads, rows, (best, "Epochs", "Training time", "Runs"))
    return f'<div data-part="studies">{warning}{table}</div>'


def _row(one: Mapping[str, Any]) -> str:
    key, best = quote(one["address"]), one["best"]
    loss, where, config = "–", "–", ""
    if best is not None:
        loss, config = plain.number(best["loss"]), components.config_line(best["config"])
        where = f'<a href="/studies/{key}/runs/{best["run"]}">run {best["run"]}</a>, epoch {best["epoch"]}'
    return (
        f'<tr><th scope="row"><a href="/studies/{key}">{escape(one["name"])}</a></th><td class=n>{loss}</td>'
        f"<td class=whole>{where}</td><td class=n>{one['epochs']}</td>"
        f"<td class=n>{plain.duration(3600 * one['training_hours'])}</td>"
        f"<td class=n>{sum(one['runs'].values())}</td><td class=config>{config}</td></tr>"
    )
