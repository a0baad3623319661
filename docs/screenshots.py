"""Take the screenshots of the docs, of real studies: `python -m docs.screenshots` (needs Playwright and Chromium).

Every section, on a desktop and on a phone, light and dark, in `docs/images/page`; `docs/screenshots.md` shows them.
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
COLOURS = 64  # of a picture
TITLES = {"studies": "Studies", "compare": "Comparison", "decision": "A decision", "run": "A run"}
PATHS = {"studies": "/", "compare": "/compare", "decision": "/studies/digits/decisions/40"}
PATHS |= {"run": "/studies/digits/runs/{best}"}
for section, shown in SECTIONS.items():
    TITLES[section or "overview"] = shown.title
    PATHS[section or "overview"] = f"/studies/digits/{section}".rstrip("/")
PICTURES = IMAGES / "page"
GALLERY = Path(__file__).parent / "screenshots.md"


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
    phone = {"is_mobile": True, "has_touch": True} if window is PHONE else {}
    page = opened.new_page(viewport=window, color_scheme=scheme, **phone)
    page.goto(f"{address}{path}?{token}")
    if page.locator("[data-figure]:visible").count():
        page.wait_for_selector("[data-drawn]", timeout=DRAWN)
        page.wait_for_timeout(SETTLED)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    page.close()


def gallery() -> str:
    """The page that shows all screenshots."""
    found = """# Screenshots of the page

Every section of [the page](page.md) at 1400 x 900 and 390 x 844 pixels, light and dark.
`python -m docs.screenshots` takes them and writes this page.
"""
    for name, title in TITLES.items():
        found += f"\n## {title}\n\n"
        for window, where in ((DESKTOP, "on a desktop"), (PHONE, "on a phone")):
            for scheme in ("light", "dark"):
                found += f"![{title} {where}, {scheme}](images/page/{file_of(name, window, scheme)})\n"
    return found


def file_of(name: str, window: dict[str, int], scheme: str) -> str:
    """The name of a picture."""
    return f"{name}-{window['width']}-{scheme}.png"


def main(folder: Path = PICTURES) -> None:
    """The pictures of all sections."""
    folder.mkdir(parents=True, exist_ok=True)
    GALLERY.write_text(gallery(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        url = f"sqlite:///{place}/digits.db"
        search(url)
        best = ft.Study.open(url, "digits").recommended
        with page_of(url) as (address, token), browser() as opened:
            for name, path in PATHS.items():
                for window in (DESKTOP, PHONE):
                    for scheme in ("light", "dark"):
                        file, at = folder / file_of(name, window, scheme), path.format(best=best.run)
                        photograph(opened, f"{address}?token={token}", at, file, window, scheme)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
