"""What notebooks show of a study and of a forecast, as HTML without scripts. No model is used."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from freezethaw.plain import describe, number
from freezethaw.records import Config, Run, StudyState, best_of

RUNS_SHOWN = 10
WIDTH, HEIGHT, MAX_POINTS, COLOUR = 120, 26, 60, "#0072B2"  # of a curve; style sheets may override the colour
PICTURE_WIDTH, PICTURE_HEIGHT = 420, 180  # of a forecast
STYLE = "text-align:left;padding:2px 10px 2px 0;font-variant-numeric:tabular-nums"


def study_html(name: str, state: StudyState) -> str:
    """A study as HTML: its progress, its pending decisions, and its best runs with their curves."""
    runs, sign, direction = state.runs, state.sign, state.definition["direction"]
    trained = [run for run in runs if run.losses]
    ranked = sorted(trained, key=lambda run: best_of(run, sign))[:RUNS_SHOWN]
    parts = [f"<b>study {escape(name)}</b> ({escape(direction)} {escape(state.metric)})", _progress(state)]
    parts += [f"training: run {d.run} to epoch {d.to_epoch}: {escape(d.reason)}" for d in state.pending]
    if state.lowest is not None:
        _, run, epoch = state.lowest
        best = f"best {state.metric} {number(state.best_loss)}: run {run}, epoch {epoch}"
        parts.append(f"<b>{escape(best)}</b> ({escape(describe(state.run(run).config))})")
    body = "".join(f"<div>{part}</div>" for part in parts)
    if ranked:
        body += _table(ranked, sign, state.max_epochs, state.metric)
        if len(trained) > len(ranked):
            body += f"<div>best {len(ranked)} of {len(trained)} trained runs</div>"
    return f'<div style="font-family:sans-serif;font-size:13px">{body}</div>'


def _progress(state: StudyState) -> str:
    runs, epochs, most = state.runs, state.epochs_trained(), (state.definition.get("budget") or {}).get("epochs")
    limit = "" if most is None else f" of {most}"
    states = Counter(str(run.state) for run in runs)
    counts = ", ".join(f"{count} {escape(state)}" for state, count in sorted(states.items()))
    return f"{epochs}{limit} epochs, {len(runs)} runs" + (f": {counts}" if counts else "")


def _table(ranked: Sequence[Run], sign: float, max_epochs: int, metric: str) -> str:
    names = list(dict.fromkeys(name for run in ranked for name in run.config))
    head = "".join(_cell(title, "th") for title in ("run", "epochs", f"best {metric}", "curve", "state", *names))
    low = min(loss for run in ranked for loss in run.losses)
    high = max(loss for run in ranked for loss in run.losses)
    rows = []
    for run in ranked:
        best = min(run.losses, key=lambda loss: sign * loss)
        cells = [_cell(str(run.number)), _cell(f"{run.epoch} of {max_epochs}"), _cell(f"{best:.5g}")]
        cells += [f'<td style="{STYLE}">{curve_svg(run.losses, low, high, max_epochs)}</td>', _cell(str(run.state))]
        cells += [_cell(_value(run.config, name)) for name in names]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f'<table style="border-collapse:collapse"><tr>{head}</tr>{"".join(rows)}</table>'


def _cell(text: str, kind: str = "td") -> str:
    return f'<{kind} style="{STYLE}">{escape(text)}</{kind}>'


def _value(config: Config, name: str) -> str:
    value = config.get(name, "")
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def curve_svg(losses: Sequence[float], low: float, high: float, max_epochs: int, label: str | None = None) -> str:
    """A learning curve as a small SVG image. All curves of a table share the axes; losses outside are clipped."""
    scale = (HEIGHT - 4) / (high - low if math.isfinite(high - low) and high > low else 1.0)
    step = max(len(losses) // MAX_POINTS, 1)
    points = [
        f"{2 + (WIDTH - 4) * i / max(max_epochs - 1, 1):.1f},"
        f"{2 + min(max(scale * (high - losses[i]), 0.0), HEIGHT - 4.0):.1f}"
        for i in sorted({*range(0, len(losses), step), len(losses) - 1})
    ]
    x, y = points[-1].split(",")
    label = label or f"{len(losses)} epochs"
    return (
        f'<svg class="spark" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">'
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{COLOUR}" stroke-width="1.5"/>'
        f'<circle cx="{x}" cy="{y}" r="2.2" fill="{COLOUR}"/></svg>'
    )


def forecast_html(forecast: Any) -> str:
    """A forecast as HTML: the median and the 50 and 90 % intervals, drawn over the epochs; one epoch as text."""
    bands = forecast.quantile([0.05, 0.25, 0.5, 0.75, 0.95])
    if bands.shape[1] == 1:  # a picture of one epoch would have nothing along its axis
        return f'<div style="font-family:sans-serif;font-size:13px">{escape(str(forecast).strip("<>"))}</div>'
    count, low, high = bands.shape[1], float(bands.min()), float(bands.max())
    scale = (PICTURE_HEIGHT - 24) / (high - low or 1.0)
    x = [70 + (PICTURE_WIDTH - 80) * i / (count - 1) for i in range(count)]

    def points(row: int, backwards: bool = False) -> str:
        found = [f"{at:.1f},{8 + scale * (high - y):.1f}" for at, y in zip(x, bands[row], strict=True)]
        return " ".join(reversed(found) if backwards else found)

    areas = "".join(
        f'<polygon points="{points(lower)} {points(upper, True)}" fill="{COLOUR}" opacity="{opacity}"/>'
        for lower, upper, opacity in ((0, 4, 0.2), (1, 3, 0.35))
    )
    labels = "".join(
        f'<text x="66" y="{y:.0f}" font-size="11" text-anchor="end" fill="currentColor">{value:.4g}</text>'
        for y, value in ((14.0, high), (PICTURE_HEIGHT - 14.0, low))
    )
    epochs = forecast.epochs
    if epochs is not None:
        ends = [(x[0], "start", epochs[0]), (x[-1], "end", epochs[-1])]
        labels += "".join(
            f'<text x="{at:.0f}" y="{PICTURE_HEIGHT - 2}" font-size="11" text-anchor="{anchor}" fill="currentColor">'
            f"epoch {epoch:g}</text>"
            for at, anchor, epoch in ends
        )
    picture = (
        f'<svg width="{PICTURE_WIDTH}" height="{PICTURE_HEIGHT}" role="img" aria-label="forecast">{areas}'
        f'<polyline points="{points(2)}" fill="none" stroke="{COLOUR}" stroke-width="2"/>{labels}</svg>'
    )
    caption = f"forecast of the {escape(forecast.metric)}: median, 50 and 90 % intervals"
    return f'<div style="font-family:sans-serif;font-size:13px"><div>{caption}</div>{picture}</div>'
