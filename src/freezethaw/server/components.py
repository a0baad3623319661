"""HTML components of the pages. User text is escaped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from freezethaw import __version__
from freezethaw.plain import number


def shown(value: Any) -> str:
    """A parameter value."""
    return escape(number(value) if isinstance(value, float) else str(value))


def sentence(text: str) -> str:
    """A text, with no line break before a percent sign."""
    return escape(text).replace(" %", "&nbsp;%")


def config_line(config: Mapping[str, Any]) -> str:
    """A configuration on one line."""
    return ", ".join(f"{escape(key)}&nbsp;=&nbsp;{shown(value)}" for key, value in config.items())


def document(title: str, body: str, json_at: str, trail: Sequence[tuple[str, str]] = ()) -> str:
    """A complete page."""
    links = "".join(f'<li><a href="{escape(to)}">{escape(name)}</a></li>' for name, to in trail)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} – freezethaw</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><link rel="stylesheet" href="/static/page.css?v={__version__}">
<script src="/static/page.js?v={__version__}" defer></script></head>
<body><a class="skip" href="#main">Skip to content</a>
<header class="top"><nav aria-label="Breadcrumb"><ol><li><a href="/">freezethaw</a></li>{links}</ol></nav>
<a class="json" href="{escape(json_at)}">JSON</a></header>
<main id="main">{body}</main>
<div id="message" class="message" role="status" aria-live="polite"></div></body></html>"""


def card(title: str, value: str, below: str, gauge: str = "") -> str:
    """A number with a title and a caption."""
    return f'<div class="card"><h2>{title}</h2><p class="value">{value}</p>{gauge}<p class="soft">{below}</p></div>'


def gauge(name: str, value: float, limit: float) -> str:
    """A progress bar for the used share of a limit."""
    share = min(value / limit, 1.0) if limit > 0 else 0.0
    return f'<progress max="1" value="{share:.4f}" aria-label="{name}: {100 * share:.0f} % of the budget"></progress>'


def tags(found: Sequence[str]) -> str:
    """The tags of a study."""
    return "".join(f'<span class="tag">{escape(tag)}</span>' for tag in found)


def table(caption: str, heads: Sequence[str], rows: str, numbers: Collection[str] = ()) -> str:
    """A scrollable table; columns in `numbers` are right-aligned."""
    head = "".join(f'<th scope="col"{" class=n" if name in numbers else ""}>{escape(name)}</th>' for name in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}, table"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def choice(name: str, text: str, options: Sequence[tuple[str, str]]) -> str:
    """A choice above a figure, sent as an option of its URL."""
    shown = "".join(f'<option value="{escape(value)}">{escape(label)}</option>' for value, label in options)
    named = f'data-option="{escape(name)}" aria-label="{escape(text)}"'
    return f'<label class="choice">{escape(text)} <select {named}>{shown}</select></label>'


AGAINST = choice("against", "against", [(value, value) for value in ("epochs", "hours", "cost")])


def figure_slot(
    folder: str, name: str, title: str, wide: bool = False, query: str = "", controls: str = "", more: str = ""
) -> str:
    """A placeholder in which the script of the page draws a figure, fetched from `folder`."""
    at = escape(f"{folder}/{name}{query}")
    bar = f'<div class="controls">{controls}</div>' if controls else ""
    return (
        f'<figure class="plot{" wide" if wide else ""}" id="figure-{name}" data-figure="{at}">'
        f'<figcaption><h2>{escape(title)}</h2>{bar}<p class="soft"></p></figcaption>'
        f'<div class="canvas" role="img" aria-label="{escape(title)}"><p class="waiting">Drawing…</p></div>{more}'
        "</figure>"
    )


def figures_of(key: str) -> str:
    """The URL of the figures of a study."""
    return f"/api/studies/{key}/figures"


def decisions(key: str, found: Sequence[Mapping[str, Any]], name: str = "Last decisions", style: str = "") -> str:
    """A list of decisions, newest first."""
    if not found:
        return "<p class=soft>None yet.</p>"
    rows = "".join(
        f'<li value="{d["number"]}"><a href="/studies/{key}/decisions/{d["number"]}">{d["number"]}</a> '
        f'<span class="soft">run {d["run"]}{outcome(d)}</span> {sentence(d["reason"])}</li>'
        for d in reversed(found)
    )
    return f'<ol class="log{style}" reversed tabindex="0" aria-label="{name}">{rows}</ol>'


def outcome(decision: Mapping[str, Any]) -> str:
    """The outcome of a decision, if it is not the usual one."""
    found = decision["outcome"] or decision["state"]
    return "" if found == "told" else f", {escape(found.replace('_', ' '))}"


def traceback(text: str) -> str:
    """The traceback of an event, folded; nothing if there is none."""
    return f"<details><summary>Traceback</summary><pre>{escape(text.rstrip())}</pre></details>" if text else ""


def button(key: str, action: str, text: str, fields: Mapping[str, Any] | None = None, kind: str = "") -> str:
    """A form with one button."""
    hidden = "".join(f'<input type="hidden" name="{k}" value="{escape(str(v))}">' for k, v in (fields or {}).items())
    return (
        f'<form method="post" action="/studies/{key}/{action}">{hidden}'
        f'<button class="{kind}" data-action="{action}">{escape(text)}</button></form>'
    )
