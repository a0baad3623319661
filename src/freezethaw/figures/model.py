"""Figures of the model, as in the paper: priors, forecasts, asymptotes, comparisons of methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from freezethaw.errors import FigureError
from freezethaw.figures.style import (
    BANDS,
    COLOURS,
    FAINT,
    GRID,
    INK,
    SOFT,
    band,
    bands,
    colour,
    empty_figure,
    faded,
    run_marker,
    run_name,
)
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.kernels import exponential_decay, ornstein_uhlenbeck
from freezethaw.model.loss_units import Observations

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Array = NDArray[np.float64]

PANELS_BEYOND = 3  # more runs than this get one panel each
FEW = 8  # fewer runs or epochs than this get a tick each
OUTER_MARGIN = 0.5  # largest extension of the axis for 90 % bands, relative to the range of all else


@dataclass(frozen=True)
class Axis:
    """The axis of a hyperparameter: its name, and its values at positions in the unit cube."""

    name: str = "Hyperparameter (position in the unit cube)"
    values: Callable[[Array], Array] | None = None  # from the unit cube to the user's units; None: identity
    log: bool = False

    def at(self, cube: Array) -> Array:
        """The values at these positions."""
        return cube if self.values is None else np.asarray(self.values(cube), dtype=np.float64)


def kernel_basis(alpha: float = 1.0, beta: float = 0.5, count: int = 14, horizon: float = 6.0, seed: int = 0) -> Figure:
    """Draw the paper's figure 1a: exponentials e^(-lambda t) with rates from the gamma mixing measure, and their mean.

    The mean over the mixing measure, (beta / (t + beta))^alpha, is the basis function called *drop* in the model.
    """
    t = np.linspace(0.0, horizon, 201)
    rates = np.sort(np.random.default_rng(seed).gamma(alpha, 1.0 / beta, count))
    figure = empty_figure(
        "Exponentials that the kernel mixes",
        f"rates λ drawn from a gamma distribution with α = {alpha:g}, β = {beta:g}",
        "Time t",
        "e<sup>−λt</sup>",
    )
    for k, rate in enumerate(rates):
        line = {"color": COLOURS[0], "width": 1.2, "simplify": False}
        figure.add_scatter(
            x=t, y=np.exp(-rate * t), mode="lines", line=line, opacity=0.55, name="one exponential",
            legendgroup="basis", showlegend=k == 0, hovertemplate=f"λ = {rate:.3g}<extra></extra>",
        )  # fmt: skip
    mean, line = (beta / (t + beta)) ** alpha, {"color": COLOURS[1], "width": 3, "simplify": False}
    figure.add_scatter(x=t, y=mean, mode="lines", line=line, name="their mean, the drop")
    figure.update_yaxes(range=[-0.03, 1.05])
    return figure


def prior_draws(alpha: float = 1.0, beta: float = 0.5, count: int = 8, horizon: float = 6.0, seed: int = 1) -> Figure:
    """Draw the paper's figure 1b: draws from a Gaussian process with the exponential-decay kernel."""
    t = np.linspace(0.0, horizon, 201)
    K = exponential_decay(t, t, alpha, beta)
    draws = _gaussian(K, count, np.random.default_rng(seed))
    figure = empty_figure(
        "Draws from the exponential-decay kernel",
        f"β<sup>α</sup> / (t + t′ + β)<sup>α</sup> with α = {alpha:g}, β = {beta:g}",
        "Time t",
        "Value",
    )
    sigma = 2 * np.sqrt(np.diag(K))
    band(figure, t, -sigma, sigma, faded(FAINT, 0.16), "two standard deviations")
    _draw_curves(figure, t, draws)
    return figure


