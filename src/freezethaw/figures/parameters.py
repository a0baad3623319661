"""Figures of a study over its hyperparameters. Frozen runs are represented by their forecasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from freezethaw import plain
from freezethaw.errors import StudyError
from freezethaw.figures.history import no_loss
from freezethaw.figures.learning_curves import asymptotes_of, ranked
from freezethaw.figures.style import (
    BANDS,
    COLOURS,
    FAINT,
    INK,
    SOFT,
    Array,
    band,
    empty_figure,
    faded,
    label,
    log_ticks,
    note,
    of_study,
    thinned,
)
from freezethaw.records import Run, best_of
from freezethaw.space import Choice, Float, Int, Space
from freezethaw.study import StudyReader

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

GRID_POINTS = 25  # of a slice
MAX_MARKS = 12  # values of a choice that are written on its axis
SHADES = 9  # of lines; one trace per shade keeps figures with many runs small


@of_study
def slices(study: StudyReader, most: int = 6, columns: int | None = None) -> Figure:
    """Draw the asymptote along each hyperparameter through the best configuration, with runs as dots."""
    what = "line and band: asymptote along one hyperparameter, others as in the best run; dots: forecasts of runs"
    figure = empty_figure("Slices through the best configuration", what, "", "Asymptote")
    order, inference = ranked(study), study.inference
    if inference is None or not order:
        return note(figure, no_loss(study))
    best = study.recommended
    config = dict(order[0].config if best is None else best.config)
    names = [name for name in study.space.names if name in config][:most]
    if not names:
        return note(figure, "the space has no hyperparameter")
    columns = min(len(names), columns or (2 if len(names) == 4 else 3))
    rows = -(-len(names) // columns)
    style = figure.layout.yaxis.to_plotly_json() | {"title": None}
    titles = [label(name, 30) for name in names]
    figure.set_subplots(
        rows=rows, cols=columns, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04,
        vertical_spacing=min(0.2, 0.5 / rows),
    )  # fmt: skip
    figure.update_xaxes(**style).update_yaxes(**style)
    figure.update_yaxes(title={"text": "Asymptote", "standoff": 8}, col=1)
    runs = [r for r in order[:300] if r.number in inference.places and r.state not in ("diverged", "failed")]
    ends = np.empty(0)
    if runs:
        ends = asymptotes_of(study, [inference.places[run.number] for run in runs]).quantile(0.5)
    seen = [ends]
    for place, name in enumerate(names):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        parameter = study.space.parameters[name]
        values = _values(parameter)
        moved = [_with_value(study.space, config, name, value) for value in values]
        bands = asymptotes_of(study, [], study.features(moved)).quantile((0.05, 0.25, 0.5, 0.75, 0.95))
        seen.append(bands[2])
        dots = [(run.config[name], float(end)) for run, end in zip(runs, ends, strict=True) if name in run.config]
        _slice(figure, parameter, values, bands, dots, at)
    low, high = min(map(np.min, (s for s in seen if len(s)))), max(map(np.max, (s for s in seen if len(s))))
    extra = 0.3 * (high - low) or 0.1 * abs(high) or 1.0
    figure.update_yaxes(range=[low - extra, high + extra])
    figure.update_annotations(font={"size": 14, "color": SOFT})
    return figure.update_layout(margin={"t": 104, "b": 60}, showlegend=False)


def _slice(
    figure: Figure, parameter: Any, values: list[Any], bands: Array, dots: list[tuple[Any, float]], at: dict[str, int]
) -> None:
    number = isinstance(parameter, Float | Int)
    x: Any = np.array(values, dtype=float) if number else [label(value, 20) for value in values]
    if number:
        for (low, high), (_, opacity) in zip(((0, 4), (1, 3)), BANDS, strict=True):
            band(figure, x, bands[low], bands[high], faded(COLOURS[0], opacity), "band", **at)
        line = {"color": COLOURS[0], "width": 2}
        figure.add_scatter(x=x, y=bands[2], mode="lines", line=line, name="asymptote", **at)
        if parameter.log:
            figure.update_xaxes(type="log", **log_ticks(parameter.low, parameter.high), **at)
    else:
        error = {"array": bands[4] - bands[2], "arrayminus": bands[2] - bands[0], "color": faded(COLOURS[0], 0.6)}
        mark = {"color": COLOURS[0], "size": 11, "symbol": "diamond"}
        figure.add_scatter(
            x=x, y=bands[2], error_y=error | {"symmetric": False}, mode="markers", marker=mark, name="asymptote", **at
        )
        figure.update_xaxes(type="category", **at)
    at_x = [value if number else label(value, 20) for value, _ in dots]
    mark = {"color": faded(INK, 0.55), "size": 5}
    figure.add_scatter(x=at_x, y=[end for _, end in dots], mode="markers", marker=mark, name="runs", **at)


def _values(parameter: Any) -> list[Any]:
    """Values along a parameter: all values of a choice, a grid for a number."""
    if isinstance(parameter, Choice):
        return list(parameter.values)
    return list(dict.fromkeys(parameter.value(float(unit)) for unit in np.linspace(0.0, 1.0, GRID_POINTS)))


def _with_value(space: Space, config: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The configuration with one value changed; parameters that become active get the middle of their range."""
    units = np.array([space.parameters[n].unit(config[n]) if n in config else 0.5 for n in space.names])
    units[list(space.names).index(name)] = space.parameters[name].unit(value)
    return dict(space.config(units))


