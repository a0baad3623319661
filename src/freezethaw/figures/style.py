"""The common style of all figures. plotly is imported here, on first use."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np
from numpy.typing import NDArray

from freezethaw.errors import FigureError
from freezethaw.losses import Forecast
from freezethaw.study import Study, StudyReader, read

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Array = NDArray[np.float64]
P = ParamSpec("P")

# Okabe and Ito (2008) without yellow, plus Tol's wine: distinguishable for colour-blind readers
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#4D4D4D")
SYMBOLS = ("circle", "square", "diamond", "triangle-up")  # used in turn once all colours are used
INK, SOFT, FAINT, GRID = "#1F2933", "#52606D", "#7B8794", "#E4E7EB"  # text, secondary text, axes and bands, grid
FONT = "Inter, Helvetica, Arial, Liberation Sans, sans-serif"
BANDS = ((0.90, 0.14), (0.50, 0.26))  # probability and opacity, widest first


def graph_objects() -> Any:
    """The module plotly.graph_objects; raises FigureError if plotly is not installed."""
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise FigureError("figures need plotly: pip install 'freezethaw[figures]'") from None
    return go


def of_study(draw: Callable[Concatenate[StudyReader, P], Any]) -> Callable[Concatenate[Study | StudyReader, P], Any]:
    """A figure of a study, which may be given as a `Study` too."""

    @wraps(draw)
    def drawn(study: Study | StudyReader, /, *args: P.args, **options: P.kwargs) -> Any:
        return draw(read(study), *args, **options)

    return drawn


def empty_figure(title: str, subtitle: str, x: str, y: str) -> Figure:
    """An empty figure in the common style."""
    axis = {
        "showgrid": True, "gridcolor": GRID, "zeroline": False, "showline": True, "linecolor": FAINT,
        "ticks": "outside", "tickcolor": FAINT, "ticklen": 4, "tickfont": {"size": 13}, "automargin": True,
        "exponentformat": "power",
    }  # fmt: skip
    heading = f'{title}<br><span style="font-size:13px;color:{SOFT}">{subtitle}</span>'
    layout = {
        "template": "none",
        "meta": {"title": title, "subtitle": subtitle},  # for pages that have their own headings
        "font": {"family": FONT, "size": 15, "color": INK},
        "title": {"text": heading, "font": {"size": 20}, "x": 0.0, "xref": "paper", "y": 1.0, "yref": "container",
                  "yanchor": "top", "pad": {"t": 36}},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 76, "r": 24, "t": 84, "b": 92},
        "legend": {"orientation": "h", "x": 0.5, "xanchor": "center", "y": 0.01, "yref": "container",
                   "yanchor": "bottom", "font": {"size": 13}},
        "hoverlabel": {"font": {"family": FONT}},
        "xaxis": axis | {"title": {"text": x, "standoff": 10}},
        "yaxis": axis | {"title": {"text": y, "standoff": 10}},
    }  # fmt: skip
    return graph_objects().Figure(layout=layout)  # several times faster than `update_layout`


def run_name(run: int) -> str:
    """The name of the run with this index."""
    return f"run {run + 1}"  # run numbers start at 1


def colour(number: int) -> str:
    """The colour with this index, cyclically."""
    return COLOURS[number % len(COLOURS)]


def run_marker(run: int, size: int) -> dict[str, Any]:
    """The marker of a run: its colour, and another symbol once all colours are used."""
    return {"color": colour(run), "size": size, "symbol": SYMBOLS[run // len(COLOURS) % len(SYMBOLS)]}


def faded(colour: str, opacity: float) -> str:
    """The colour with an opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def band(figure: Figure, x: Array, low: Array, high: Array, fill: str, name: str, **more: Any) -> None:
    """Draw a band as a closed outline."""
    x, y = np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]])
    figure.add_scatter(
        x=x, y=y, mode="lines", line={"width": 0}, fill="toself", fillcolor=fill, name=name, hoverinfo="skip", **more
    )


def bands(figure: Figure, x: Array, forecast: Forecast, colour: str, whose: str = "", **more: Any) -> None:
    """Draw the 90 % and 50 % intervals of a forecast."""
    for probability, opacity in BANDS:
        low, high = forecast.quantile([(1 - probability) / 2, (1 + probability) / 2])
        name = f"{whose}{100 * probability:.0f} % interval"
        band(figure, x, low, high, faded(colour, opacity), name, meta=probability, **more)


def label(text: object, longest: int = 60) -> str:
    """User text, shortened and escaped: plotly would interpret markup."""
    shown = str(text)
    shown = shown if len(shown) <= longest else shown[: longest - 1] + "…"
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def note(figure: Figure, text: str) -> Figure:
    """Add a text to a figure without data."""
    figure.add_annotation(
        text=text, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"size": 15, "color": SOFT}
    )
    figure.update_xaxes(showticklabels=False, showgrid=False, ticks="")
    figure.update_yaxes(showticklabels=False, showgrid=False, ticks="")
    return figure


def log_ticks(low: float, high: float, most: int = 4) -> dict[str, Any]:
    """A few ticks of a logarithmic axis, as options of it: powers of ten, or also 2 and 5 times these."""
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1.0)
    for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        values = np.array([digit * 10.0**decade for decade in decades for digit in digits])
        values = values[(values >= low * (1 - 1e-9)) & (values <= high * (1 + 1e-9))]
        if len(values) >= min(3, most):
            break
    else:
        return {}  # too short for round values: plotly chooses
    values = values[:: -(-len(values) // most)]
    return {"tickvals": values.tolist(), "ticktext": [f"{value:.12g}" for value in values]}


def thinned(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` evenly spaced indices below `count`, including the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


# Images.


if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = [
    "--headless", "--no-sandbox", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--hide-scrollbars", "--virtual-time-budget=8000",
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader",  # 3D figures without a GPU
]  # fmt: skip
RENDER_SECONDS = 120


def write_png(figure: Figure, path: Path | str, width: int = 900, height: int = 560, scale: int = 1) -> Path:
    """Write a figure as a PNG of `width` by `height` pixels, times `scale`, rendered by the system's Chromium.

    plotly.js is inlined, so no network is needed.
    """
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise FigureError(f"writing a PNG needs a browser: install one of {', '.join(BROWSERS)}")
    target = Path(path).resolve()
    sized = graph_objects().Figure(figure).update_layout(width=width, height=height, autosize=False)
    body = sized.to_html(full_html=False, include_plotlyjs="inline", config={"displayModeBar": False})
    page = f'<!doctype html><meta charset="utf-8"><style>body{{margin:0;overflow:hidden}}</style>{body}'
    with tempfile.TemporaryDirectory() as folder:
        source, image = Path(folder) / "figure.html", Path(folder) / "figure.png"
        source.write_text(page, encoding="utf-8")
        command = [browser, *CHROMIUM, f"--user-data-dir={folder}/profile", f"--window-size={width},{height}"]
        command += [f"--force-device-scale-factor={scale}", f"--screenshot={image}", source.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=RENDER_SECONDS, check=False)  # noqa: S603
        except subprocess.TimeoutExpired:
            raise FigureError(f"{browser} did not finish within {RENDER_SECONDS} s") from None
        if not image.is_file():
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise FigureError(f"{browser} wrote no image (exit status {done.returncode}): {last}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(image, target)
    return target
