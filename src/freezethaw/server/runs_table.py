"""The table of runs: filtered, sorted and paged here, as HTML, JSON and CSV. User text is escaped."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any
from urllib.parse import urlencode

from freezethaw import plain
from freezethaw.errors import StudyError
from freezethaw.notebook import curve_svg
from freezethaw.records import Run
from freezethaw.server import components
from freezethaw.server.views import StudyView
from freezethaw.space import Choice, Space
from freezethaw.study.summary import STATES

PAGE_SIZE = 50
SHOWN_COLUMNS = 12  # by default; the others can be chosen
FIXED = ("run", "state", "best", "at", "epochs", "last", "seconds", "curve")
NUMBERS = ("run", "best", "at", "epochs", "last", "seconds")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would compute text that begins with one of these


@dataclass(frozen=True)
class Selection:
    """Which runs are shown, in which order, and with which columns. Columns have the names of an exported table."""

    sort: str = "best"
    descending: bool = False
    state: str = ""
    text: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)  # "least.COLUMN", "most.COLUMN", "is.COLUMN"
    columns: tuple[str, ...] = ()
    page: int = 1

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Selection:
        """From the query of a request."""
        limits = {k: v for k, v in parameters.items() if k.startswith(("least.", "most.", "is.")) and v != ""}
        page = str(parameters.get("page", "1"))
        return cls(
            sort=str(parameters.get("sort") or "best"),
            descending=parameters.get("order") == "descending",
            state=str(parameters.get("state", "")),
            text=str(parameters.get("text", "")),
            limits=limits,
            columns=tuple(parameters.get("column", ())),
            page=int(page) if page.isascii() and page.isdigit() and len(page) < 9 else 1,
        )

    def query(self) -> str:
        """The same as the query of a URL."""
        given: list[tuple[str, str]] = [("sort", self.sort)] if self.sort != "best" else []
        given += [("order", "descending")] if self.descending else []
        given += [(name, value) for name, value in (("state", self.state), ("text", self.text)) if value]
        given += [*self.limits.items(), *(("column", column) for column in self.columns)]
        given += [("page", str(self.page))] if self.page > 1 else []
        return "?" + urlencode(given) if given else "?"


class RunsTable:
    """All runs of a study as rows of columns: what is fixed, `config.` parameters and `metric.` metrics."""

    def __init__(self, view: StudyView, selection: Selection) -> None:
        self.view, self.selection, self.known = view, selection, view.known()
        self.space = Space.from_dict(self.known.definition["space"])
        self.parameters = tuple(f"config.{name}" for name in self.space.names)
        self._metrics: dict[int, Mapping[str, Any]] = {}
        self._limits = [(limit, limit.partition(".")[2], _edge(limit, at)) for limit, at in selection.limits.items()]
        asked = {selection.sort, *selection.columns, *(limit.partition(".")[2] for limit in selection.limits)}
        found = list(self.known.runs)
        if any(column.startswith("metric.") for column in asked):
            self._read_metrics(found)
        self.rows = self._sorted([run for run in found if self._fits(run)])
        self.pages = max(-(-len(self.rows) // PAGE_SIZE), 1)
        self.page = min(max(selection.page, 1), self.pages)
        self.shown = self.rows[(self.page - 1) * PAGE_SIZE : self.page * PAGE_SIZE]
        self._read_metrics(self.shown)
        self.metrics = tuple(dict.fromkeys(f"metric.{name}" for row in self._metrics.values() for name in row))

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Every column that can be chosen."""
        return (*FIXED, *self.parameters, *self.metrics)

    @property
    def columns(self) -> tuple[str, ...]:
        """The chosen columns."""
        chosen = tuple(column for column in self.all_columns if column in self.selection.columns)
        return chosen or self.all_columns[: max(SHOWN_COLUMNS, len(FIXED) + 2)]

    def value(self, run: Run, column: str) -> Any:
        """One value of the table; None if there is none."""
        kind, _, name = column.partition(".")
        if kind == "config" and name:
            return run.config.get(name)
        if kind == "metric" and name:
            return self._metrics.get(run.number, {}).get(name)
        sign = self.known.sign
        if column in ("best", "at"):
            best = min(run.losses, key=lambda loss: sign * loss, default=None)
            return best if column == "best" or best is None else run.losses.index(best) + 1
        values: dict[str, Any] = {
            "run": run.number, "epochs": run.epoch, "last": run.losses[-1] if run.losses else None,
            "state": run.outcome if run.state == "failed" and run.outcome else run.state,
            "seconds": run.mean_seconds or None,
        }  # fmt: skip
        return values.get(column)

    def title(self, column: str) -> str:
        """The heading of a column."""
        metric = self.known.metric
        titles = {"best": f"Best {metric}", "at": "at epoch", "last": f"Last {metric}", "seconds": "s per epoch"}
        kind, dot, name = column.partition(".")
        return name if dot and kind in ("config", "metric") else titles.get(column, plain.title(column))

    def _read_metrics(self, runs: Sequence[Run]) -> None:
        self._metrics |= {run.number: self.view.last_metrics(run) for run in runs}

    def _fits(self, run: Run) -> bool:
        chosen = self.selection
        if chosen.state and run.state != chosen.state:
            return False
        if chosen.text:
            said = f"run {run.number} {self.value(run, 'state')} {plain.describe(run.config)}"
            said += " banned" if run.number in self.known.banned else ""
            if chosen.text.lower() not in said.lower():
                return False
        return all(_within(self.value(run, column), limit, edge) for limit, column, edge in self._limits)

    def _sorted(self, runs: list[Run]) -> list[Run]:
        """By the column; runs without a value come last in both directions."""
        column, sign = self.selection.sort, self.known.sign if self.selection.sort in ("best", "last") else 1.0
        keyed = [(self.value(run, column), run) for run in runs]
        numbers = [(sign * v, run) for v, run in keyed if isinstance(v, int | float) and math.isfinite(v)]
        texts = [(str(v), run) for v, run in keyed if v is not None and not isinstance(v, int | float)]
        known = {run.number for _, run in [*numbers, *texts]}
        down = self.selection.descending
        ordered = [run for _, run in sorted(numbers, key=lambda pair: pair[0], reverse=down)]
        ordered += [run for _, run in sorted(texts, key=lambda pair: pair[0], reverse=down)]
        return ordered + [run for run in runs if run.number not in known]

    def as_csv(self) -> str:
        """All rows that match, not only one page, with the chosen columns."""
        columns = [column for column in self.columns if column != "curve"]
        self._read_metrics(self.rows if any(column.startswith("metric.") for column in columns) else [])
        written = io.StringIO()
        table = csv.writer(written)
        table.writerow([_cell(name) for name in self._csv_heads(columns)])
        table.writerows([_cell(self.value(run, column)) for column in columns] for run in self.rows)
        return written.getvalue()

    def _csv_heads(self, columns: Sequence[str]) -> list[str]:
        return [column if "." in column else self.title(column) for column in columns]

    def html(self, key: str) -> str:
        """The table of one page, with links to sort it and to the other pages."""
        chosen, at = self.selection, f"/studies/{key}/runs"
        count = f"{len(self.rows)} of {len(self.known.runs)} runs" if len(self.rows) < len(self.known.runs) else (
            f"{len(self.rows)} runs")  # fmt: skip
        heads = '<th scope="col"><span class="hidden">Highlight</span></th>'
        heads += "".join(self._head(column, at) for column in self.columns)
        losses = sorted(loss for run in self.shown for loss in run.losses)
        edges = (losses[0], losses[int(0.95 * (len(losses) - 1))]) if losses else (0.0, 1.0)
        rows = "".join(self._row(run, key, edges) for run in self.shown)
        rows = rows or f'<tr><td colspan="{len(self.columns) + 1}" class="soft">No run matches.</td></tr>'
        links = ""
        for name, page in (("Previous", self.page - 1), ("Next", self.page + 1)):
            if 1 <= page <= self.pages:
                to = escape(at + replace(chosen, page=page).query())
                links += f' <a data-inplace="page-{name}" href="{to}">{name}</a>'
        csv_at = escape(f"{at}.csv{replace(chosen, page=1).query()}")
        return f"""<p class="bar"><span role="status">{count}, page {self.page} of {self.pages}</span>{links}
<a href="{csv_at}" download>Download CSV</a></p>
<div class="scroll tall" tabindex="0" role="region" aria-label="Runs"><table class="runs">
<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"""

    def _head(self, column: str, at: str) -> str:
        chosen, kind = self.selection, " class=n" if self._is_number(column) else ""
        if column == "curve":
            return '<th scope="col">Curve</th>'
        here = column == chosen.sort
        order = f' aria-sort="{"descending" if chosen.descending else "ascending"}"' if here else ""
        arrow = ("▼" if chosen.descending else "▲") if here else ""
        to = replace(chosen, sort=column, descending=here and not chosen.descending, page=1).query()
        link = f'<a data-inplace="sort-{escape(column)}" href="{escape(at + to)}">{escape(self.title(column))}</a>'
        return f'<th scope="col"{kind}{order}>{link}<span aria-hidden="true">{arrow}</span></th>'

    def _is_number(self, column: str) -> bool:
        kind, _, name = column.partition(".")
        if kind == "config" and name in self.space.parameters:
            return not isinstance(self.space.parameters[name], Choice)
        return column in NUMBERS or kind == "metric"

    def _row(self, run: Run, key: str, edges: tuple[float, float]) -> str:
        box = f'<input type="checkbox" data-run="{run.number}" aria-label="highlight run {run.number}">'
        cells = "".join(self._html_cell(run, column, key, edges) for column in self.columns)
        return f"<tr><td>{box}</td>{cells}</tr>"

    def _html_cell(self, run: Run, column: str, key: str, edges: tuple[float, float]) -> str:
        if column == "run":
            return f'<th scope="row" class=n><a href="/studies/{key}/runs/{run.number}">{run.number}</a></th>'
        if column == "curve":
            return f"<td>{curve_svg(run.losses, *edges, self.known.max_epochs) if run.losses else ''}</td>"
        value = self.value(run, column)
        if column == "state":
            marks = [m for m in ("banned", "pinned") if run.number in self.known.definition.get(m, ())]
            value = " ".join([str(value).replace("_", " "), *marks])
        shown = "" if value is None else components.shown(value)
        return f"<td{' class=n' if self._is_number(column) else ''}>{shown}</td>"

    def form(self, key: str) -> str:
        """The form that filters the table and chooses its columns."""
        chosen = self.selection
        states = "".join(
            f'<option value="{state}"{" selected" if state == chosen.state else ""}>{state or "any"}</option>'
            for state in ("", *STATES)
        )
        limits = "".join(self._limit_fields(column) for column in ("best", "epochs", *self.parameters))
        boxes = "".join(
            f'<label class="check"><input type="checkbox" name="column" value="{escape(column)}"'
            f"{' checked' if column in self.columns else ''}>{escape(self.title(column))}</label>"
            for column in self.all_columns
        )
        kept = f'<input type="hidden" name="sort" value="{escape(chosen.sort)}">'
        kept += '<input type="hidden" name="order" value="descending">' if chosen.descending else ""
        return f"""<form method="get" action="/studies/{key}/runs" class="filter" data-inplace="filter" role="search">
{kept}<label>State <select name="state" aria-label="State">{states}</select></label><label class="grow">Text
<input name="text" type="search" value="{escape(chosen.text)}" placeholder="run, state or value"></label>
<button class="main">Filter</button><a class="button" href="/studies/{key}/runs">Clear</a>
<details{" open" if chosen.limits else ""}><summary>Ranges</summary><div class="limits">{limits}</div></details>
<details{" open" if chosen.columns else ""}><summary>Columns</summary><div class="checks">{boxes}</div></details>
</form>"""

    def _limit_fields(self, column: str) -> str:
        name, given = escape(self.title(column)), self.selection.limits
        parameter = self.space.parameters.get(column.partition(".")[2])
        if isinstance(parameter, Choice):
            at = f"is.{column}"
            options = "".join(
                f'<option value="{escape(str(v))}"{" selected" if given.get(at) == str(v) else ""}>'
                f"{escape(str(v))}</option>"
                for v in parameter.values
            )
            options = f'<option value="">any</option>{options}'
            return f'<label>{name} <select name="{escape(at)}">{options}</select></label>'
        fields = "".join(
            f'<input name="{escape(f"{kind}.{column}")}" inputmode="decimal" aria-label="{name}, {kind}" '
            f'placeholder="{hint}" value="{escape(given.get(f"{kind}.{column}", ""))}">'
            for kind, hint in (("least", "from"), ("most", "to"))
        )
        return f'<div class="limit"><span>{name}</span>{fields}</div>'


def _edge(limit: str, at: str) -> Any:
    try:
        return at if limit.startswith("is.") else float(at)
    except ValueError:
        raise StudyError(f"{limit} must be a number, not {at!r}") from None


def _within(value: Any, limit: str, edge: Any) -> bool:
    if limit.startswith("is."):
        return str(value) == str(edge)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return bool(value >= edge if limit.startswith("least.") else value <= edge)


def _cell(value: Any) -> Any:
    """A value for CSV; text that a spreadsheet would take for a formula begins with an apostrophe."""
    if isinstance(value, int | float | None):
        return value
    text = str(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def json_link(key: str, selection: Selection) -> str:
    """The URL of the same runs as JSON; `key` is quoted."""
    return f"/api/studies/{key}/runs{selection.query()}"
