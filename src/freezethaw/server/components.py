"""What pages are made of, as HTML. Whatever a user typed passes through `escape`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from freezethaw import __version__
from freezethaw.plain import number

WIDTH, HEIGHT = 120, 26  # of a small curve


def shown(value: Any) -> str:
    """A value of a configuration."""
    return escape(number(value) if isinstance(value, float) else str(value))


def words(text: str) -> str:
    """A sentence; a number stays with its sign of percent."""
    return escape(text).replace(" %", "&nbsp;%")


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


def card(title: str, value: str, below: str, gauge: str = "") -> str:
    """One number of a study."""
    return f'<div class="card"><h2>{title}</h2><p class="value">{value}</p>{gauge}<p class="soft">{below}</p></div>'


def gauge(name: str, value: float, limit: float) -> str:
    """How much of a limit is used."""
    share = min(value / limit, 1.0) if limit > 0 else 0.0
    return f'<progress max="1" value="{share:.4f}" aria-label="{name}: {100 * share:.0f} % of the budget"></progress>'


def tags(found: Sequence[str]) -> str:
    """Words that people put on a study."""
    return "".join(f'<span class="tag">{escape(tag)}</span>' for tag in found)


def table(caption: str, heads: Sequence[str], rows: str, numbers: Collection[str] = ()) -> str:
    """A table that scrolls by itself; heads that are `numbers` stand over them, at the right."""
    head = "".join(f'<th scope="col"{" class=n" if name in numbers else ""}>{escape(name)}</th>' for name in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def small_curve(losses: Sequence[float], low: float, high: float, max_epochs: int) -> str:
    """A curve as a small picture; all of a table share their axes."""
    span = high - low if math.isfinite(high - low) and high > low else 1.0
    thinning = max(len(losses) // 60, 1)
    places = sorted({*range(0, len(losses), thinning), len(losses) - 1})
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


def place_of(folder: str, name: str, title: str, wide: bool = False, query: str = "") -> str:
    """Where the page's script draws a figure, which it fetches from `folder`."""
    choice = ""
    if name in ("best_loss", "comparison"):
        options = "".join(f'<option value="{v}">{v}</option>' for v in ("epochs", "hours", "cost"))
        choice = f'<label class="choice">against <select data-option="against">{options}</select></label>'
    at = escape(f"{folder}/{name}{query}")
    return (
        f'<figure class="plot{" wide" if wide else ""}" id="figure-{name}" data-figure="{at}">'
        f'<figcaption><h3>{escape(title)}</h3>{choice}<p class="soft"></p></figcaption>'
        f'<div class="canvas" role="img" aria-label="{escape(title)}"><p class="waiting">Drawing…</p></div></figure>'
    )


def figures_of(key: str) -> str:
    """Where the figures of a study are fetched from."""
    return f"/api/studies/{key}/figures"


def decisions(key: str, found: Sequence[Mapping[str, Any]]) -> str:
    """A log of decisions, the newest first."""
    if not found:
        return "<p class=soft>None yet.</p>"
    rows = "".join(
        f'<li value="{d["number"]}"><a href="/studies/{key}/decisions/{d["number"]}">{d["number"]}</a> '
        f'<span class="soft">run {d["run"]}{outcome(d)}</span> {words(d["reason"])}</li>'
        for d in reversed(found)
    )
    return f'<ol class="log" reversed tabindex="0" aria-label="The last decisions">{rows}</ol>'


def outcome(decision: Mapping[str, Any]) -> str:
    """How a decision ended, where that is out of the ordinary."""
    found = decision["outcome"] or decision["state"]
    return "" if found == "told" else f", {escape(found.replace('_', ' '))}"


def button(key: str, action: str, words: str, fields: Mapping[str, Any] | None = None, kind: str = "") -> str:
    """A form that is one button."""
    hidden = "".join(f'<input type="hidden" name="{k}" value="{escape(str(v))}">' for k, v in (fields or {}).items())
    return (
        f'<form method="post" action="/studies/{key}/{action}">{hidden}'
        f'<button class="{kind}" data-action="{action}">{escape(words)}</button></form>'
    )
