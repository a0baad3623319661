"""Nothing fails silently: a failed run keeps its traceback everywhere, and a search in which nothing works stops."""

from __future__ import annotations

import json
import math

import pytest
from typer.testing import CliRunner

import freezethaw as ft
from freezethaw.cli import app
from freezethaw.runtime.worker import FIRST_DIVERGED
from freezethaw.study.summary import summary

SPACE = {"x": ft.Float(0.0, 1.0)}


def failing(where):
    def train(run):
        for epoch in run.epochs():
            if where == epoch:
                raise ValueError("the deep reason")

            def save(folder):
                if where == "save":
                    raise KeyError("the deep reason")
                (folder / "epoch").write_text("1")

            run.report(run.config["x"] + 1 / epoch, save=save)

    return train


@pytest.mark.parametrize("where", [1, 2, 4, "save"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_search_in_which_every_run_fails_stops_with_the_traceback(where, workers, tmp_path):
    if workers == 2 and where == 4:
        pytest.skip("the same as with one worker")
    with pytest.raises(ft.StudyError, match="the training failed in") as caught:
        ft.tune(failing(where), SPACE, 10, 200, workers=workers, store=tmp_path / "study.db")
    said = "\n".join(caught.value.__notes__)
    assert "the first failure: run " in said
    assert "Traceback (most recent call last)" in said
    assert "the deep reason" in said
    with ft.Study.open(tmp_path / "study.db") as study:
        assert sum(run.epoch for run in study.runs) < 60


def test_a_repaired_training_continues_where_runs_had_failed(tmp_path):
    store = tmp_path / "study.db"
    with pytest.raises(ft.StudyError):
        ft.tune(failing(2), SPACE, 10, 30, store=store)
    result = ft.tune(failing(None), SPACE, 10, 30, store=store)
    assert result.reason == "budget spent: 30 epochs"


def test_some_failures_do_not_stop_a_search(capsys):
    def train(run):
        for epoch in run.epochs():
            if run.number % 3 == 0:
                raise ValueError("a third of the runs")
            run.report(run.config["x"] + 1 / epoch, save=lambda folder: (folder / "x").write_text("1"))

    result = ft.tune(train, SPACE, 4, 40)
    assert result.reason == "budget spent: 40 epochs"
    assert sum(run.state == "failed" for run in result.runs) >= 3
    assert "a third of the runs" in capsys.readouterr().err


def test_a_search_in_which_nothing_is_finite_stops_and_says_so(capsys):
    def train(run):
        for _ in run.epochs():
            run.report(math.nan)

    result = ft.tune(train, SPACE, 4, 400, metric="score")
    assert FIRST_DIVERGED <= len(result.runs) <= FIRST_DIVERGED + 2
    assert "diverged (NaN or infinite) in their first epoch" in result.reason
    assert "no run has a finite score" in capsys.readouterr().err
    for ask in (lambda: result.best, lambda: result.recommended):
        with pytest.raises(ft.StudyError, match="there is no best: no run has a finite score"):
            ask()
    assert "no best" in repr(result)


def test_a_call_without_time_says_that_nothing_was_started():
    result = ft.tune(failing(None), SPACE, 4, timeout=1e-9)
    with pytest.raises(ft.StudyError, match="no run was started"):
        result.best  # noqa: B018


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """A study whose third run failed, in a worker process; with the folder it is in."""
    folder = tmp_path_factory.mktemp("failed")

    def train(run):
        for epoch in run.epochs():
            if run.number == 3:
                raise ValueError("the deep reason")
            run.report(run.config["x"] + 1 / epoch, save=lambda folder: (folder / "x").write_text("1"))

    ft.tune(train, SPACE, 4, 12, store=folder / "study.db", engine="processes")
    return folder


def test_the_traceback_is_where_one_looks(failed):
    text = "ValueError: the deep reason"
    [log] = failed.glob("checkpoints/logs/study-*/run-3.log")
    assert f"\n{text}\n" in log.read_text()
    assert "Traceback (most recent call last)" in log.read_text()
    with ft.Study.open(failed / "study.db") as study:
        from freezethaw.study import session_of

        events = summary(session_of(study).storage, 50)["events"]
    [event] = [event for event in events if event["kind"] == "run failed"]
    assert event["text"] == f"run 3: {text}"
    assert text in event["traceback"]
    found = json.loads(CliRunner().invoke(app, ["status", str(failed / "study.db"), "--json", "--last", "50"]).stdout)
    assert any(text in event.get("traceback", "") for event in found["events"])


def test_the_traceback_is_on_the_page_of_the_run_and_in_its_json(failed):
    pytest.importorskip("starlette")
    from freezethaw.server import api, run_page
    from freezethaw.server.views import StoreView

    view = StoreView(f"sqlite:///{failed}/study.db")
    try:
        page = run_page.page(view, {"study": "study", "run": 3})
        assert "Traceback (most recent call last)" in page
        assert "the deep reason" in page
        found = api.one_run(view, {"study": "study", "run": 3})
        assert found["failure"]["text"] == "run 3: ValueError: the deep reason"
        assert "Traceback" in found["failure"]["traceback"]
        assert api.one_run(view, {"study": "study", "run": 1})["failure"] is None
    finally:
        view.close()


def test_the_command_line_shows_the_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("def train(run):\n    raise ValueError('the deep reason')\n")
    (tmp_path / "space.toml").write_text('[x]\ntype = "float"\nlow = 0.0\nhigh = 1.0\n')
    words = ["run", "train.py:train", "--space", "space.toml", "--max-epochs", "4", "--budget", "20"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    first, *rest = done.stderr.splitlines()
    assert first.startswith("freezethaw: the training failed in all of the first 3 runs")
    assert "ValueError: the deep reason" in rest


def test_logs_belong_to_one_study(tmp_path):
    for name in ("one", "two"):
        ft.tune(failing(None), SPACE, 2, 2, store=tmp_path / f"{name}.db", engine="processes")
    folders = sorted(tmp_path.glob("checkpoints/logs/*"))
    assert len(folders) == 2
    assert all((folder / "run-1.log").is_file() for folder in folders)
