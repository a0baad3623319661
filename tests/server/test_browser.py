"""The page in a real browser: it follows a study, every figure has data, actions act, and no policy is violated."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest

import freezethaw as ft
from freezethaw.figures import BROWSERS, STUDY_FIGURES
from freezethaw.study import session_of
from tests.server.serving import served
from tests.server.studies import SPACE, advance, fill, fill_big

CHROMIUM = next((found for name in BROWSERS if (found := shutil.which(name))), None)
NASTY = '"><img src=x onerror=window.harmed=1><script>window.harmed=1</script>'
EXPECTED = "status of 400"  # what the browser says of a refusal, which the page tells in words
DRAWN = 60_000  # milliseconds for the slowest figure on a busy machine


@pytest.fixture(scope="module")
def browser():
    """In CI a missing browser is a failure; on a laptop its tests are skipped."""
    if CHROMIUM is None and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        if os.environ.get("FREEZETHAW_CI"):
            raise
        pytest.skip("no Playwright in this environment: pip install playwright")
    assert CHROMIUM is not None
    options = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]  # three dimensions without a graphics card
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield found
        found.close()


@contextlib.contextmanager
def opened(browser, link, path="/", **options):
    """A page of the server, which must violate no policy and raise no error."""
    context = browser.new_context(**options)
    page = context.new_page()
    troubles = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: troubles.append(f"dialog {dialog.message}"))
    page.on(
        "console",
        lambda said: troubles.append(said.text) if said.type == "error" and EXPECTED not in said.text else None,
    )
    page.add_init_script(
        "addEventListener('securitypolicyviolation', e => console.error('policy ' + e.violatedDirective))"
    )
    parts = urlsplit(link)
    try:
        page.goto(f"{parts.scheme}://{parts.netloc}{path}?{parts.query}")
        yield page
        assert not page.evaluate("window.harmed")
        assert troubles == []
    finally:
        context.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Studies of all sorts."""
    url = f"sqlite:///{tmp_path_factory.mktemp('page')}/page.db"
    fill(url, "searched")
    fill(url, "empty", 0)
    fill(url, "one", 1)
    fill(url, "diverged", 3, diverge=True)
    asked = ft.Study(SPACE, 8, name="asked", store=url)
    asked.ask()
    asked.close()
    nasty = ft.Study(ft.Space({NASTY: ft.Choice(NASTY, "b"), "x": ft.Float(0, 1)}), 3, name=NASTY, store=url)
    nasty.enqueue({NASTY: NASTY, "x": 0.5})
    for value in (1.0, 0.5, 0.4):
        nasty.tell(nasty.ask(), value)
    session_of(nasty).storage.add_event(NASTY, NASTY)
    nasty.close()
    return url


@pytest.fixture(scope="module")
def link(store):
    with served(store) as found:
        yield found


def draw_all(page):
    """Scroll through all figures until each is drawn; gives how many numbers each holds, or what it says instead."""
    found = {}
    for figure in page.query_selector_all("[data-figure]"):
        figure.scroll_into_view_if_needed()
        page.wait_for_function(
            "f => f.dataset.drawn || f.innerText.includes('cannot be drawn')", arg=figure, timeout=DRAWN
        )
        name = figure.get_attribute("id").removeprefix("figure-")
        found[name] = figure.evaluate(
            """f => {
                const canvas = f.querySelector(".canvas");
                if (!canvas.data) return f.innerText;
                const count = canvas._fullData.reduce((n, t) => n + (t._length ?? t.y?.length ?? t.x?.length ?? 0), 0);
                return count || (canvas.layout.annotations ?? []).map(a => a.text).join();
            }"""
        )
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_figure_has_data_and_no_policy_is_violated(browser, link, scheme):
    with opened(browser, link, "/studies/searched", color_scheme=scheme) as page:
        found = draw_all(page)
    assert set(found) == set(STUDY_FIGURES)
    assert all(isinstance(count, int) and count > 0 for count in found.values()), found


@pytest.mark.parametrize("name", ["empty", "asked", "one", "diverged"])
def test_a_study_with_little_in_it_is_never_blank(browser, link, name):
    with opened(browser, link, f"/studies/{name}") as page:
        found = draw_all(page)
        assert page.locator("h1").inner_text() == name
    for figure, content in found.items():
        assert content, figure
        assert "cannot be drawn" not in str(content), figure


def test_the_page_follows_a_study_without_reload(browser, store, link):
    with opened(browser, link, "/studies/one") as page:
        page.evaluate("window.never_reloaded = true")
        page.wait_for_selector("#figure-curves[data-drawn]", timeout=DRAWN)
        before = page.locator(".card", has_text="Epochs").locator(".value").inner_text()
        drawn = int(page.locator("#figure-curves").get_attribute("data-drawn"))
        study = ft.Study.open(store, "one")
        advance(study, 3)
        study.close()
        page.wait_for_function(
            "before => document.querySelectorAll('.card .value')[1].textContent !== before", arg=before, timeout=DRAWN
        )
        page.wait_for_function(
            "n => Number(document.querySelector('#figure-curves').dataset.drawn) > n", arg=drawn, timeout=DRAWN
        )
        page.wait_for_selector("ol.log li[value='4']", timeout=DRAWN)
        assert page.evaluate("window.never_reloaded")


