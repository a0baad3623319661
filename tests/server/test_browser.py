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
from freezethaw.server.study_page import SECTIONS
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
    for figure in page.query_selector_all("[data-figure]:visible"):
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
    found = {}
    for section in SECTIONS:
        with opened(browser, link, f"/studies/searched/{section}".rstrip("/"), color_scheme=scheme) as page:
            found |= draw_all(page)
    assert set(found) == set(STUDY_FIGURES)
    assert all(isinstance(count, int) and count > 0 for count in found.values()), found


@pytest.mark.parametrize("name", ["empty", "asked", "one", "diverged"])
def test_a_study_with_little_in_it_is_never_blank(browser, link, name):
    found = {}
    for section in SECTIONS:
        with opened(browser, link, f"/studies/{name}/{section}".rstrip("/")) as page:
            found |= draw_all(page)
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
        for section in ("Runs", "Parameters", "Decisions", "Events", "Overview"):
            page.get_by_role("link", name=section, exact=True).click()
            page.wait_for_selector(f"[aria-current=page]:text-is('{section}')")
            draw_all(page)
        page.locator("tbody a", has_text="run 1").first.click()
        page.wait_for_selector("#figure-curves[data-drawn]", timeout=DRAWN)
        assert page.get_by_text(NASTY).count()


def test_a_phone_shows_all_of_it_without_scrolling_sideways(browser, link):
    sections = [f"/studies/searched/{section}" for section in SECTIONS if section]
    for path in (
        "/", "/compare", "/studies/searched", "/studies/searched/runs/1", "/studies/searched/decisions/9", *sections,
    ):  # fmt: skip
        with opened(browser, link, path, viewport={"width": 360, "height": 740}) as page:
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_a_big_study_is_there_in_two_seconds(browser, tmp_path):
    url = f"sqlite:///{tmp_path}/big.db"
    fill_big(url)
    fill(url, "small", 3)

    def seconds(name):
        began = time.monotonic()
        with opened(browser, link, f"/studies/{name}"):
            return time.monotonic() - began

    with served(url) as link:
        with opened(browser, link):
            pass  # the server has answered once: what is measured is the page, not the start of Python
        loads, small = [seconds("big")], []
        while len(loads) < 8 and min(loads) >= 2.0:  # a busy machine's other processes are not measured
            small.append(seconds("small"))
            loads.append(seconds("big"))
        loaded = min(loads)
        began = time.monotonic()
        with opened(browser, link, "/studies/big") as page:
            page.wait_for_selector("#figure-curves[data-drawn]", timeout=60_000)
            drawn = time.monotonic() - began
            page.locator("#figure-best_loss").scroll_into_view_if_needed()
            page.wait_for_selector("#figure-best_loss[data-drawn]", timeout=60_000)
            assert page.evaluate("document.querySelectorAll('.canvas svg *').length") < 20_000
        began = time.monotonic()
        with opened(browser, link, "/studies/big/runs") as page:
            assert page.locator("table.runs tbody tr").count() == 50
            table = time.monotonic() - began
            page.get_by_role("link", name="Next").click()
            page.get_by_text("page 2 of 20").wait_for()
        print(f"big study: table {table:.2f} s, page {loads[0]:.2f} s, again {loaded:.2f} s, curves {drawn:.2f} s")
    assert loaded < 2.0 or loaded < 4 * min(small)  # on a slow machine a small study takes longer too


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


def column(page, name):
    """The numbers in a column of the table of runs."""
    heads = page.locator("table.runs thead th").all_inner_texts()
    place = next(i for i, head in enumerate(heads) if head.strip("▲▼") == name)
    return page.evaluate(
        "n => [...document.querySelectorAll('table.runs tbody tr')].map(r => r.cells[n].innerText)", place
    )


