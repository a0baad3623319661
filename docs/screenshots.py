"""Photograph the page for the docs, with real studies: `python -m docs.screenshots` (needs Playwright and Chromium)."""

from __future__ import annotations

import contextlib
import runpy
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.page import page_of

import freezethaw as ft
from docs.one_decision import DIGITS, IMAGES
from freezethaw.figures import BROWSERS

STUDIES = {
    "digits": {},
    "digits, entropy search": {"policy": "entropy_search"},
    "digits, at random": {"policy": "random"},
}
EPOCHS = 80
DRAWN, SETTLED = 60_000, 15_000  # milliseconds for the first figure, and for all others
WINDOW = {"width": 1200, "height": 900}


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


def photograph(
    opened: Any, address: str, token: str, path: str, file: str, first: str = "", scheme: str = "light"
) -> None:
    """One page, once all figures in view are drawn with their forecasts; `first` is what stands at its top."""
    page = opened.new_page(viewport=WINDOW, color_scheme=scheme)
    page.goto(f"{address}{path}?token={token}")
    if first:
        page.locator(first).evaluate("figure => figure.scrollIntoView()")
    page.wait_for_selector("[data-drawn]", timeout=DRAWN)
    page.wait_for_timeout(SETTLED)
    page.screenshot(path=IMAGES / file)
    page.close()


def main() -> None:
    """All three."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/digits.db"
        search(url)
        with page_of(url) as (address, token), browser() as opened:
            photograph(opened, address, token, "/studies/digits", "page_study.png")
            photograph(opened, address, token, "/studies/digits", "page_figures.png", "#figure-best_loss", "dark")
            photograph(opened, address, token, "/compare", "page_compare.png")


if __name__ == "__main__":
    main()
