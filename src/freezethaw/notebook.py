"""The HTML representation of a study in a notebook: its progress and its best runs. No script, no model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from html import escape

from freezethaw.plain import describe, number
from freezethaw.records import Config, Run, StudyState

RUNS_SHOWN = 10
WIDTH, HEIGHT, MAX_POINTS, COLOUR = 120, 26, 60, "#0072B2"  # of a curve; style sheets may override the colour
STYLE = "text-align:left;padding:2px 10px 2px 0;font-variant-numeric:tabular-nums"


def study_html(name: str, state: StudyState) -> str:
    """A study as HTML: its progress, its pending decisions, and its best runs with their curves."""
    runs, sign, direction = state.runs, state.sign, state.definition["direction"]
    trained = [run for run in runs if run.losses]
    ranked = sorted(trained, key=lambda run: run.best(sign))[:RUNS_SHOWN]
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


def curve_svg(losses: Sequence[float], low: float, high: float, max_epochs: int) -> str:
    """A learning curve as a small SVG image. All curves of a table share the axes; losses outside are clipped."""
    scale = (HEIGHT - 4) / (high - low if math.isfinite(high - low) and high > low else 1.0)
    step = max(len(losses) // MAX_POINTS, 1)
    points = [
        f"{2 + (WIDTH - 4) * i / max(max_epochs - 1, 1):.1f},"
        f"{2 + min(max(scale * (high - losses[i]), 0.0), HEIGHT - 4.0):.1f}"
        for i in sorted({*range(0, len(losses), step), len(losses) - 1})
    ]
    x, y = points[-1].split(",")
    return (
        f'<svg class="spark" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{len(losses)} epochs">'
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{COLOUR}" stroke-width="1.5"/>'
        f'<circle cx="{x}" cy="{y}" r="2.2" fill="{COLOUR}"/></svg>'
    )
