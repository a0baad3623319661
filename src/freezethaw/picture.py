"""A forecast as a picture for notebooks: SVG, without a script."""

from __future__ import annotations

from html import escape
from typing import Any

PICTURE_WIDTH, PICTURE_HEIGHT, COLOUR = 420, 180, "#0072B2"


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