def test_runs_are_sorted_filtered_and_downloaded_with_the_keyboard(browser, store, link, tmp_path):
    study = ft.Study.open(store, "searched")
    runs = study.runs
    study.close()
    with opened(browser, link, "/studies/searched/runs") as page:
        page.evaluate("window.never_reloaded = true")
        best = [float(text) for text in column(page, "Best loss") if text]
        assert best == sorted(best)
        rate = page.get_by_role("link", name="rate", exact=True)
        for order in ("ascending", "descending"):
            rate.focus()
            page.keyboard.press("Enter")
            page.wait_for_selector(f"th[aria-sort={order}]:has-text('rate')")
            found = [float(text) for text in column(page, "rate")]
            assert found == sorted(found, reverse=order == "descending")
            assert page.evaluate("document.activeElement.textContent") == "rate"  # the place is kept
        page.locator("summary", has_text="Ranges").focus()
        page.keyboard.press("Enter")
        widths = sorted(run.config["width"] for run in runs)
        least, most = widths[len(widths) // 3], widths[2 * len(widths) // 3]
        page.get_by_label("width, least").fill(str(least))
        page.get_by_label("width, most").fill(str(most))
        page.keyboard.press("Enter")
        wanted = [run.number for run in runs if least <= run.config["width"] <= most]
        page.get_by_text(f"{len(wanted)} of {len(runs)} runs").wait_for()
        assert sorted(map(int, column(page, "Run"))) == wanted
        with page.expect_download() as download:
            page.get_by_role("link", name="Download CSV").click()
        download.value.save_as(tmp_path / "runs.csv")
        assert len((tmp_path / "runs.csv").read_text().splitlines()) == len(wanted) + 1
        assert page.evaluate("window.never_reloaded")
        page.go_back()
        page.get_by_text(f"{len(runs)} runs, page").wait_for()
        page.get_by_role("combobox", name="State").select_option("failed")
        page.get_by_role("button", name="Filter").click()
        page.get_by_text("No run matches").wait_for()
        page.locator("summary", has_text="Ranges").click()
        page.get_by_label("width, least").fill("many")
        page.get_by_role("button", name="Filter").click()
        page.wait_for_function("() => document.getElementById('message').textContent.includes('must be a number')")


EXPECTED_BANDS = """run => document.querySelector('#figure-curves .canvas').data
    .filter(t => t.meta?.band && t.meta.run === run).map(t => t.opacity)"""


def test_ticked_runs_are_highlighted_and_opened_in_curves(browser, link):
    names = "document.querySelector('#figure-curves .canvas').data.map(t => t.name)"
    with opened(browser, link, "/studies/searched/runs") as page:
        for run in (2, 1):
            page.get_by_label(f"highlight run {run}", exact=True).check()
        page.wait_for_function(
            f"() => document.querySelector('#figure-curves[data-drawn]') && {names}.includes('run 1')"
        )
        page.get_by_role("link", name="Run", exact=True).click()
        page.wait_for_selector("th[aria-sort]:has-text('Run')")
        assert page.get_by_label("highlight run 2", exact=True).is_checked()
        page.get_by_role("link", name="Open 2 in Curves").click()
        page.wait_for_selector("#figure-curves[data-drawn]", timeout=DRAWN)
        assert page.get_by_label("highlight runs").input_value() == "2,1"
        page.wait_for_function(f"() => {names}.includes('run 2') && !{names}.includes('run 3')", timeout=DRAWN)


def test_curves_are_zoomed_scaled_and_their_bands_shown_on_hover(browser, link):
    ranges = "['xaxis', 'yaxis'].map(a => document.querySelector('#figure-curves .canvas')._fullLayout[a].range)"
    with opened(browser, link, "/studies/searched/curves") as page:
        page.wait_for_selector("#figure-curves[data-drawn='2']", timeout=DRAWN)
        first = page.evaluate(ranges)
        figure = page.locator("#figure-curves")
        figure.get_by_role("button", name="Zoom in").focus()
        page.keyboard.press("Enter")
        page.wait_for_function(f"was => {ranges}[0][1] < was[0][1]", arg=first)
        figure.get_by_role("button", name="Reset").click()
        page.wait_for_function(f"was => JSON.stringify({ranges}) === JSON.stringify(was)", arg=first)
        figure.get_by_label("log loss").check()
        page.wait_for_function(
            "() => document.querySelector('#figure-curves .canvas')._fullLayout.yaxis.type === 'log'"
        )
        figure.get_by_label("log loss").uncheck()
        runs = page.evaluate(
            "[...new Set(document.querySelector('#figure-curves .canvas').data.filter(t => t.meta?.band && "
            "!t.meta.shown).map(t => t.meta.run))]"
        )
        assert runs  # there are runs whose bands are hidden
        hover = """run => { const canvas = document.querySelector('#figure-curves .canvas');
            canvas.emit('plotly_hover', {points: [{data: {meta: {run}}}]}); }"""
        assert set(page.evaluate(EXPECTED_BANDS, runs[0])) == {0}
        page.evaluate(hover, runs[0])
        page.wait_for_function(f"run => ({EXPECTED_BANDS})(run).every(o => o === 1)", arg=runs[0])
        page.evaluate("document.querySelector('#figure-curves .canvas').emit('plotly_unhover', {})")
        page.wait_for_function(f"run => ({EXPECTED_BANDS})(run).every(o => o === 0)", arg=runs[0])
        page.get_by_label("highlight runs").fill(str(runs[0]))
        page.keyboard.press("Enter")
        page.wait_for_function(f"run => ({EXPECTED_BANDS})(run).every(o => o === 1)", arg=runs[0], timeout=DRAWN)


def test_a_study_is_replayed_decision_by_decision(browser, store, link):
    study = ft.Study.open(store, "searched")
    decisions = session_of(study).history().decisions
    study.close()
    trained = (
        "document.querySelector('#figure-replay .canvas')._fullData.find(t => t.name === 'trained by this decision').x"
    )
    with opened(browser, link, "/studies/searched/curves") as page:
        page.locator("#figure-replay").scroll_into_view_if_needed()
        page.wait_for_selector("#figure-replay[data-drawn]", timeout=DRAWN)
        slider = page.get_by_label("decision", exact=True)
        assert slider.get_attribute("max") == str(len([d for d in decisions if d.closed is not None]) - 1)
        slider.focus()
        page.keyboard.press("Home")
        page.wait_for_function(
            "() => document.querySelector('#figure-replay output').textContent.startsWith('1: start run 1')"
        )
        first = decisions[0].decision
        page.wait_for_function(f"want => JSON.stringify(Array.from({trained})) === want", arg=f"[{first.to_epoch}]")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("() => document.querySelector('#figure-replay output').textContent.startsWith('2: ')")
        page.get_by_role("button", name="Play").focus()
        page.keyboard.press("Enter")
        page.wait_for_function("() => Number(document.querySelector('[data-frame]').value) >= 4")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Play").wait_for()
        page.get_by_label("forecasts", exact=True).select_option("yes")
        page.wait_for_function(
            "() => document.querySelector('#figure-replay figcaption p').textContent.includes('forecast made')",
            timeout=DRAWN,
        )


def test_runs_are_selected_on_an_axis_of_the_parallel_coordinates(browser, link):
    with opened(browser, link, "/studies/searched/parameters") as page:
        page.wait_for_selector("#figure-parallel_coordinates[data-drawn]", timeout=DRAWN)
        page.evaluate("document.querySelector('#figure-parallel_coordinates').scrollIntoView()")
        box = page.evaluate(
            """() => { const c = document.querySelector('#figure-parallel_coordinates .canvas'), l = c._fullLayout;
                const b = c.getBoundingClientRect(), x = v => b.left + l.xaxis._offset + l.xaxis.l2p(v);
                const y = v => b.top + l.yaxis._offset + l.yaxis.l2p(v);
                return {left: x(-0.1), right: x(0.1), top: y(1.02), bottom: y(0.5)}; }"""
        )
        page.mouse.move(box["left"], box["top"])
        page.mouse.down()
        page.mouse.move(box["right"], box["bottom"], steps=5)
        page.mouse.up()
        page.wait_for_function("() => document.querySelector('.brushed').textContent.includes('runs selected')")
        trace = page.evaluate(
            """() => { const all = document.querySelector('#figure-parallel_coordinates .canvas')._fullData;
                const t = all.find(t => t.meta?.brush);
                return [Array.from(t.x), Array.from(t.y), Array.from(t.customdata)]; }"""
        )
        wanted = [run for x, y, run in zip(*trace, strict=True) if x == 0 and 0.5 <= y <= 1.02]
        assert 0 < len(wanted) < len(set(trace[2]))
        assert page.locator(".brushed").inner_text().startswith(f"{len(wanted)} runs selected")
        page.locator(".brushed a").click()
        page.wait_for_url("**/curves?runs=*")


def test_a_map_of_two_chosen_parameters(browser, link):
    with opened(browser, link, "/studies/searched/parameters") as page:
        figure = page.locator("#figure-parameter_map")
        figure.scroll_into_view_if_needed()
        page.wait_for_selector("#figure-parameter_map[data-drawn]", timeout=DRAWN)
        figure.get_by_label("across", exact=True).select_option("width")
        figure.get_by_label("up", exact=True).select_option("optimizer")
        page.wait_for_function(
            "() => document.querySelector('#figure-parameter_map h2').textContent === 'width and optimizer'",
            timeout=DRAWN,
        )
        kinds = page.evaluate("document.querySelector('#figure-parameter_map .canvas').data.map(t => t.type)")
        assert kinds == ["heatmap", "scatter"]


def test_a_failed_run_is_found_and_shows_its_traceback(browser, tmp_path):
    url = f"sqlite:///{tmp_path}/failed.db"

    def train(run):
        if run.number == 2:
            raise RuntimeError(NASTY)
        for epoch in run.epochs():
            run.report(1 / epoch)

    ft.tune(train, ft.Space(x=ft.Float(0.0, 1.0)), 2, 4, name="failing", store=url, policy="random")
    with served(url) as link, opened(browser, link, "/studies/failing/runs") as page:
        page.get_by_role("combobox", name="State").select_option("failed")
        page.get_by_role("button", name="Filter").click()
        page.get_by_text("1 of 3 runs").wait_for()
        page.locator("table.runs tbody a").get_by_text("2", exact=True).click()
        page.get_by_role("heading", name="Failure").wait_for()
        assert NASTY in page.locator("pre").inner_text()


def test_two_dashboards_in_one_browser_do_not_log_each_other_out(browser, store, tmp_path):
    other = f"sqlite:///{tmp_path}/other.db"
    fill(other, "elsewhere", 1)
    context = browser.new_context()
    with served(store) as first, served(other) as second:
        page = context.new_page()
        for link in (first, second):
            page.goto(link)
        for link, name in ((first, "searched"), (second, "elsewhere"), (first, "searched")):
            parts = urlsplit(link)
            answer = page.goto(f"{parts.scheme}://{parts.netloc}/")
            assert answer.status == 200
            assert page.get_by_role("link", name=name, exact=True).count() == 1
    context.close()


PAGES = {
    "studies": "/",
    "compare": "/compare",
    "run": "/studies/searched/runs/1",
    "decision": "/studies/searched/decisions/9",
    "error": "/studies/missing",
} | {section or "overview": f"/studies/searched/{section}".rstrip("/") for section in SECTIONS}


@pytest.mark.parametrize("page_name", PAGES)
def test_axe_finds_nothing(browser, link, page_name):
    from axe_playwright_python.sync_playwright import Axe

    found = []
    for width, height in ((1400, 900), (390, 844)):
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            parts = urlsplit(link)
            page.goto(f"{parts.scheme}://{parts.netloc}{PAGES[page_name]}?{parts.query}")
            draw_all(page)
            for closed in page.query_selector_all("details:not([open]) > summary"):
                closed.click()
            for each in Axe().run(page).response["violations"]:
                nodes = [node["html"][:200] for node in each["nodes"]]
                found.append((width, scheme, each["impact"], each["id"], nodes))
            context.close()
    assert found == []


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def test_a_finger_on_a_figure_scrolls_a_phone(browser, link):
    with opened(browser, link, "/studies/searched/curves", **PHONE) as page:
        page.wait_for_selector("#figure-curves[data-drawn='2']", timeout=DRAWN)
        box = page.locator("#figure-curves .canvas").bounding_box()
        session = page.context.new_cdp_session(page)
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for kind, points in (
            ("touchStart", [{"x": x, "y": y}]),
            *(("touchMove", [{"x": x, "y": y - 10 * step}]) for step in range(1, 21)),
            ("touchEnd", []),
        ):
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        page.wait_for_function("scrollY > 100")
        figure = page.locator("#figure-curves")
        ranges = "document.querySelector('#figure-curves .canvas')._fullLayout.xaxis.range"
        first = page.evaluate(ranges)
        figure.get_by_role("button", name="Zoom in").tap()
        page.wait_for_function(f"was => {ranges}[1] < was[1]", arg=first)


def test_slices_have_two_columns_on_a_phone(browser, link):
    with opened(browser, link, "/studies/searched/parameters", **PHONE) as page:
        figure = page.locator("#figure-slices")
        figure.scroll_into_view_if_needed()
        page.wait_for_selector("#figure-slices[data-drawn]", timeout=DRAWN)
        lefts = page.evaluate(
            """() => { const l = document.querySelector('#figure-slices .canvas')._fullLayout;
            return new Set(Object.keys(l).filter(k => /^xaxis/.test(k)).map(k => l[k].domain[0])).size; }"""
        )
        assert lefts == 2


def test_every_control_has_a_name_and_every_page_one_heading_of_the_first_level(browser, link):
    for section in SECTIONS:
        with opened(browser, link, f"/studies/searched/{section}".rstrip("/")) as page:
            nameless = page.evaluate(
                """() => [...document.querySelectorAll('main a, main button, main input, main select, main textarea')]
                    .filter(e => e.type !== 'hidden' && !(e.textContent.trim() && e.matches('a, button'))
                        && !e.ariaLabel && !(e.labels && [...e.labels].some(l => l.textContent.trim())))
                    .map(e => e.outerHTML)"""
            )
            assert nameless == []
            assert page.locator("h1").count() == 1
            assert page.locator("nav [aria-current=page]").count() == 1