def test_actions_of_a_study_and_of_a_run(browser, store, link):
    study = ft.Study.open(store, "searched")

    def message(page, words):
        page.wait_for_function("words => document.getElementById('message').textContent.includes(words)", arg=words)

    def press(page, action):
        button = page.locator(f"[data-action={action}]")
        if not button.is_visible():
            page.locator("details.actions > summary").click()
        button.click()

    with opened(browser, link, "/studies/searched") as page:
        page.locator("details.actions > summary").focus()
        page.keyboard.press("Enter")  # all of it works by keyboard
        page.locator("input[name=epochs]").fill("77")
        page.keyboard.press("Enter")
        message(page, "77 epochs")
        assert study.definition.budget.epochs == 77
        page.locator("textarea").fill('{"rate": 0.5, "optimizer": "adam", "width": 2}')
        press(page, "enqueue")
        message(page, "started next")
        assert session_of(study).refresh().requests[-1].config["rate"] == 0.5
        page.locator("textarea").fill('{"rate": 5000}')
        press(page, "enqueue")
        message(page, "Error: ")
        press(page, "stop")
        message(page, "no new ones are taken")
        assert study.definition.stopped
        page.wait_for_selector("[data-action=resume]", state="attached")
        press(page, "resume")
        message(page, "resumed")
        assert not study.definition.stopped
    frozen = next(run.number for run in study.runs if run.state == "frozen")
    with opened(browser, link, f"/studies/searched/runs/{frozen}") as page:
        page.wait_for_selector("#figure-curves[data-drawn]", timeout=DRAWN)
        press(page, "thaw")
        message(page, "thawed next")
        assert session_of(study).refresh().requests[-1].run == frozen
        steps = (
            ("pin", "are kept", lambda: study.definition.pinned),
            ("ban", "not be thawed any more", lambda: study.definition.banned),
        )
        for action, words, there in steps:
            press(page, action)
            message(page, words)
            assert there() == (frozen,)
            page.wait_for_selector(f"[data-action=un{action}]")
            press(page, f"un{action}")
            message(page, "may ")
            assert there() == ()
            page.wait_for_selector(f"[data-action={action}]")
    study.close()


def test_studies_are_chosen_compared_and_followed(browser, store, link):
    with opened(browser, link) as page:
        for name in ("searched", "one", "empty", NASTY):
            page.get_by_label(f"compare {name}", exact=True).check()
        page.get_by_role("button", name="Compare").click()
        page.wait_for_selector("#figure-comparison[data-drawn]", timeout=DRAWN)
        assert page.locator("tbody tr").count() == 4
        lines = page.evaluate("document.querySelector('#figure-comparison .canvas').data.map(t => t.y.length)")
        assert len(lines) == 3  # an empty study has a row, and no line
        before = page.locator("#figure-comparison .xtitle").text_content()
        page.get_by_label("against").select_option("hours")
        page.wait_for_function("was => document.querySelector('.xtitle').textContent !== was", arg=before)
        study = ft.Study.open(store, "one")
        advance(study, 1)
        study.close()
        epochs = str(sum(run.epoch for run in study.runs))
        page.locator("tbody tr", has_text="one").get_by_text(epochs, exact=True).first.wait_for(timeout=DRAWN)


def test_what_a_user_typed_runs_nowhere(browser, link, store):
    with opened(browser, link) as page:
        page.get_by_text(NASTY).first.click()
        page.wait_for_url("**/studies/**")
        assert page.locator("h1").inner_text() == NASTY
        draw_all(page)
        page.locator("tbody a", has_text="run 1").first.click()
        page.wait_for_selector("#figure-curves[data-drawn]", timeout=DRAWN)
        assert page.get_by_text(NASTY).count()


def test_a_phone_shows_all_of_it_without_scrolling_sideways(browser, link):
    for path in ("/", "/compare", "/studies/searched", "/studies/searched/runs/1", "/studies/searched/decisions/9"):
        with opened(browser, link, path, viewport={"width": 360, "height": 740}) as page:
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_a_big_study_is_there_in_two_seconds(browser, tmp_path):
    url = f"sqlite:///{tmp_path}/big.db"
    fill_big(url)
    with served(url) as link:
        with opened(browser, link):
            pass  # the server has answered once: what is measured is the page, not the start of Python
        loads = []
        while len(loads) < 8 and min(loads, default=9.0) >= 2.0:  # a busy machine's other processes are not measured
            began = time.monotonic()
            with opened(browser, link, "/studies/big"):
                loads.append(time.monotonic() - began)
        loaded = min(loads)
        began = time.monotonic()
        with opened(browser, link, "/studies/big") as page:
            assert page.locator("tbody tr").count() >= 50
            page.wait_for_selector("#figure-curves[data-drawn]", timeout=60_000)
            drawn = time.monotonic() - began
            page.locator("#figure-best_loss").scroll_into_view_if_needed()
            page.wait_for_selector("#figure-best_loss[data-drawn]", timeout=60_000)
            assert page.evaluate("document.querySelectorAll('.canvas svg *').length") < 20_000
        print(f"big study: page {loads[0]:.2f} s, again {loaded:.2f} s, curves {drawn:.2f} s")
    assert loaded < 2.0


def test_the_report_opens_offline_with_every_figure(browser, store, tmp_path):
    command = [sys.executable, "-m", "freezethaw", "report", store, "--name", "searched"]
    subprocess.run([*command, "-o", tmp_path / "report.html"], check=True, capture_output=True)
    context = browser.new_context(offline=True)
    page = context.new_page()
    troubles = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_function("n => document.querySelectorAll('.js-plotly-plot').length === n", arg=len(STUDY_FIGURES))
    assert troubles == []
    context.close()
