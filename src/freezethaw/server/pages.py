"""The list of studies, the page of a decision and the error page, as HTML. User text is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from freezethaw import plain
from freezethaw.notebook import curve_svg
from freezethaw.records import History, StudyInfo, StudyState
from freezethaw.server import components, study_page
from freezethaw.server.api import integer, one_decision
from freezethaw.server.views import StoreView

MAX_STUDIES = 100  # of the list


def error_page(message: str) -> str:
    """An error page."""
    body = f'<h1>Error</h1><p class="trouble">{escape(message)}</p><p><a href="/">All studies</a></p>'
    return components.document("Error", body, "/api/studies")


def studies_page(store: StoreView, parameters: Mapping[str, Any]) -> str:
    """All studies of the stores, newest first, with a form to compare them if there are several."""
    text, tag = str(parameters.get("text", "")), str(parameters.get("tag", ""))
    known, keys = store.studies(), store.keys()
    found = [
        info for info in sorted(known, key=lambda info: info.created, reverse=True)
        if text.lower() in info.name.lower() and (not tag or tag in info.tags)
    ]  # fmt: skip
    several = len(known) > 1
    rows = "".join(_study_row(store, info, keys.get(info.uid, info.uid), several) for info in found[:MAX_STUDIES])
    heads = (
        "Study", "State", "Best", "So far", "Runs", "Epochs", "Last event", "Created", "Tags",
        *(["Compare"] if several else []),
    )  # fmt: skip
    table = components.table("Studies", heads, rows, ("Best", "Runs", "Epochs"))
    if several:
        table = f'<form class="plain" method="get" action="/compare">{table}<button>Compare selected</button></form>'
    empty = "<p>No study yet. Create one with <code>freezethaw run</code> or <code>ft.tune</code>.</p>"
    none = "<p>No study matches.</p>" if known else empty
    tags = sorted({tag for info in known for tag in info.tags})
    options = "".join(
        f'<option value="{escape(t)}"{" selected" if t == tag else ""}>{escape(t) or "any"}</option>'
        for t in ("", *tags)
    )
    search = f"""<form method="get" action="/" class="filter" role="search"><label class="grow">Name
<input name="text" type="search" value="{escape(text)}"></label><label>Tag <select name="tag">{options}</select></label>
<button class="main">Filter</button></form>"""
    more = f'<p class="soft">{MAX_STUDIES} of {len(found)} studies</p>' if len(found) > MAX_STUDIES else ""
    body = f"""<h1>Studies</h1><p class="soft under">in {escape(store.shown)}</p>{search if several else ""}
{table if rows else none}{more}"""
    return components.document("Studies", body, "/api/studies")


def _study_row(store: StoreView, info: StudyInfo, key: str, several: bool) -> str:
    view = store.study(info.uid)
    found, history = view.summary(1), view.history()
    best = "–" if found["best"] is None else f"{plain.number(found['best']['loss'])} {found['metric']}"
    _, state = study_page.state_of(found)
    event = found["events"][-1]["at"] if found["events"] else ""
    lowest = _best_so_far(view.known(), history)
    small = curve_svg(lowest, min(lowest), max(lowest), len(lowest)) if lowest else ""
    name = f'<th scope="row"><a href="/studies/{quote(key)}">{escape(info.name)}</a></th>'
    return (
        f"<tr>{name}<td class=whole>{state}</td><td class=n>{escape(best)}</td><td>{small}</td>"
        f"<td class=n>{info.runs}</td><td class=n>{info.epochs}</td>"
        f"<td class=whole>{_time(event)}</td><td class=whole>{_time(info.created)}</td>"
        f"<td>{components.tags(info.tags)}</td>" + (f"<td>{_checkbox(key, info)}</td></tr>" if several else "</tr>")
    )


def _time(at: str) -> str:
    return escape(at.replace("T", " ")[:16])


def _best_so_far(known: StudyState, history: History) -> list[float]:
    """The best loss after each epoch of the study, in the user's units."""
    runs, lowest = known.runs, list[float]()
    for _, run, epoch in history.epochs:
        if run <= len(runs) and epoch <= runs[run - 1].epoch and not runs[run - 1].added:
            loss = known.sign * runs[run - 1].losses[epoch - 1]
            lowest.append(min(loss, lowest[-1]) if lowest else loss)
    return [known.sign * loss for loss in lowest]


def _checkbox(key: str, info: StudyInfo) -> str:
    name = escape(info.name)
    return f'<input type="checkbox" name="among" value="{escape(key)}" aria-label="compare {name}">'


def decision_page(store: StoreView, parameters: Mapping[str, Any]) -> str:
    """One decision and its basket."""
    view, which = store.study(parameters["study"]), integer(parameters, "number")
    key, found = quote(view.key), one_decision(store, parameters)
    chosen = found["basket"][0] if found["basket"] else None
    rows = "".join(_basket_row(e, e is chosen) for e in sorted(found["basket"], key=lambda e: -e["chance"]))
    entropy = view.known().definition.get("policy") == "entropy_search"
    chance = "P_min" if entropy else "Probability"
    told = (
        "P_min: the probability of each candidate to have the lowest asymptote of this basket. "
        "The score is the expected reduction of its entropy."
        if entropy
        else "Probability: to beat the best loss by the epoch shown. The score is the expected improvement per epoch "
        "of cost."
    )
    heads = ("Candidate", "Epochs", chance, "Score", "Configuration")
    table = (
        f'<p class="soft under">{told} Marked: the highest score, which was chosen.</p>'
        + components.table("Basket", heads, rows, heads[1:4])
        if rows
        else "<p class=soft>No basket: it compared no candidates.</p>"
    )
    figure = ""
    if len(found["basket"]) > 1:
        figure = components.figure_slot(components.figures_of(key), "basket", "Basket", True, f"?number={which}")
    run = f'<a href="/studies/{key}/runs/{found["run"]}">run {found["run"]}</a> to epoch {found["to_epoch"]}'
    around = "".join(
        f' <a href="/studies/{key}/decisions/{number}">{name}</a>'
        for name, number in (("Previous", which - 1), ("Next", which + 1))
        if 1 <= number <= view.known().decisions
    )
    body = f"""<div class="title"><h1>Decision {which}</h1>{around}</div>{study_page.navigation(key)}
<p>{escape(found["kind"])} {run}{components.outcome(found)}</p>
<p class="reason">{components.sentence(found["reason"])}</p><div class="figures">{figure}</div>{table}"""
    trail = [(view.stored.name, f"/studies/{key}"), (f"decision {which}", f"/studies/{key}/decisions/{which}")]
    return components.document(f"Decision {which}", body, f"/api/studies/{key}/decisions/{which}", trail)


def _basket_row(entry: Mapping[str, Any], chosen: bool) -> str:
    name = "a new run" if entry["run"] is None else f"run {entry['run']}"
    return (
        f'<tr{" class=chosen" if chosen else ""}><th scope="row">{name}{" (chosen)" if chosen else ""}</th>'
        f"<td class=n>{entry['epoch']} to {entry['to_epoch']}</td><td class=n>{plain.percent(entry['chance'])}</td>"
        f"<td class=n>{plain.number(entry['score'], 4)}</td>"
        f"<td class=config>{components.config_line(entry['config'])}</td></tr>"
    )
