"""The replay of a study, decision by decision: which curve grows, which ones wait frozen, and what was forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from freezethaw.figures.history import no_loss
from freezethaw.figures.style import (
    BANDS,
    COLOURS,
    FAINT,
    INK,
    Array,
    band,
    empty_figure,
    faded,
    graph_objects,
    label,
    note,
    of_study,
    thinned,
)
from freezethaw.plain import number, title
from freezethaw.records import DecisionRecord, Run
from freezethaw.study import StudyReader

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TRAINED, BEST = COLOURS[1], COLOURS[0]
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MAX_FRAMES, MAX_RUNS, MAX_POINTS = 80, 150, 25  # of one replay, one frame and one curve: a figure of about a megabyte
NOWHERE = np.array([np.nan])


@dataclass(frozen=True)
class Past:
    """A study, from which its curves after any number of epochs are read."""

    study: StudyReader
    order: NDArray[np.intp]  # the run of each recorded epoch, from 0
    lowest: tuple[Array, ...]  # of each run, after each of its epochs; times the sign
    best: Array  # of the study, after each recorded epoch; times the sign

    @classmethod
    def of(cls, study: StudyReader) -> Past:
        """Everything that was recorded."""
        sign = study.sign
        found = [(run - 1, sign * study.runs[run - 1].losses[epoch - 1]) for _, run, epoch in study.history.epochs]
        lowest = tuple(np.minimum.accumulate(sign * np.array(run.losses)) for run in study.runs)
        best = np.minimum.accumulate(np.array([loss for _, loss in found]))
        return cls(study, np.array([run for run, _ in found], dtype=np.intp), lowest, best)

    def runs(self, count: int) -> list[tuple[float, Run]]:
        """The runs after so many epochs, best first, with their best loss times the sign."""
        lengths = np.bincount(self.order[:count], minlength=len(self.lowest))
        there = [(float(self.lowest[i][lengths[i] - 1]), i) for i in np.flatnonzero(lengths)]
        runs = self.study.runs
        return [(loss, replace(runs[i], losses=runs[i].losses[: lengths[i]])) for loss, i in sorted(there)]


@of_study
def replay(study: StudyReader, frames: int = MAX_FRAMES, forecasts: bool = True) -> Figure:
    """Draw the study as it grew, one frame for each of `frames` decisions spread over it; the last frame is shown.

    With `forecasts`, the band is what the run that was chosen was expected to do, as known at that decision.
    """
    what = "orange: trained by this decision; squares: frozen runs; blue: the best"
    what += "; band: forecast made before it, 50 and 90 %" if forecasts else ""
    figure = empty_figure("Replay of the decisions", what, "Epoch", title(study.metric))
    figure.update_xaxes(range=[0.0, study.max_epochs * 1.02])
    records, past = [r for r in study.history.decisions if r.closed is not None], None
    if study.history.epochs:
        past = Past.of(study)
    if past is None or not records:
        return note(figure, no_loss(study))
    at = thinned(len(records), min(frames, MAX_FRAMES))
    drawn = [(records[i], _traces(past, records[i], forecasts)) for i in at]
    figure.add_traces(drawn[-1][1])
    losses = np.concatenate([study.sign * np.array(run.losses) for run in study.runs])
    low, high = float(np.min(losses)), float(np.quantile(losses, 0.93))
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    figure.update_yaxes(range=sorted([study.sign * (low - margin), study.sign * (high + margin)]))
    frame = graph_objects().Frame
    figure.frames = [
        frame(name=str(r.decision.number), data=[{"x": t.x, "y": t.y, "type": "scatter"} for t in traces])
        for r, traces in drawn
    ]
    steps = [_step(past, record) for record, _ in drawn]
    return figure.update_layout(sliders=[_slider(steps)], updatemenus=[_buttons()], margin={"b": 170})


def _traces(past: Past, record: DecisionRecord, forecasts: bool) -> Sequence[Any]:
    """The same traces for every frame, empty where there is nothing to draw."""
    study, decision = past.study, record.decision
    figure = graph_objects().Figure()
    runs = [run for _, run in past.runs(study.history.epochs_at(record.closed or 0))]
    best = runs[0] if runs else None
    now = next((run for run in runs if run.number == decision.run), None)
    rest = [run for run in runs if run not in (best, now)]
    rest = [rest[i] for i in thinned(len(rest), MAX_RUNS)] if rest else []
    x, y = _lines(rest)
    line = {"color": faded(FAINT, 0.55), "width": 1.2}
    figure.add_scatter(x=x, y=y, mode="lines", line=line, name="other runs", hoverinfo="skip", showlegend=False)
    ends = [run for run in rest if run.epoch < study.max_epochs and run.state not in ("diverged", "failed")]
    mark = {"symbol": "square", "size": 6, "color": faded(FAINT, 0.8)}
    figure.add_scatter(
        x=[run.epoch for run in ends] or NOWHERE, y=[run.losses[-1] for run in ends] or NOWHERE, mode="markers",
        marker=mark, name="frozen", hoverinfo="skip",
    )  # fmt: skip
    epochs, bands = _past_forecast(study, record) if forecasts else (NOWHERE, np.full((5, 1), np.nan))
    for (low, high), (_, opacity) in zip(((0, 4), (1, 3)), BANDS, strict=True):
        band(figure, epochs, bands[low], bands[high], faded(TRAINED, opacity), "forecast", showlegend=False)
    line = {"color": TRAINED, "width": 2, "dash": "dot"}
    figure.add_scatter(x=epochs, y=bands[2], mode="lines", line=line, name="forecast before it", showlegend=forecasts)
    x, y = _lines([best] if best is not None else [])
    figure.add_scatter(x=x, y=y, mode="lines", line={"color": BEST, "width": 2.5}, name="best run")
    x, y = _lines([now] if now is not None else [])
    line = {"color": TRAINED, "width": 1.5}
    figure.add_scatter(x=x, y=y, mode="lines", line=line, name="chosen run", showlegend=False)
    new = [] if now is None else list(range(decision.from_epoch + 1, now.epoch + 1))
    figure.add_scatter(
        x=new or NOWHERE, y=[now.losses[e - 1] for e in new] if now and new else NOWHERE, mode="lines+markers",
        line={"color": TRAINED, "width": 3}, marker={"size": 8, "color": TRAINED}, name="trained by this decision",
    )  # fmt: skip
    return tuple(figure.data)


def _lines(runs: Sequence[Run]) -> tuple[Array, Array]:
    """Curves as one line, with a gap after each."""
    x: list[float] = []
    y: list[float] = []
    for run in runs:
        at = thinned(run.epoch, MAX_POINTS)
        x += [*(at + 1.0), np.nan]
        y += [*(float(f"{run.losses[i]:.5g}") for i in at), np.nan]
    return (np.array(x), np.array(y)) if x else (NOWHERE, NOWHERE)


def _past_forecast(study: StudyReader, record: DecisionRecord) -> tuple[Array, Array]:
    first, last = record.decision.from_epoch + 1, study.max_epochs
    epochs = np.unique(np.linspace(first, last, 20).round()) if first <= last else NOWHERE
    found = study.forecast_before(record, [float(e) for e in epochs]) if first <= last else None
    return (NOWHERE, np.full((5, 1), np.nan)) if found is None else (epochs, found.quantile(QUANTILES))


def _step(past: Past, record: DecisionRecord) -> dict[str, Any]:
    study, decision = past.study, record.decision
    count = study.history.epochs_at(record.closed or 0)
    reached = decision.to_epoch if record.reached is None else record.reached
    outcome = "" if record.outcome == "told" else f", {record.outcome.replace('_', ' ')}"
    best = f"; best {label(study.metric)} {number(study.sign * past.best[count - 1], 4)}" if count else ""
    name, trained = str(decision.number), f"epochs {decision.from_epoch} to {reached}"
    text = f"{name}: {decision.kind} run {decision.run}, {trained}{outcome}; {count} in all{best}"
    mode = {"mode": "immediate", "frame": {"duration": 0, "redraw": False}, "transition": {"duration": 0}}
    return {"label": text, "method": "animate", "args": [[name], mode]}


def _slider(steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "steps": steps, "active": len(steps) - 1, "x": 0.12, "len": 0.88, "y": 0, "yanchor": "top", "pad": {"t": 56},
        "currentvalue": {"prefix": "decision ", "xanchor": "left", "font": {"size": 14}},
        "ticklen": 0, "minorticklen": 0, "font": {"size": 1, "color": "rgba(0,0,0,0)"},
    }  # fmt: skip


def _buttons() -> dict[str, Any]:
    play = {"fromcurrent": True, "frame": {"duration": 180, "redraw": False}, "transition": {"duration": 0}}
    stop = {"mode": "immediate", "frame": {"duration": 0, "redraw": False}, "transition": {"duration": 0}}
    return {
        "type": "buttons", "direction": "left", "x": 0.0, "y": 0, "yanchor": "top", "pad": {"t": 70},
        "buttons": [{"label": "Play", "method": "animate", "args": [None, play]},
                    {"label": "Stop", "method": "animate", "args": [[None], stop]}],
        "font": {"color": INK, "size": 12},
    }  # fmt: skip