@of_study
def importance(study: StudyReader) -> Figure:
    """Draw the share of the variance of the asymptote that each hyperparameter explains alone."""
    what = "first-order share of the variance of the forecast asymptote; lines: 80 % intervals"
    figure = empty_figure("Hyperparameter importance", what, "Share", "")
    inference = study.inference
    if inference is None or not len(study.space):
        return note(figure, no_loss(study) if inference is None else "the space has no hyperparameter")
    draws = study.importance_draws
    assert draws is not None  # noqa: S101 - there is a loss and a hyperparameter
    order = np.argsort(draws.mean)
    mean, low, high = (q[order] for q in (draws.mean, draws.quantile(0.1), draws.quantile(0.9)))
    figure.add_bar(
        x=mean, y=[label(study.space.names[i], 30) for i in order], orientation="h", showlegend=False,
        marker={"color": faded(COLOURS[0], 0.75)},
        error_x={"array": np.maximum(high - mean, 0.0), "arrayminus": np.maximum(mean - low, 0.0), "symmetric": False,
                 "color": SOFT, "thickness": 1.5, "width": 5},
        customdata=[f"{plain.percent(m)}, 80 % interval {plain.percent(a)} to {plain.percent(b)}"
                    for m, a, b in zip(mean, low, high, strict=True)],
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(tickformat=".0%", range=[0, 1.06 * max([*high, *mean, 0.01])])
    texts = [f"{label(study.space.names[i], 30)} {plain.percent(m)}" for i, m in zip(order, mean, strict=True)]
    return figure.update_yaxes(type="category", showgrid=False, tickvals=np.arange(len(order)), ticktext=texts)


@of_study
def parallel_coordinates(study: StudyReader, most: int = 300) -> Figure:
    """Draw one line per run across its hyperparameters and its best loss; better runs are darker."""
    figure = empty_figure(f"Configurations and their {study.metric}", "one line per run; orange: the best", "", "")
    figure.update_xaxes(showgrid=False, showline=False, ticks="").update_yaxes(visible=False, range=[-0.12, 1.06])
    order = ranked(study)
    if not order or not len(study.space):
        return note(figure, no_loss(study) if not order else "the space has no hyperparameter")
    runs = [order[i] for i in thinned(len(order), most)]
    sign = study.sign
    names = list(study.space.names)
    lowest = np.array([best_of(run, sign)[0] for run in runs])
    rank = np.linspace(0.0, 1.0, len(runs))
    span = float(lowest.max() - lowest.min()) or 1.0
    heights = np.array([[_height(study.space.parameters[n], run.config, n) for n in names] for run in runs])
    heights = np.column_stack([heights, 1.0 - (lowest - lowest.min()) / span])
    x = np.arange(len(names) + 1.0)
    for shade in reversed(range(SHADES)):
        part = [i for i in range(1, len(runs)) if int(min(rank[i] * SHADES, SHADES - 1)) == shade]
        if not part:
            continue
        y = np.column_stack([heights[part], np.full(len(part), np.nan)]).ravel()
        line = {"color": faded(COLOURS[0], 0.75 - 0.07 * shade), "width": 1}
        figure.add_scatter(
            x=np.tile([*x, np.nan], len(part)), y=y, mode="lines", line=line, showlegend=False, hoverinfo="skip"
        )
    figure.add_scatter(  # what a page brushes: every value of every run, and a line for the selected runs
        x=np.tile(x, len(runs)), y=heights.ravel(), mode="markers", marker={"size": 7, "color": faded(FAINT, 0.0)},
        customdata=np.repeat([run.number for run in runs], len(x)), name="values", showlegend=False,
        text=[_tooltip(run, name) for run in runs for name in [*names, ""]], meta={"brush": len(x)},
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    _best_line(figure, runs[0].number, x, heights[0])
    for place, name in enumerate([*names, f"best {study.metric}"]):
        figure.add_vline(x=place, line={"color": FAINT, "width": 1}, layer="below")
        marks = _axis_marks(study.space.parameters[name]) if place < len(names) else [
            (0.0, f"{sign * lowest.max():.4g}", "top"), (1.0, f"{sign * lowest.min():.4g}", "bottom")]  # fmt: skip
        for y_at, text, anchor in marks:
            figure.add_annotation(
                x=place, y=y_at, text=label(text, 14), showarrow=False, yanchor=anchor, font={"size": 11, "color": SOFT}
            )
    figure.update_xaxes(
        tickvals=x,
        ticktext=[label(name, 18) for name in [*names, f"best {study.metric}"]],
        range=[-0.25, len(names) + 0.25],
    )
    return figure


def _tooltip(run: Run, name: str) -> str:
    if not name:
        return f"run {run.number}"
    value = run.config.get(name, "–")
    return (
        f"run {run.number}, {label(name, 30)}: {label(plain.number(value) if isinstance(value, float) else value, 30)}"
    )


@of_study
def parameter_map(study: StudyReader, x: str | None = None, y: str | None = None) -> Figure:
    """Draw the expected asymptote over two hyperparameters, the others as in the best configuration.

    By default over the two most important ones.
    """
    figure = empty_figure("Two hyperparameters", "", "", "")
    inference, best = study.inference, study.recommended
    if inference is None or best is None:
        return note(figure, no_loss(study))
    for name in (x, y):
        if name is not None and name not in study.space.parameters:
            raise StudyError(f"there is no parameter {name!r}; there are {', '.join(study.space.names)}")
    shares = study.importance()
    active = [name for name in study.space.names if name in best.config]
    ranking = [n for n in sorted(active, key=lambda name: -shares.get(name, 0.0)) if n not in (x, y)]
    chosen = [x or (ranking.pop(0) if ranking else None), y or (ranking.pop(0) if ranking else None)]
    if None in chosen or chosen[0] == chosen[1]:
        return note(figure, "a map needs two different hyperparameters: none is drawn yet")
    across, up = (str(name) for name in chosen)
    grids = [_values(study.space.parameters[name])[:GRID_POINTS] for name in (across, up)]
    config = dict(best.config)
    moved = [
        _with_value(study.space, _with_value(study.space, config, across, a), up, b) for b in grids[1] for a in grids[0]
    ]
    ends = asymptotes_of(study, [], study.features(moved)).quantile(0.5).reshape(len(grids[1]), len(grids[0]))
    figure.update_layout(
        meta={
            "title": f"{label(across, 30)} and {label(up, 30)}",
            "subtitle": f"colour: expected {label(study.metric)} at epoch {study.max_epochs}, other values as in "
            f"run {best.run}; dots: runs, orange: run {best.run}",
        }
    )
    axes = [_map_axis(study.space.parameters[name], grid) for name, grid in zip((across, up), grids, strict=True)]
    figure.add_heatmap(
        x=axes[0], y=axes[1], z=ends, colorscale="Viridis", reversescale=study.sign > 0, zsmooth=False,
        colorbar={"thickness": 12, "outlinewidth": 0, "exponentformat": "power"},
        hovertemplate=f"{label(across, 30)} %{{x}}, {label(up, 30)} %{{y}}: %{{z:.4g}}<extra></extra>",
    )  # fmt: skip
    runs = [run for run in ranked(study)[:300] if across in run.config and up in run.config]
    places = [[_on_axis(study.space.parameters[n], run.config[n]) for run in runs] for n in (across, up)]
    figure.add_scatter(
        x=places[0], y=places[1], mode="markers", showlegend=False, name="runs",
        text=[f"run {run.number}: best {min(run.losses, key=lambda loss: study.sign * loss):.5g}" for run in runs],
        hovertemplate="%{text}<extra></extra>",
        marker={"size": [11 if run.number == best.run else 6 for run in runs], "line": {"color": "white", "width": 1},
                "color": [COLOURS[1] if run.number == best.run else INK for run in runs]},
    )  # fmt: skip
    for name, update in ((across, figure.update_xaxes), (up, figure.update_yaxes)):
        parameter = study.space.parameters[name]
        kind, ticks = "category", dict[str, Any]()
        if not isinstance(parameter, Choice):
            kind, ticks = ("log", log_ticks(parameter.low, parameter.high)) if parameter.log else ("linear", ticks)
        update(type=kind, **ticks, title={"text": label(name, 30)}, showgrid=False)
    return figure


def _map_axis(parameter: Any, values: list[Any]) -> list[Any]:
    return [_on_axis(parameter, value) for value in values]


def _on_axis(parameter: Any, value: Any) -> Any:
    return label(value, 20) if isinstance(parameter, Choice) else value


def _best_line(figure: Figure, run: int, x: Array, y: Array) -> None:
    line = {"color": COLOURS[1], "width": 3}
    figure.add_scatter(
        x=x, y=y, mode="lines+markers", line=line, marker={"size": 7}, showlegend=False, name=f"run {run}",
        hovertemplate=f"run {run}, the best<extra></extra>",
    )  # fmt: skip


def _height(parameter: Any, config: Any, name: str) -> float:
    """The position of a value on its axis; below the axis if the parameter is inactive."""
    return float(np.clip(parameter.unit(config[name]), 0.0, 1.0)) if name in config else -0.08


def _axis_marks(parameter: Any) -> list[tuple[float, str, str]]:
    """Position, text and anchor of each label of an axis: the ends of a number, the values of a choice."""
    if isinstance(parameter, Choice):
        return [(parameter.unit(value), str(value), "bottom") for value in parameter.values[:MAX_MARKS]]
    return [(0.0, f"{parameter.low:.4g}", "top"), (1.0, f"{parameter.high:.4g}", "bottom")]
