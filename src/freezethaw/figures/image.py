"""Write figures as PNG images with the system's Chromium."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from freezethaw.errors import FigureError
from freezethaw.figures.style import graph_objects

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