def realistic_draws(
    alpha: float = 2.0,
    beta: float = 4.0,
    count: int = 6,
    horizon: float = 30.0,
    wander: float = 0.002,
    wander_length: float = 2.0,
    asymptote: float = 0.4,
    seed: int = 354,
) -> Figure:
    """Draw the paper's figure 1c: draws that resemble learning curves, each with its asymptote.

    A curve is its asymptote (half normal, of scale `asymptote`), a draw from the exponential-decay kernel, and an
    Ornstein-Uhlenbeck process of variance `wander`. The sum of the latter two is conditioned exactly on a positive
    start: at t = 0 it is half normal, and the rest is drawn given that value. No draw is rejected.
    """
    rng = np.random.default_rng(seed)
    t = np.linspace(0.0, horizon, 301)
    K = exponential_decay(t, t, alpha, beta) + wander * ornstein_uhlenbeck(t, t, wander_length)
    fall = _gaussian(K, count, rng)
    start = np.abs(np.sqrt(K[0, 0]) * rng.standard_normal(count))
    # Matheron's rule: draw + k(t, 0) / k(0, 0) (start - draw at 0) is a draw given the start
    fall += (start - fall[:, 0])[:, None] * K[0] / K[0, 0]
    ends = np.abs(asymptote * rng.standard_normal(count))
    figure = empty_figure(
        "Draws that resemble learning curves",
        "an asymptote, a decaying draw with a positive start, Ornstein–Uhlenbeck noise",
        "Time t",
        "Loss in model units",
    )
    _draw_curves(figure, t, ends[:, None] + fall)
    for k, end in enumerate(ends):
        figure.add_scatter(
            x=[horizon * 1.03], y=[end], mode="markers", showlegend=k == 0, name="asymptote", legendgroup="end",
            marker={"color": colour(k), "symbol": "diamond", "size": 10}, hoverinfo="y",
        )  # fmt: skip
    return figure


