"""Photograph the page for the docs, with real studies: `python -m docs.screenshots` (needs Playwright and Chromium).

`python -m docs.screenshots FOLDER` photographs every section: desktop and phone, light and dark.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.page import page_of

import freezethaw as ft
from docs.one_decision import DIGITS, IMAGES
from freezethaw.figures import BROWSERS
from freezethaw.server.study_page import SECTIONS

STUDIES = {
    "digits": {},
    "digits, entropy search": {"policy": "entropy_search"},
    "digits, at random": {"policy": "random"},
}
EPOCHS = 80
DRAWN, SETTLED = 60_000, 6_000  # milliseconds for the first figure, and for all others
DESKTOP, PHONE = {"width": 1400, "height": 900}, {"width": 390, "height": 844}
COLOURS = 200  # of a kept picture
KEPT = (  # file, path, window, scheme
    ("page_overview.png", "/studies/digits", DESKTOP, "light"),
    ("page_runs.png", "/studies/digits/runs", DESKTOP, "light"),
    ("page_curves.png", "/studies/digits/curves", DESKTOP, "dark"),
    ("page_phone.png", "/studies/digits", PHONE, "light"),
)


def search(url: str) -> None:
    """Three searches of the same network, into one store."""
    demo = runpy.run_path(str(DIGITS))
    for name, options in STUDIES.items():
        kept = ft.Checkpoints(gb=1)
        ft.tune(
            demo["train"], demo["SPACE"], demo["MAX_EPOCHS"], EPOCHS, name=name, store=url, checkpoints=kept, **options
        )


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """The system's Chromium."""
    from playwright.sync_api import sync_playwright

    found = next(path for name in BROWSERS if (path := shutil.which(name)))
    options = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=options)
        yield opened
        opened.close()


def photograph(opened: Any, link: str, path: str, file: Path, window: dict[str, int], scheme: str) -> None:
    """One page, once all figures in view are drawn with their forecasts; with few colours, which keeps files small."""
    from PIL import Image

    address, _, token = link.partition("?")
    page = opened.new_page(viewport=window, color_scheme=scheme)
    page.goto(f"{address}{path}?{token}")
    if page.locator("[data-figure]:visible").count():
        page.wait_for_selector("[data-drawn]", timeout=DRAWN)
        page.wait_for_timeout(SETTLED)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    page.close()


def main(folder: Path | None = None) -> None:
    """The pictures of the docs, or those of all sections."""
    wanted = [(IMAGES / file, path, window, scheme) for file, path, window, scheme in KEPT]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"studies": "/", "compare": "/compare", "decision": "/studies/digits/decisions/40"}
        paths |= {section or "overview": f"/studies/digits/{section}".rstrip("/") for section in SECTIONS}
        wanted = [
            (folder / f"{name}-{window['width']}-{scheme}.png", path, window, scheme)
            for name, path in paths.items() for window in (DESKTOP, PHONE) for scheme in ("light", "dark")
        ]  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        url = f"sqlite:///{place}/digits.db"
        search(url)
        with page_of(url) as (address, token), browser() as opened:
            for file, path, window, scheme in wanted:
                photograph(opened, f"{address}?token={token}", path, file, window, scheme)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
