"""Pictures of one study: its curves and forecasts, how it went, what it decided and whether it was right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from freezethaw.errors import StudyError
from freezethaw.figures.course import NO_LOSS, goes_on, sign_of
from freezethaw.figures.of_model import progression
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
    label,
    note,
    thinned,
)
from freezethaw.losses import Forecast
from freezethaw.model.predictions import predict
from freezethaw.records import BasketEntry, Explanation, Run, Taken
from freezethaw.study import Study
from freezethaw.study.words import describe, percent

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
STARTED, THAWED, WENT_ON = COLOURS[0], COLOURS[1], COLOURS[4]
MOST_POINTS = 8000  # of the three-dimensional figure


def ranked(study: Study) -> list[Run]:
    """Runs with a loss, that with the best loss first."""
    sign = sign_of(study)
    return sorted((run for run in study.runs if run.losses), key=lambda run: min(sign * loss for loss in run.losses))


def curves(
    study: Study, runs: Sequence[int] | None = None, shown: int = 5, others: int = 200, forecasts: bool = True
) -> Figure:
    """Draw losses so far and their forecasts with 50 and 90 % bands: of `runs`, else of the best few and those at work.

    `others` more runs are drawn thinly. Without `forecasts` no model is asked.
    """
    what = "dots: losses; lines and bands: forecast median, 50 and 90 % intervals; grey: other runs"
    figure = empty_figure("Curves and forecasts", what, "Epoch", "Loss")
    order = ranked(study)
    if runs is None:
        busy = {decision.run for decision in study.pending}
        chosen = [run for run in order if run.number in busy][: shown // 2]
        chosen += [run for run in order if run not in chosen][: shown - len(chosen)]
        chosen.sort(key=order.index)
    else:
        chosen = [study.runs[number - 1] for number in runs if 1 <= number <= len(study.runs)]
    rest = [run for run in order if run not in chosen]
    _thin_curves(figure, [rest[i] for i in thinned(len(rest), others)] if rest else [])
    inner: list[Array] = []
    outer: list[Array] = []
    for place, run in enumerate(chosen if forecasts else ()):
        _forecast(figure, study, run, colour(place), inner, outer)
    for place, run in enumerate(chosen):
        y = np.array(run.losses)
        at = thinned(len(y), 100) if len(y) else np.empty(0, dtype=np.int64)
        inner.append(y)
        figure.add_scatter(
            x=at + 1, y=y[at], mode="lines+markers", name=f"run {run.number}", marker={"size": 6},
            line={"color": colour(place), "width": 1.5},
            hovertemplate=f"run {run.number}, epoch %{{x}}: %{{y:.5g}}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(range=[0.0, study.max_epochs * 1.02])
    seen = [y for y in inner if len(y)]
    if not seen:
        return note(figure, NO_LOSS)
    everything, sign = np.concatenate(seen), sign_of(study)
    # the first losses of a run may leave the view: what counts would be a thin line at its edge otherwise
    worst = float(sign * np.quantile(sign * everything, 0.93))
    low, high = sorted([float(sign * np.min(sign * everything)), worst])
    room = 0.25 * (high - low)
    low, high = max(low - room, min([low, *map(np.min, outer)])), min(high + room, max([high, *map(np.max, outer)]))
    margin = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
    return figure.update_yaxes(range=[low - margin, high + margin])


def _thin_curves(figure: Figure, rest: Sequence[Run]) -> None:
    """All in one trace, with a gap after each run."""
    x: list[float] = []
    y: list[float] = []
    for run in rest:
        at = thinned(run.epoch, 40)
        x += [*(at + 1.0), np.nan]
        y += [*(run.losses[i] for i in at), np.nan]
    if x:
        mode = "lines+markers" if len(x) < 2 * len(rest) + 40 else "lines"
        line, dot = {"color": faded(FAINT, 0.4), "width": 1}, {"size": 3, "color": faded(FAINT, 0.5)}
        figure.add_scatter(
            x=x, y=y, mode=mode, line=line, marker=dot, name="others", hoverinfo="skip", connectgaps=False
        )


def _forecast(figure: Figure, study: Study, run: Run, paint: str, inner: list[Array], outer: list[Array]) -> None:
    first, last = run.epoch + 1, study.max_epochs
    if first > last or run.state in ("diverged", "failed"):
        return
    epochs = np.unique(np.linspace(first, last, 30).round())
    try:
        bands = study.forecast(run.number, [float(e) for e in epochs]).quantile(QUANTILES)
    except StudyError:  # nothing to forecast from yet
        return
    name = f"run {run.number}"
    for (low, high), (_, opacity) in zip(((0, 4), (1, 3)), BANDS, strict=True):
        band(figure, epochs, bands[low], bands[high], faded(paint, opacity), name, showlegend=False)
    inner += [bands[1], bands[3]]
    outer += [bands[0], bands[4]]
    line = {"color": paint, "width": 2, "dash": "dot"}
    hover = f"{name}, epoch %{{x}}: %{{y:.5g}} forecast<extra></extra>"
    figure.add_scatter(
        x=epochs,
        y=bands[2],
        mode="lines",
        line=line,
        name=name,
        showlegend=False,
        hovertemplate=hover,
    )


def run_asymptotes(study: Study, most: int = 12) -> Figure:
    """Draw where runs would end, noise removed: medians with 50 and 90 % intervals, the most promising first."""
    what = "thick: 50 %, thin: 90 % of the posterior; the line is the best loss so far"
    figure = empty_figure("Asymptotes", what, f"Loss at epoch {study.max_epochs}", "")
    view = study.view
    numbers = [] if view is None else [n for n in view.places if study.runs[n - 1].state not in ("diverged", "failed")]
    if view is None or not numbers:
        return note(figure, NO_LOSS)
    places = np.array([view.places[n] for n in numbers], dtype=np.int64)
    bands = asymptotes_of(study, places).quantile(QUANTILES)
    order = np.argsort(sign_of(study) * bands[2])[:most][::-1]
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
    best = min((sign_of(study) * loss for run in study.runs for loss in run.losses), default=None)
    if best is not None:
        figure.add_vline(x=sign_of(study) * best, line={"color": COLOURS[1], "width": 1.5, "dash": "dash"})
    return figure.update_yaxes(type="category")


def asymptotes_of(study: Study, places: Any, configs: Array | None = None) -> Forecast:
    """Noise-free losses at the last epoch: of curves by their place, then of configurations by their features."""
    view = study.view
    if view is None:
        raise StudyError(NO_LOSS)
    f = view.forecaster
    end = np.array([float(study.max_epochs)])
    columns = f.posteriors[0].curves.configs.shape[1]
    features = np.empty((0, columns)) if configs is None else configs
    looks = [predict(p, np.asarray(places, dtype=np.int64), features, end) for p in f.posteriors]
    weights = np.concatenate([w * o.weights[:, :, 0] for w, o in zip(f.weights, looks, strict=True)])
    means = np.concatenate([np.repeat(o.mean[None, :, 0], len(o.weights), axis=0) for o in looks])
    spreads = np.concatenate([o.deviations[:, :, 0] for o in looks])
    return Forecast(f.transform, weights, means, spreads, np.full_like(means, np.inf))


def p_min(study: Study, most: int = 15) -> Figure:
    """Draw the chance of each run to end lowest of all."""
    figure = empty_figure("Which run would end best", "the chance of each run to have the best asymptote", "", "Chance")
    found = sorted(study.p_min().items(), key=lambda item: -item[1])[:most]
    if not found:
        return note(figure, NO_LOSS)
    names, y = [f"run {run}" for run, _ in found], [chance for _, chance in found]
    told = [percent(chance) for chance in y]
    figure.add_bar(
        x=names, y=y, marker={"color": COLOURS[0]}, textposition="outside", cliponaxis=False, constraintext="none",
        text=[words if chance >= 0.01 else "" for words, chance in zip(told, y, strict=True)], textfont={"size": 12},
        customdata=told, hovertemplate="%{x}: %{customdata}<extra></extra>", showlegend=False,
    )  # fmt: skip
    figure.update_xaxes(type="category", showgrid=False)
    return figure.update_yaxes(tickformat=".0%", range=[0, 1.15 * max(y)])


def basket(study: Study, number: int | None = None) -> Figure:
    """Draw all that a decision compared, best first: the last one that compared anything unless a number is given."""
    figure = empty_figure("What the last decision compared", "", "Chance to beat the best", "")
    found = explained(study, number)
    if found is None:
        return note(figure, "no decision has compared anything yet")
    decision = found.decision
    heading = f"Decision {decision.number}: what it compared"
    figure.update_layout(
        meta={"title": heading, "subtitle": label(decision.reason, 300)},
        title={"text": f'{heading}<br><span style="font-size:13px">{label(decision.reason, 140)}</span>'},
    )
    entries = found.basket[:14][::-1]
    names = [_entry_name(entry, place, len(entries)) for place, entry in enumerate(entries)]
    chances = [entry.chance if np.isfinite(entry.chance) else 0.0 for entry in entries]
    paints = [COLOURS[1] if place == len(entries) - 1 else COLOURS[0] for place in range(len(entries))]
    told = [f"{label(describe(entry.config), 200)}<br>score {entry.score:.4g}" for entry in entries]
    figure.add_bar(
        x=chances, y=names, orientation="h", marker={"color": paints}, text=[percent(c) for c in chances],
        textposition="outside", cliponaxis=False, customdata=told, showlegend=False,
        hovertemplate="%{y}: %{text}<br>%{customdata}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(tickformat=".0%", range=[0, 1.2 * max([*chances, 0.01])])
    return figure.update_yaxes(type="category", showgrid=False)


def explained(study: Study, number: int | None = None) -> Explanation | None:
    """The basket of a decision, or of the last one that compared several."""
    if number is not None:
        return study.explain(number)
    last = len(study.history().decisions)
    for candidate in range(last, max(last - 50, 0), -1):
        try:
            found = study.explain(candidate)
        except StudyError:
            continue
        if len(found.basket) > 1:
            return found
    return None


def _entry_name(entry: BasketEntry, place: int, count: int) -> str:
    """Distinct names: plotly puts bars of one name onto each other."""
    if entry.run is not None:
        return f"run {entry.run}, epoch {entry.epoch} to {entry.to_epoch}"
    return f"{label(describe(entry.config), 26)} ({count - place})"


def timeline(study: Study, most: int = 400) -> Figure:
    """Draw the last decisions as bars, one row for each that were under way at the same time, that is, each worker."""
    what = "one row for each worker; a bar is a decision from its start to its end, with the number of its run"
    figure = empty_figure("Starts, freezes and thaws", what, "Epochs recorded in the study", "")
    decisions = study.history().decisions
    if not decisions:
        return note(figure, "no decision yet")
    on, now = goes_on(decisions), len(study.history().epochs)
    rows = _lanes(decisions)
    shown = decisions[-most:]
    kinds = {"started": STARTED, "thawed": THAWED, "went on, never frozen": WENT_ON}
    for name, paint in kinds.items():
        part = [d for d in shown if name == _kind(d, on)]
        starts = [d.began for d in part]
        ends = [max(now if d.ended is None else d.ended, d.began + 0.4) for d in part]
        told = [f"decision {d.decision.number}: {label(d.decision.reason, 160)}" for d in part]
        figure.add_bar(
            y=[f"worker {rows[d.decision.number] + 1}" for d in part], base=starts,
            x=[end - start for start, end in zip(starts, ends, strict=True)], orientation="h", name=name,
            marker={"color": paint, "line": {"color": "white", "width": 1}}, customdata=told,
            text=[str(d.decision.run) for d in part] if len(shown) <= 80 else None, textposition="inside",
            insidetextanchor="middle", textangle=0, hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    bad = [d for d in shown if d.outcome in ("diverged", "failed", "out_of_memory")]
    figure.add_scatter(
        x=[d.ended for d in bad], y=[f"worker {rows[d.decision.number] + 1}" for d in bad], mode="markers",
        marker={"symbol": "x", "size": 9, "color": INK}, name="diverged or failed", showlegend=bool(bad),
        text=[f"run {d.decision.run}: {d.outcome.replace('_', ' ')}" for d in bad],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    count = max(rows[d.decision.number] for d in shown) + 1
    names = [f"worker {row + 1}" for row in range(count)][::-1]
    figure.update_layout(barmode="overlay", bargap=0.3)
    room = max(3 - count, 0) / 2  # one worker alone is no thick block
    limits = [-0.5 - room, count - 0.5 + room]
    return figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=names, showgrid=False, range=limits
    )


def _kind(taken: Taken, on: set[int]) -> str:
    if taken.decision.number in on:
        return "went on, never frozen"
    return "started" if taken.decision.kind == "start" else "thawed"


def _lanes(decisions: Sequence[Taken]) -> dict[int, int]:
    """Rows, such that decisions under way at the same time are in different ones and a run that goes on stays."""
    free_from: list[float] = []
    of_run: dict[int, int] = {}
    rows = {}
    for taken in decisions:
        run, end = taken.decision.run, np.inf if taken.ended is None else max(taken.ended, taken.began)
        free = [row for row, since in enumerate(free_from) if since <= taken.began]
        row = of_run[run] if of_run.get(run) in free else free[0] if free else len(free_from)
        if row == len(free_from):
            free_from.append(0.0)
        free_from[row], of_run[run], rows[taken.decision.number] = end, row, row
    return rows


def forecast_calibration(study: Study, most: int = 30) -> Figure:
    """Draw 90 % intervals that were forecast, and the losses that came: nine in ten should lie inside."""
    found = study.past_forecasts(most)
    inside = sum(f.low <= f.loss <= f.high for f in found)
    what = f"{inside} of {len(found)} losses fell into the 90 % interval that had been forecast" if found else ""
    figure = empty_figure("Were past forecasts right?", what, "Decision at which the forecast was made", "Loss")
    if not found:
        return note(figure, "no forecast has come due yet")
    for name, hits, paint in (("inside", True, COLOURS[2]), ("outside", False, COLOURS[1])):
        part = [f for f in found if (f.low <= f.loss <= f.high) == hits]
        gaps = np.array([[f.decision, f.decision, np.nan] for f in part]).ravel()
        bars = np.array([[f.low, f.high, np.nan] for f in part]).ravel()
        line = {"color": faded(paint, 0.45), "width": 4}
        figure.add_scatter(x=gaps, y=bars, mode="lines", line=line, showlegend=False, hoverinfo="skip")
        figure.add_scatter(
            x=[f.decision for f in part], y=[f.loss for f in part], mode="markers", name=f"{name} the interval",
            marker={"color": paint, "size": 8, "symbol": "circle" if hits else "x"},
            text=[f"run {f.run}, epoch {f.epoch}, {f.ahead} ahead: forecast {f.median:.4g}, came {f.loss:.4g}"
                  for f in part],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    values = np.array([[f.loss, f.median] for f in found])
    low, high = float(values.min()), float(values.max())
    room = 0.35 * (high - low) or 0.1 * abs(high) or 1.0
    return figure.update_yaxes(range=[low - room, high + room])


def study_progression(study: Study, depth: bool = True) -> Figure:
    """Draw the paper's figure 4 of this study: every curve, coloured by when each epoch was trained."""
    runs = study.runs
    order = [(i, run, epoch) for i, (run, epoch) in enumerate(study.history().epochs, 1)]
    if len(order) > MOST_POINTS:  # the runs that were trained longest tell the story
        longest = sorted(runs, key=lambda run: (-run.epoch, run.number))
        room = np.cumsum([run.epoch for run in longest]) <= MOST_POINTS
        kept = {run.number for run, fits in zip(longest, room, strict=True) if fits}
        order = [entry for entry in order if entry[1] in kept]
    if not order:
        figure = empty_figure("The runs of the study", "", "Epoch of the run", "Loss")
        return note(figure, NO_LOSS)
    losses = [runs[run - 1].losses[epoch - 1] for _, run, epoch in order]
    times = [i for i, _, _ in order]
    highest = None if study.direction == "minimize" else float(np.max(losses))
    return progression([run for _, run, _ in order], losses, depth, highest=highest, times=times)
