"""The progress display: each loss with its own decision, nothing skipped, nothing glued or broken at 80 columns."""

from __future__ import annotations

import io
import re
import sys
import types

from rich.console import Console, Group
from rich.text import Text

import freezethaw as ft
from freezethaw.runtime.progress import Progress, progress_bar
from freezethaw.study import session_of

SPACE = {"x": ft.Float(0.0, 1.0), "a_parameter_with_a_long_name": ft.Float(0.0, 1.0)}


def advance(study, count):
    for _ in range(count):
        decision = study.ask()
        study.tell(
            decision, [decision.config["x"] + 1 / e for e in range(decision.from_epoch + 1, decision.to_epoch + 1)]
        )


def shown(terminal, steps=(3, 9, 4), width=80):
    study = ft.Study(SPACE, 9, metric="error", seed=2)
    advance(study, 2)  # before the display begins: not shown again
    out = io.StringIO()
    display = Progress(Console(file=out, force_terminal=terminal, width=width, highlight=False, soft_wrap=True))
    with display:
        display.update(session_of(study), always=True)
        for count in steps:  # several decisions between two updates
            advance(study, count)
            display.update(session_of(study), always=True)
        failed = study.ask()
        study.cancel(failed, "failed")
        display.update(session_of(study), always=True)
    return study, out.getvalue()


def test_every_loss_is_shown_with_the_decision_that_trained_it():
    study, text = shown(terminal=False)
    decisions = [record.decision for record in session_of(study).history().decisions]
    expected = decisions[2:-1]
    lines = [line for line in text.splitlines() if " error " in line]
    assert len(lines) == len(expected)
    for line, decision in zip(lines, expected, strict=True):
        run, last, loss, reason = re.fullmatch(r"run +(\d+)  epoch +(?:\d+-)?(\d+)  error (\S+) +(.*)", line).groups()
        assert (int(run), int(last), reason) == (decision.run, decision.to_epoch, decision.reason)
        assert loss == f"{study.runs[decision.run - 1].losses[decision.to_epoch - 1]:.5g}"
    assert "failed after epoch" in text.splitlines()[-1]


def test_nothing_is_wider_than_the_terminal():
    _, text = shown(terminal=True)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    lines = re.split(r"[\r\n]+", plain)
    assert any(line.startswith("run ") for line in lines)
    for line in lines:
        assert len(line) <= 80, line
        assert not re.search(r"━\S*[a-z ]+\w", line), f"glued to the bar: {line}"
    printed = [line for line in lines if re.match(r"run +\d+  epoch", line)]
    assert all(line.endswith("…") or "; next best" not in line for line in printed)


def test_the_bar_is_a_line_of_its_own():
    out = io.StringIO()
    Console(file=out, width=80).print(Group(progress_bar(3, 10), Text("next")))
    assert out.getvalue().splitlines()[1] == "next"


def test_a_closed_pipe_does_not_end_the_training():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    study = ft.Study(SPACE, 9)
    display = Progress(Console(file=Closed(), highlight=False))
    display.console.on_broken_pipe = lambda: sys.exit(1)
    with display:
        display.update(session_of(study), always=True)
        advance(study, 2)
        display.update(session_of(study), always=True)
        display.update(session_of(study), always=True)


def test_a_notebook_has_one_output_that_ends_with_the_best(monkeypatch):
    outputs = []

    class Handle:
        def update(self, html):
            outputs.append(html)

    shown = types.ModuleType("IPython.display")
    shown.HTML = str
    shown.display = lambda first, display_id: Handle()
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", shown)

    def train(run):
        for epoch in run.epochs():
            run.report(run.config["x"] + 1 / epoch, save=lambda folder: (folder / "x").write_text("1"))

    result = ft.tune(train, SPACE, 4, 8, metric="error")
    assert f"best error {result.best.loss:.5g}: run {result.best.run}, epoch {result.best.epoch}" in outputs[-1]


def test_a_forecast_prints_short_and_draws_itself():
    study = ft.Study(SPACE, 9, metric="error")
    advance(study, 8)
    one, many = study.forecast(1), study.forecast(1, [3.0, 6.0, 9.0])
    assert repr(one).startswith("<Forecast: epoch 9: error ")
    assert repr(many).count("epoch") == 2
    assert len(repr(many)) < 160
    assert len(repr(study)) < 100
    html = many._repr_html_()
    assert html.count("<polygon") == 2
    assert "forecast of the error" in html
    assert "<script" not in html
    assert "epoch 9: error " in one._repr_html_()
    assert "<svg" not in one._repr_html_()  # one epoch is a sentence
