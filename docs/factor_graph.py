"""Figure 2a of the paper: the model of its section 4.1 as a factor graph."""

from __future__ import annotations

from typing import Any

from freezethaw.figures import style

ROWS = (("1", 3.2, 5), ("2", 2.0, 3), ("N", 0.4, 4))  # name of the run, height, number of epochs
CONFIG, OVER_CONFIGS, LEVEL, FIRST, STEP = 0.0, 1.4, 2.8, 4.6, 1.05  # horizontal places
RADIUS, BAR, BELOW = 0.35, 0.06, 0.56
KNOWN = "#D9E2EC"


def factor_graph() -> Any:
    """Each bar is a Gaussian process: a factor that joins all variables on it. Measured variables are grey."""
    title, subtitle = "The paper's model as a factor graph", "grey: known; white: inferred; bars: Gaussian processes"
    figure = style.empty_figure(title, subtitle, "", "")
    low, high = ROWS[-1][1], ROWS[0][1]
    _bar(figure, OVER_CONFIGS - BAR, low - RADIUS, OVER_CONFIGS + BAR, high + RADIUS)
    for name, y, epochs in ROWS:
        last = FIRST + (epochs - 1) * STEP
        bar = y - BELOW
        _edge(figure, CONFIG, y, LEVEL, y)
        _edge(figure, LEVEL, y, FIRST - 0.75, y)
        _edge(figure, FIRST - 0.75, y, FIRST - 0.75, bar)
        for epoch in range(epochs):
            _edge(figure, FIRST + epoch * STEP, y, FIRST + epoch * STEP, bar)
        _bar(figure, FIRST - 0.75 - BAR, bar - BAR, last + RADIUS, bar + BAR)
        _node(figure, CONFIG, y, f"<i>x</i><sub>{name}</sub>", KNOWN)
        _node(figure, LEVEL, y, f"<i>f</i><sub>{name}</sub>", "white")
        for epoch in range(epochs):
            _node(figure, FIRST + epoch * STEP, y, f"<i>y</i><sub>{name}</sub>({epoch + 1})", KNOWN, 13)
    for x in (CONFIG, LEVEL, FIRST):
        _text(figure, x, (ROWS[1][1] + low) / 2 - 0.1, "⋮", 24)
    for x, text in (
        (CONFIG, "configurations"),
        (OVER_CONFIGS, "GP over<br>configurations"),
        (LEVEL, "asymptotes"),
        (FIRST + STEP, "losses: for each run<br>a GP over epochs, with mean <i>f</i>"),
    ):
        _text(figure, x, high + 0.85, text, 13)
    figure.update_layout(margin={"l": 10, "r": 10, "t": 64, "b": 4}, showlegend=False)
    hidden = {"visible": False, "fixedrange": True}
    figure.update_xaxes(range=[-0.8, FIRST + 4 * STEP + 0.6], **hidden)
    return figure.update_yaxes(range=[low - 0.75, high + 1.1], scaleanchor="x", **hidden)


def _edge(figure: Any, x0: float, y0: float, x1: float, y1: float) -> None:
    line = {"color": style.FAINT, "width": 2}
    figure.add_shape(type="line", x0=x0, y0=y0, x1=x1, y1=y1, line=line, layer="below")


def _bar(figure: Any, x0: float, y0: float, x1: float, y1: float) -> None:
    figure.add_shape(type="rect", x0=x0, y0=y0, x1=x1, y1=y1, fillcolor=style.INK, line={"width": 0})


def _node(figure: Any, x: float, y: float, text: str, colour: str, size: int = 17) -> None:
    circle = {"x0": x - RADIUS, "x1": x + RADIUS, "y0": y - RADIUS, "y1": y + RADIUS}
    figure.add_shape(type="circle", **circle, fillcolor=colour, line={"color": style.INK, "width": 1.5})
    _text(figure, x, y, text, size)


def _text(figure: Any, x: float, y: float, text: str, size: int) -> None:
    figure.add_annotation(x=x, y=y, text=text, showarrow=False, font={"size": size})