def curves_with_forecasts(
    forecaster: Forecaster | None,
    observations: Observations,
    runs: Sequence[int] | None = None,
    later: Sequence[Sequence[float]] | None = None,
    panels: bool | None = None,
    title: str = "Learning curves and forecasts",
    loss: str = "Loss",
) -> Figure:
    """Draw the paper's figure 2b: the losses of each run and the forecast up to the horizon, in the user's units.

    `runs` selects runs by index. `later` has, for each selected run, losses measured after those given to the model;
    they are drawn as circles. Without a forecaster only the losses are drawn. By default many runs get one panel each.
    Losses and 50 % bands determine the scale, so wide 90 % bands may be cut off.
    """
    chosen = list(range(len(observations.losses))) if runs is None else list(runs)
    split = len(chosen) > PANELS_BEYOND if panels is None else panels and len(chosen) > 1
    what = "dots: losses" + ("; line and bands: forecast mean, 50 and 90 % intervals" if forecaster else "")
    figure = empty_figure(title, what + ("; circles: later losses" if later else ""), "Epoch", loss)
    columns = min(len(chosen), 4 if len(chosen) > 6 else 3)
    if split:
        _panels(figure, [run_name(run) for run in chosen], columns, loss)
    for index, run in enumerate(chosen):
        at = {"row": index // columns + 1, "col": index % columns + 1} if split else {}
        named = len(chosen) > 1 and not split
        if forecaster is not None:
            _forecast(figure, forecaster, observations, run, at)
        _losses(figure, observations, run, at, named)
        if later is not None and len(later[index]):
            _later(figure, observations, run, later[index], at)
    figure.update_xaxes(range=[0.0, observations.horizon * 1.02])
    _set_loss_range(figure)
    return figure


def asymptotes(
    forecaster: Forecaster,
    observations: Observations,
    column: int = 0,
    config: Array | None = None,
    axis: Axis | None = None,
    title: str = "Asymptotes",
    loss: str = "Loss",
    points: int = 121,
) -> Figure:
    """Draw the paper's figure 2c: the asymptote over one hyperparameter and that of each run, in the run's colour.

    With several hyperparameters the line is a slice through `config`, by default the middle of the cube; runs are drawn
    at their own configurations. An asymptote is the noise-free loss at the model's horizon.
    """
    axis = axis or Axis()
    dimensions = observations.configs.shape[1]
    grid = np.linspace(0.0, 1.0, points)
    slice_ = np.tile(np.full(dimensions, 0.5) if config is None else np.asarray(config, np.float64), (points, 1))
    slice_[:, column] = grid
    end = forecaster.posterior.specification.horizon
    over = forecaster.points([(x, end) for x in slice_], noise=False)
    through = "" if dimensions == 1 else "; the line is a slice"
    what = "dots and bars: runs with 90 % intervals" + through
    figure = empty_figure(title, what, axis.name, f"{loss} at the asymptote")
    x = axis.at(grid)
    bands(figure, x, over, FAINT)
    figure.add_scatter(x=x, y=over.mean, mode="lines", line={"color": INK, "width": 2, "simplify": False}, name="mean")
    for run in range(len(observations.configs)):
        own = forecaster.points([(run, end)], noise=False)
        centre, (low, high) = float(own.mean[0]), (float(q) for q in own.quantile([0.05, 0.95])[:, 0])
        bar = {"array": [high - centre], "arrayminus": [centre - low], "symmetric": False, "width": 5, "thickness": 2}
        figure.add_scatter(
            x=axis.at(observations.configs[run : run + 1, column]), y=[centre], error_y=bar, mode="markers",
            marker=run_marker(run, 10), name=run_name(run), showlegend=False,
            hovertemplate=f"{run_name(run)}: %{{y:.4g}}<extra></extra>",
        )  # fmt: skip
    if axis.log:
        figure.update_xaxes(type="log", dtick=1 if x.max() >= 100 * x.min() else None)
    return figure


def lowest_losses(
    methods: Mapping[str, Array], title: str = "Lowest loss against epochs", loss: str = "Loss", skip: float = 0.05
) -> Figure:
    """Draw the paper's figure 3: for each method the lowest loss after each epoch, averaged over studies.

    Each method is an array (studies, epochs). Bands are one standard error of the mean. The first share `skip` of the
    epochs does not affect the range of the axis.
    """
    several = any(len(curves) > 1 for curves in methods.values())
    what = "mean over studies, with its standard error" if several else "one study each"
    figure = empty_figure(title, what, "Epochs trained, all runs", loss)
    lows, highs = [], []
    for number, (name, curves) in enumerate(methods.items()):
        known = np.isfinite(curves).all(axis=0)
        x, y = np.arange(1.0, curves.shape[1] + 1.0)[known], curves[:, known]
        mean, error = y.mean(axis=0), y.std(axis=0, ddof=min(1, len(y) - 1)) / np.sqrt(len(y))
        if several:
            fill = faded(colour(number), 0.16)
            band(figure, x, mean - error, mean + error, fill, name, legendgroup=name, showlegend=False)
        line = {"color": colour(number), "width": 2.5, "simplify": False}
        figure.add_scatter(x=x, y=mean, mode="lines", line=line, name=name, legendgroup=name)
        later = x > skip * curves.shape[1]
        lows += [np.min((mean - error)[later], initial=np.inf)]
        highs += [np.max((mean + error)[later], initial=-np.inf)]
    if np.isfinite(lows).any():
        low, high = min(lows), max(highs)
        margin = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
        figure.update_yaxes(range=[low - margin, high + margin])
    return figure


def progression(
    order: Sequence[int] | NDArray[np.int64],
    losses: Sequence[float] | Array,
    depth: bool = False,
    title: str = "Runs of a study, by time of training",
    loss: str = "Loss",
    highest: float | None = None,
    times: Sequence[int] | None = None,
) -> Figure:
    """Draw the paper's figure 4: the learning curves of all runs, coloured by the time of training.

    `order` has the run of each epoch of the study, numbered by their start; `losses` has the loss. With `depth` the
    figure is three-dimensional, with one row per run; without, it is its projection. Losses above `highest`, by default
    the 95 % quantile, are cut off. `times` has the epoch of the study of each entry if only some are drawn.
    """
    runs, y = np.asarray(order), np.asarray(losses, dtype=np.float64)
    finite = y[np.isfinite(y)]
    if not len(finite):
        raise FigureError("there is no finite loss to draw")
    top = float(np.quantile(finite, 0.95)) if highest is None else highest
    figure = empty_figure(title, "colour: time of training, in epochs of the study", "Epoch of the run", loss)
    parts = [np.flatnonzero(runs == run) for run in range(1, int(runs.max()) + 1)]
    moments = np.arange(1.0, len(runs) + 1.0) if times is None else np.asarray(times, dtype=np.float64)
    epoch, run, height, when = (np.empty(0),) * 4
    for number, part in enumerate(parts, 1):  # one trace, with a gap after each run
        gap = np.array([np.nan])
        epoch = np.concatenate([epoch, np.arange(1.0, len(part) + 1.0), gap])
        run = np.concatenate([run, np.full(len(part), float(number)), gap])
        height = np.concatenate([height, np.where(y[part] <= top, y[part], np.nan), gap])
        when = np.concatenate([when, moments[part], gap])
    bar = {"title": {"text": "Epoch of<br>the study"}, "thickness": 14, "outlinewidth": 0}
    colours = {"color": when, "colorscale": "Viridis", "cmin": 1, "cmax": moments.max(), "colorbar": bar}
    hover = "run %{customdata[0]}, its epoch %{customdata[1]}: " + loss.lower() + " %{customdata[2]:.4g}<extra></extra>"
    rest = {"customdata": np.stack([run, epoch, height], axis=1), "hovertemplate": hover, "showlegend": False}
    if not depth:
        faint = {"color": faded(FAINT, 0.5), "width": 1, "simplify": False}
        figure.add_scatter(x=epoch, y=height, mode="lines", line=faint, hoverinfo="skip", showlegend=False)
        figure.add_scatter(x=epoch, y=height, mode="markers", marker={"size": 5, **colours}, **rest)
        return figure
    marker = {"size": 2.5, **(colours | {"showscale": False})}
    line = {"width": 5, **colours}
    figure.add_scatter3d(x=run, y=epoch, z=height, mode="lines+markers", line=line, marker=marker, **rest)
    axis = {"gridcolor": GRID, "backgroundcolor": "white", "tickfont": {"size": 12}}
    titles = {"x": "Run, in order of start", "y": "Epoch of the run", "z": loss}
    scene: dict[str, dict[str, Any]] = {f"{n}axis": axis | {"title": {"text": text}} for n, text in titles.items()}
    for name, counted in (("x", run), ("y", epoch)):
        if np.nanmax(counted) < FEW:
            scene[f"{name}axis"]["dtick"] = 1  # integers only
    camera = {"eye": {"x": -1.45, "y": -1.45, "z": 0.8}, "center": {"x": 0.1, "y": 0.1, "z": -0.22}}
    figure.update_layout(scene=scene | {"camera": camera, "aspectratio": {"x": 1.3, "y": 1.0, "z": 0.8}})
    figure.update_layout(margin={"l": 10, "r": 10, "b": 10})
    return figure


def calibration(histograms: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the share of losses in each tenth of their forecast distribution; 0.1 is perfect calibration."""
    figure = empty_figure(
        "Calibration of forecasts",
        "share of losses in each tenth of the forecast distribution; grey: perfect calibration",
        "Tenth of the forecast distribution, lowest losses first",
        "Share",
    )
    for number, (name, shares) in enumerate(histograms.items()):
        tenths = np.arange(1, len(shares) + 1)
        figure.add_bar(x=tenths, y=list(shares), name=name, marker={"color": colour(number)})
    figure.add_hline(y=1 / max((len(s) for s in histograms.values()), default=1), line={"color": FAINT, "width": 2})
    figure.update_xaxes(dtick=1)
    figure.update_layout(bargap=0.25)
    return figure


def _gaussian(K: Array, count: int, rng: np.random.Generator) -> Array:
    """(count, T) draws, by eigendecomposition: smooth kernels are numerically singular."""
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(rng.standard_normal((count, len(K))) @ root.T)


def _draw_curves(figure: Figure, t: Array, draws: Array) -> None:
    for k, draw in enumerate(draws):
        line = {"color": colour(k), "width": 2, "simplify": False}
        figure.add_scatter(x=t, y=draw, mode="lines", line=line, showlegend=False, name=f"draw {k + 1}")


def _epochs_seen(observations: Observations, run: int) -> Array:
    if observations.epochs is not None:
        return np.array(observations.epochs[run], dtype=np.float64)
    return np.arange(1.0, len(observations.losses[run]) + 1.0)


def _forecast(figure: Figure, forecaster: Forecaster, observations: Observations, run: int, at: dict[str, int]) -> None:
    """Mean and bands of later losses, if the run has not reached the horizon."""
    seen = _epochs_seen(observations, run)
    first = float(seen[-1]) + 1.0 if len(seen) else 1.0
    if first > observations.horizon:
        return
    epochs = np.unique(np.round(np.linspace(first, observations.horizon, 100)))
    forecast = forecaster.run(run, [float(e) for e in epochs])
    bands(figure, epochs, forecast, colour(run), f"{run_name(run)}: ", showlegend=False, **at)
    line, name = {"color": colour(run), "width": 2, "simplify": False}, f"{run_name(run)}: forecast"
    figure.add_scatter(x=epochs, y=forecast.mean, mode="lines", line=line, name=name, showlegend=False, **at)


def _losses(figure: Figure, observations: Observations, run: int, at: dict[str, int], legend: bool) -> None:
    """Losses as dots, joined by a thin line."""
    x, y = _epochs_seen(observations, run), np.array(observations.losses[run])
    figure.add_scatter(
        x=x, y=y, mode="lines+markers", line={"color": colour(run), "width": 1}, marker=run_marker(run, 6),
        name=run_name(run), showlegend=legend, **at,
    )  # fmt: skip


def _later(figure: Figure, observations: Observations, run: int, losses: Sequence[float], at: dict[str, int]) -> None:
    """Later losses as circles."""
    seen = _epochs_seen(observations, run)
    x = (seen[-1] if len(seen) else 0.0) + np.arange(1.0, len(losses) + 1.0)
    marker = {"color": "rgba(255,255,255,0.6)", "size": 4, "line": {"color": INK, "width": 1}}
    y, name = np.array(losses), f"{run_name(run)}: later"
    figure.add_scatter(x=x, y=y, mode="markers", marker=marker, name=name, showlegend=False, **at)


def _panels(figure: Figure, names: Sequence[str], columns: int, loss: str) -> None:
    """One panel per run, with shared axes and outer labels only."""
    rows = -(-len(names) // columns)
    style = figure.layout.xaxis.to_plotly_json() | {"title": None}
    filled = np.arange(rows * columns).reshape(rows, columns) < len(names)
    figure.set_subplots(
        rows=rows, cols=columns, specs=[[{} if there else None for there in row] for row in filled],
        shared_xaxes="all", shared_yaxes="all", subplot_titles=list(names),
        horizontal_spacing=0.025, vertical_spacing=min(0.09, 0.3 / rows),
    )  # fmt: skip
    figure.update_xaxes(**style)
    figure.update_yaxes(**style)
    for c in range(columns):  # the bottom panel of each column
        lowest = int(filled[:, c].sum())
        figure.update_xaxes(title={"text": "Epoch", "standoff": 8}, showticklabels=True, row=lowest, col=c + 1)
    figure.update_yaxes(title={"text": loss, "standoff": 10}, col=1)
    figure.update_annotations(font={"size": 14, "color": SOFT})
    figure.update_layout(margin={"t": 104, "b": 60})


def _set_loss_range(figure: Figure) -> None:
    """Limits of the loss axis: all dots, means and 50 % bands, and 90 % bands up to a margin."""
    outer = [t.y for t in figure.data if t.meta == BANDS[0][0]]
    inner = [t.y for t in figure.data if t.meta != BANDS[0][0] and len(t.y)]
    if not inner:
        figure.add_annotation(text="no loss yet", x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
        return
    lowest, highest = min(map(np.min, inner)), max(map(np.max, inner))
    extra = OUTER_MARGIN * (highest - lowest)
    low = max(lowest - extra, min([lowest, *map(np.min, outer)]))
    high = min(highest + extra, max([highest, *map(np.max, outer)]))
    margin = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
    figure.update_yaxes(range=[low - margin, high + margin])
