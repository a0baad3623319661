"""Figures of the learning curves of a study: losses, forecasts, asymptotes and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from freezethaw.errors import StudyError
from freezethaw.figures.history import continuations, no_loss
from freezethaw.figures.style import (
    BANDS,
    COLOURS,
    FAINT,
    INK,
    Array,
    band,
    colour,
    empty_figure,
    faded,
    note,
    of_study,
    thinned,
)
from freezethaw.losses import Forecast
from freezethaw.model.predictions import predict
from freezethaw.plain import percent, title
from freezethaw.records import Run, best_of
from freezethaw.study import StudyReader

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_BANDS = 3  # highlighted runs with bands: more would hide each other
_KEPT: WeakKeyDictionary[StudyReader, dict[tuple[int, tuple[float, ...]], Array]] = WeakKeyDictionary()
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def ranked(study: StudyReader) -> list[Run]:
    """Runs with a loss, best first."""
    sign = study.sign
    return sorted((run for run in study.runs if run.losses), key=lambda run: best_of(run, sign))


@of_study
def curves(
    study: StudyReader,
    runs: Sequence[int] | None = None,
    shown: int = 5,
    others: int = 200,
    forecasts: bool = True,
    model: StudyReader | None = None,
) -> Figure:
    """Draw losses and the medians of their forecasts; of highlighted runs also the 50 and 90 % intervals.

    Highlighted are the given `runs`, or the best unfinished one. By default the `shown` best runs are drawn, including
    some that are being trained. At most `others` further runs are thin lines. Diamonds are epochs after which a run was
    frozen and thawed later. Without `forecasts` the model is not used. `model` is an earlier state of the study whose
    forecasts are drawn, by default the state itself.
    """
    what = "dots: measured; dotted: median forecast; bands: 50 and 90 % intervals; diamonds: frozen, then thawed"
    figure = empty_figure("Learning curves and forecasts", what, "Epoch", title(study.metric))
    order = ranked(study)
    if runs is None:
        pending = {decision.run for decision in study.pending}
        chosen = [run for run in order if run.number in pending][: shown // 2]
        chosen += [run for run in order if run not in chosen][: shown - len(chosen)]
        chosen.sort(key=order.index)
    else:
        chosen = [study.runs[number - 1] for number in runs if 1 <= number <= len(study.runs)]
    unfinished = [run for run in chosen if run.epoch < study.max_epochs and run.state not in ("diverged", "failed")]
    highlighted = unfinished[:1] if runs is None else chosen[:MOST_BANDS]
    rest = [run for run in order if run not in chosen]
    _thin_curves(figure, [rest[i] for i in thinned(len(rest), others)] if rest else [])
    inner: list[Array] = []
    outer: list[Array] = []
    for place, run in enumerate(chosen if forecasts else ()):
        end = _forecast(figure, model or study, run, colour(place), inner, outer, run in highlighted)
        if end and len(chosen) == 1:
            figure.update_layout(meta={"title": "Learning curve and forecast", "subtitle": end})
    pauses = _pauses(study) if chosen else {}
    for place, run in enumerate(chosen):
        y = np.array(run.losses)
        at = thinned(len(y), 100) if len(y) else np.empty(0, dtype=np.int64)
        inner.append(y)
        figure.add_scatter(
            x=at + 1, y=y[at], mode="lines+markers", name=f"run {run.number}", marker={"size": 6},
            line={"color": colour(place), "width": 1.5}, legendgroup=f"run {run.number}", meta={"run": run.number},
            hovertemplate=f"run {run.number}, epoch %{{x}}: %{{y:.5g}}<extra></extra>",
        )  # fmt: skip
        _draw_pauses(figure, run, colour(place), pauses.get(run.number, ()))
    figure.update_xaxes(range=[0.0, study.max_epochs * 1.02])
    seen = [y for y in inner if len(y)]
    if not seen:
        return note(figure, no_loss(study))
    everything, sign = np.concatenate(seen), study.sign
    # a few first losses may be outside, so that the range of good losses is visible
    worst = float(sign * np.quantile(sign * everything, 0.93))
    if len(chosen) == 1:  # its last loss is visible in any case
        worst = sign * max(sign * worst, sign * chosen[0].losses[-1])
    low, high = sorted([float(sign * np.min(sign * everything)), worst])
    extra = 0.25 * (high - low)
    low, high = max(low - extra, min([low, *map(np.min, outer)])), min(high + extra, max([high, *map(np.max, outer)]))
    margin = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
    return figure.update_yaxes(range=[low - margin, high + margin])


def _thin_curves(figure: Figure, rest: Sequence[Run]) -> None:
    """Draw all as one trace, with a gap after each run."""
    x: list[float] = []
    y: list[float] = []
    numbers: list[int] = []
    for run in rest:
        at = thinned(run.epoch, 40)
        x += [*(at + 1.0), np.nan]
        y += [*(run.losses[i] for i in at), np.nan]
        numbers += [run.number] * (len(at) + 1)
    if x:
        mode = "lines+markers" if len(x) < 2 * len(rest) + 40 else "lines"
        line, dot = {"color": faded(FAINT, 0.4), "width": 1}, {"size": 3, "color": faded(FAINT, 0.5)}
        figure.add_scatter(
            x=np.array(x), y=np.array(y), mode=mode, line=line, marker=dot, name="others",
            customdata=np.array(numbers), connectgaps=False,
            hovertemplate="run %{customdata}, epoch %{x}: %{y:.5g}<extra></extra>",
        )  # fmt: skip


def _forecast(
    figure: Figure, study: StudyReader, run: Run, paint: str, inner: list[Array], outer: list[Array], highlighted: bool
) -> str:
    """Draw the forecast of a run; bands of others are drawn with opacity 0, for pages that show them on hover."""
    first, last = run.epoch + 1, study.max_epochs
    if first > last or run.state in ("diverged", "failed") or run.number > len(study.runs):
        return ""
    epochs = np.unique(np.linspace(first, last, 30).round())
    try:
        bands = _quantiles(study, run.number, tuple(epochs.tolist()))
    except StudyError:  # nothing to forecast from yet
        return ""
    name = f"run {run.number}"
    for (low, high), (_, opacity) in zip(((0, 4), (1, 3)), BANDS, strict=True):
        band(
            figure, epochs, bands[low], bands[high], faded(paint, opacity), name, showlegend=False, legendgroup=name,
            opacity=1.0 if highlighted else 0.0, meta={"run": run.number, "band": True, "shown": highlighted},
        )  # fmt: skip
    inner += [bands[1], bands[3]] if highlighted else [bands[2]]
    outer += [bands[0], bands[4]] if highlighted else []
    figure.add_scatter(
        x=epochs, y=bands[2], mode="lines", line={"color": paint, "width": 2, "dash": "dot"}, name=name,
        showlegend=False, legendgroup=name, meta={"run": run.number},
        hovertemplate=f"{name}, epoch %{{x}}: %{{y:.5g}} forecast<extra></extra>",
    )  # fmt: skip
    least, median, most = (f"{bands[i, -1]:.4g}" for i in (0, 2, 4))
    return f"forecast at epoch {last}: {median}, 90 % interval {least} to {most}"


def _quantiles(study: StudyReader, run: int, epochs: tuple[float, ...]) -> Array:
    """Quantiles of a forecast; kept with the study, since a page draws the same forecast several times."""
    kept = _KEPT.setdefault(study, {})
    if (run, epochs) not in kept:
        kept[run, epochs] = study.forecast(run, list(epochs)).quantile(QUANTILES)
    return kept[run, epochs]


def _pauses(study: StudyReader) -> dict[int, list[tuple[int, int, int]]]:
    """For each run that was frozen and thawed: the epoch, the decision that thawed it, and the epochs of others."""
    history, found = study.history, dict[int, list[tuple[int, int, int]]]()
    continued, last = continuations(history), dict[int, int]()
    for record in history.decisions:
        decision, began = record.decision, history.epochs_at(record.committed)
        if decision.kind == "thaw" and decision.number not in continued:
            entry = decision.from_epoch, decision.number, began - last.get(decision.run, began)
            found.setdefault(decision.run, []).append(entry)
        last[decision.run] = began if record.closed is None else history.epochs_at(record.closed)
    return found


def _draw_pauses(figure: Figure, run: Run, paint: str, pauses: Sequence[tuple[int, int, int]]) -> None:
    there = [pause for pause in pauses if 1 <= pause[0] <= run.epoch]
    if there:
        texts = [
            f"run {run.number}: frozen after epoch {epoch} while others trained {waited} epochs; "
            f"thawed by decision {number}"
            for epoch, number, waited in there
        ]
        mark = {"symbol": "diamond", "size": 8, "color": "white", "line": {"color": paint, "width": 2}}
        figure.add_scatter(
            x=[epoch for epoch, _, _ in there], y=[run.losses[epoch - 1] for epoch, _, _ in there], mode="markers",
            marker=mark, text=texts, hovertemplate="%{text}<extra></extra>", name="thawed", showlegend=False,
            legendgroup=f"run {run.number}", meta={"run": run.number},
        )  # fmt: skip


@of_study
def run_asymptotes(study: StudyReader, most: int = 12) -> Figure:
    """Draw the forecast asymptotes of runs: medians with 50 and 90 % intervals, best first."""
    what = "thick: 50 %, thin: 90 % interval of the posterior; dashed: best so far"
    figure = empty_figure("Asymptotes", what, f"{title(study.metric)} at epoch {study.max_epochs}", "")
    inference = study.inference
    numbers = (
        []
        if inference is None
        else [n for n in inference.places if study.runs[n - 1].state not in ("diverged", "failed")]
    )
    if inference is None or not numbers:
        return note(figure, no_loss(study))
    places = np.array([inference.places[n] for n in numbers], dtype=np.int64)
    bands = asymptotes_of(study, places).quantile(QUANTILES)
    order = np.argsort(study.sign * bands[2])[:most][::-1]
    names = [f"run {numbers[i]}" for i in order]
    for (low, high), width in (((0, 4), 2), ((1, 3), 7)):
        x = np.stack([bands[low, order], bands[high, order], np.full(len(order), np.nan)], axis=1).ravel()
        y = [name for name in names for _ in range(3)]
        line = {"color": faded(COLOURS[0], 0.55), "width": width}
        figure.add_scatter(x=x, y=y, mode="lines", line=line, showlegend=False, hoverinfo="skip")
    figure.add_scatter(
        x=bands[2, order], y=names, mode="markers", marker={"color": INK, "size": 8}, showlegend=False, name="median",
        hovertemplate="%{y}: %{x:.5g}<extra></extra>",
    )  # fmt: skip
    best = min((study.sign * loss for run in study.runs for loss in run.losses), default=None)
    if best is not None:
        figure.add_vline(x=study.sign * best, line={"color": COLOURS[1], "width": 1.5, "dash": "dash"})
    return figure.update_yaxes(type="category")


def asymptotes_of(study: StudyReader, places: Any, configs: Array | None = None) -> Forecast:
    """Noise-free losses at the last epoch: of runs by index, followed by those of configurations given by features."""
    inference = study.inference
    if inference is None:
        raise StudyError(no_loss(study))
    f = inference.forecaster
    end = np.array([float(study.max_epochs)])
    features = np.empty((0, f.posterior.curves.dimensions)) if configs is None else configs
    found = predict(f.posterior, np.asarray(places, dtype=np.int64), features, end)
    shape = found.weights.shape[:-1]  # (C, S, P)
    parts = (
        f.weights[:, None] * found.weights[..., 0],
        np.broadcast_to(found.mean[..., 0], shape),
        found.deviations[..., 0],
        np.full(shape, np.inf),
    )
    return Forecast(f.transform, *(part.reshape(-1, shape[-1]) for part in parts))


@of_study
def p_min(study: StudyReader, most: int = 15) -> Figure:
    """Draw the probability of each run to have the best asymptote."""
    figure = empty_figure(
        "Probability of the minimum",
        "P_min: how often a run has the best asymptote in joint draws of all forecasts",
        "",
        "Probability",
    )
    found = sorted(study.p_min().items(), key=lambda item: -item[1])[:most]
    if not found:
        return note(figure, no_loss(study))
    names, y = [f"run {run}" for run, _ in found], [chance for _, chance in found]
    texts = [percent(chance) for chance in y]
    figure.add_bar(
        x=names, y=y, marker={"color": COLOURS[0]}, textposition="outside", cliponaxis=False, constraintext="none",
        text=[text if chance >= 0.01 else "" for text, chance in zip(texts, y, strict=True)], textfont={"size": 12},
        customdata=texts, hovertemplate="%{x}: %{customdata}<extra></extra>", showlegend=False,
    )  # fmt: skip
    figure.update_xaxes(type="category", showgrid=False)
    return figure.update_yaxes(tickformat=".0%", range=[0, 1.15 * max(y)])


@of_study
def forecast_calibration(study: StudyReader, most: int = 30) -> Figure:
    """Draw past 90 % forecast intervals with the losses measured later: nine in ten should be inside."""
    found = study.past_forecasts(most)
    inside = sum(f.low <= f.loss <= f.high for f in found)
    what = f"{inside} of {len(found)} losses are inside their 90 % forecast interval" if found else ""
    figure = empty_figure(
        "Calibration of past forecasts", what, "Decision at the time of the forecast", title(study.metric)
    )
    if not found:
        return note(figure, "no forecast epoch has been measured yet")
    for name, hits, paint in (("inside", True, COLOURS[2]), ("outside", False, COLOURS[1])):
        part = [f for f in found if (f.low <= f.loss <= f.high) == hits]
        gaps = np.array([[f.decision, f.decision, np.nan] for f in part]).ravel()
        bars = np.array([[f.low, f.high, np.nan] for f in part]).ravel()
        line = {"color": faded(paint, 0.45), "width": 4}
        figure.add_scatter(x=gaps, y=bars, mode="lines", line=line, showlegend=False, hoverinfo="skip")
        figure.add_scatter(
            x=[f.decision for f in part], y=[f.loss for f in part], mode="markers", name=f"{name} the interval",
            marker={"color": paint, "size": 8, "symbol": "circle" if hits else "x"},
            text=[f"run {f.run}, epoch {f.epoch}, {f.ahead} ahead: forecast {f.median:.4g}, measured {f.loss:.4g}"
                  for f in part],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    values = np.array([[f.loss, f.median] for f in found])
    low, high = float(values.min()), float(values.max())
    extra = 0.35 * (high - low) or 0.1 * abs(high) or 1.0
    return figure.update_yaxes(range=[low - extra, high + extra])
