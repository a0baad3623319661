"""How a study shows itself in a notebook: plain HTML with small curves, no script, no model asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Protocol

from freezethaw.records import Budget, Config, Decision, Run

SHOWN = 10  # runs with the best losses
WIDTH, HEIGHT = 120, 24
STYLE = "text-align:left;padding:2px 10px 2px 0;font-variant-numeric:tabular-nums"


class Shown(Protocol):
    """What is shown of a study."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def direction(self) -> str:
        """Whether losses are minimised."""

    @property
    def max_epochs(self) -> int:
        """The last epoch of a run."""

    @property
    def budget(self) -> Budget:
        """When to stop."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs."""

    @property
    def pending(self) -> tuple[Decision, ...]:
        """Decisions under way."""


def study_html(study: Shown) -> str:
    """A study in HTML: how far it is, what is under way, and its best runs with their curves."""
    runs, sign = study.runs, -1.0 if study.direction == "maximize" else 1.0
    trained = [run for run in runs if run.losses]
    ranked = sorted(trained, key=lambda run: min(sign * loss for loss in run.losses))[:SHOWN]
    parts = [f"<b>study {escape(study.name)}</b> ({escape(study.direction)})", _progress(study, runs)]
    parts += [f"under way: run {d.run} to epoch {d.to_epoch}: {escape(d.reason)}" for d in study.pending]
    body = "".join(f"<div>{part}</div>" for part in parts)
    if ranked:
        body += _table(ranked, sign, study.max_epochs)
        if len(trained) > len(ranked):
            body += f"<div>the best {len(ranked)} of {len(trained)} runs with a loss</div>"
    return f'<div style="font-family:sans-serif;font-size:13px">{body}</div>'


def _progress(study: Shown, runs: Sequence[Run]) -> str:
    epochs = sum(run.epoch + (run.state == "diverged") for run in runs if not run.added)
    limit = "" if study.budget.epochs is None else f" of {study.budget.epochs}"
    states = Counter(str(run.state) for run in runs)
    counts = ", ".join(f"{count} {escape(state)}" for state, count in sorted(states.items()))
    return f"{epochs}{limit} epochs, {len(runs)} runs" + (f": {counts}" if counts else "")


def _table(ranked: Sequence[Run], sign: float, max_epochs: int) -> str:
    names = list(dict.fromkeys(name for run in ranked for name in run.config))
    head = "".join(_cell(title, "th") for title in ("run", "epochs", "best loss", "curve", "state", *names))
    low = min(loss for run in ranked for loss in run.losses)
    high = max(loss for run in ranked for loss in run.losses)
    rows = []
    for run in ranked:
        best = min(run.losses, key=lambda loss: sign * loss)
        cells = [_cell(str(run.number)), _cell(f"{run.epoch} of {max_epochs}"), _cell(f"{best:.5g}")]
        cells += [f'<td style="{STYLE}">{_curve(run.losses, low, high, max_epochs)}</td>', _cell(str(run.state))]
        cells += [_cell(_value(run.config, name)) for name in names]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f'<table style="border-collapse:collapse"><tr>{head}</tr>{"".join(rows)}</table>'


def _cell(text: str, kind: str = "td") -> str:
    return f'<{kind} style="{STYLE}">{escape(text)}</{kind}>'


def _value(config: Config, name: str) -> str:
    value = config.get(name, "")
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _curve(losses: Sequence[float], low: float, high: float, max_epochs: int) -> str:
    """A curve as a small picture; all of a table share their axes."""
    range_ = high - low if math.isfinite(high - low) and high > low else 1.0
    points = [
        f"{2 + (WIDTH - 4) * place / max(max_epochs - 1, 1):.1f},{2 + (HEIGHT - 4) * (high - loss) / range_:.1f}"
        for place, loss in enumerate(losses)
    ]
    line = f'<polyline points="{" ".join(points)}" fill="none" stroke="#0072B2" stroke-width="1.5"/>'
    x, y = points[-1].split(",")
    end = f'<circle cx="{x}" cy="{y}" r="2" fill="#0072B2"/>'
    return f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{len(losses)} epochs">{line}{end}</svg>'
