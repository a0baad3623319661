"""Draw the animation of the README, a real study replayed: `python -m docs.draw_replay [FILE]`.

The study tunes the network of examples/digits.py. The frames are those of `figures.replay`, photographed with Chromium
(needs Playwright) and joined with Pillow.
"""

from __future__ import annotations

import io
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

import freezethaw as ft
from docs.one_decision import DIGITS, IMAGES
from docs.screenshots import browser
from freezethaw import figures

EPOCHS, FRAMES = 120, 60
SIZE = {"width": 760, "height": 440}
MILLISECONDS, LAST, COLOURS = 220, 2500, 48  # of a frame, of the last one, and in the palette
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2)  # of the loss
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: white; font: 15px Helvetica, Arial, "Liberation Sans", sans-serif; color: #1f2933 }}
p {{ margin: 0; padding: 12px 20px 0; height: 26px }} b {{ font-weight: 650 }}</style><p></p>{figure}"""
SHOW = """([name, label]) => {
  document.querySelector("p").textContent = "decision " + label;
  const still = {mode: "immediate", frame: {duration: 0, redraw: false}, transition: {duration: 0}};
  return Plotly.animate(document.querySelector(".js-plotly-plot"), [name], still).then(() => null);
}"""


def search() -> ft.Study:
    """The study, in memory; decisions do not depend on how fast this machine is."""
    demo = runpy.run_path(str(DIGITS))
    study = ft.Study(demo["SPACE"], max_epochs=demo["MAX_EPOCHS"], seed=3, budget=EPOCHS, prices=ft.Prices())
    networks: dict[int, Any] = {}
    while True:
        try:
            decision = study.ask()
        except ft.StudyFinished:
            return study
        if decision.run not in networks:
            networks[decision.run] = demo["Network"](decision.config, decision.run)
        losses = []
        for _ in range(decision.epochs):
            with np.errstate(all="ignore"):
                networks[decision.run].train_one_epoch()
                losses.append(networks[decision.run].loss())
        study.tell(decision, losses)


def photographs(figure: Any) -> list[bytes]:
    """Every frame as a PNG."""
    steps = figure.layout.sliders[0].steps
    names = [(frame.name, step.label) for frame, step in zip(figure.frames, steps, strict=True)]
    height = SIZE["height"] - 40
    margin = {"l": 70, "r": 16, "t": 8, "b": 92}
    figure.layout.sliders, figure.layout.updatemenus = (), ()
    figure.update_layout(title=None, width=SIZE["width"], height=height, margin=margin)
    options = {"full_html": False, "include_plotlyjs": "inline", "auto_play": False}
    source = figure.to_html(config={"displayModeBar": False}, **options)
    with browser() as opened:
        page = opened.new_page(viewport=SIZE)
        page.set_content(PAGE.format(figure=source))
        page.wait_for_selector(".js-plotly-plot .main-svg")
        page.wait_for_function("document.querySelector('.js-plotly-plot')._transitionData?._frames.length > 0")
        found = []
        for name in names:
            page.evaluate(SHOW, list(name))
            found.append(page.screenshot())
    return found


def main(file: Path = IMAGES / "replay.gif") -> Path:
    """Write the animation."""
    from PIL import Image

    study = search()
    figure = figures.replay(study, FRAMES)
    losses = np.log10([loss for run in study.runs for loss in run.losses])
    figure.update_yaxes(type="log", range=[losses.min() - 0.25, np.quantile(losses, 0.98) + 0.05])
    figure.update_yaxes(tickvals=TICKS, ticktext=[f"{tick:g}" for tick in TICKS])
    pictures = [Image.open(io.BytesIO(png)).convert("RGB") for png in photographs(figure)]
    palette = pictures[-1].quantize(COLOURS, dither=Image.Dither.NONE)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    durations = [MILLISECONDS] * (len(frames) - 1) + [LAST]
    frames[0].save(file, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)
    return file


if __name__ == "__main__":
    written = main(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
    print(f"{written} ({written.stat().st_size // 1024} kB)")
