"""Callbacks are called for everything, in whichever process it happens; one that raises does not end the study."""

from __future__ import annotations

import itertools

import pytest

import freezethaw as ft
from freezethaw.runtime.callbacks import CALLBACK_FAILED
from freezethaw.store import Store
from tests.runtime.trainings import BAD, GOOD, LOG, SPACE, descend


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


def spoilt(run):
    if run.config["rate"] == 0.9:
        raise RuntimeError("out of luck")
    if run.config["rate"] == 0.7:
        raise ft.Diverged
    descend(run)


def tuned(train, url, callbacks, **changes):
    candidates = [GOOD, BAD, {"rate": 0.9}, {"rate": 0.7}]
    wanted = {"max_epochs": 3, "budget": 30, "candidates": candidates, "policy": "random", "store": url}
    return ft.tune(train, SPACE, callbacks=callbacks, **wanted | changes)


def check(notices, result):
    """What must hold of the notices of a whole study, in whichever process it was trained."""
    assert notices[-1] == ft.Notice("ended", text=result.reason)
    for run in result.runs:
        mine = [n for n in notices if n.run == run.number]
        assert all(n.config == run.config for n in mine)
        assert [(n.epoch, n.loss) for n in mine if n.kind == "epoch"] == list(enumerate(run.losses, 1))
        assert mine[0].kind == "decided"
        assert mine[-1].kind == run.state
        for before, after in itertools.pairwise(mine):
            assert before.epoch <= after.epoch
            assert before.kind not in ("finished", "diverged", "failed"), "it continued after its end"
            if before.kind == "frozen":
                assert after.kind == "decided"
        failed = [n.text for n in mine if n.kind == "failed"]
        assert failed == ([f"run {run.number}: RuntimeError: out of luck"] if run.state == "failed" else [])
    assert all(n.text for n in notices if n.kind == "decided")


def test_everything_in_this_process_is_reported(url):
    notices = []
    result = tuned(spoilt, url, [notices.append])
    check(notices, result)
    assert {n.kind for n in notices} >= {"decided", "epoch", "frozen", "finished", "diverged", "failed", "ended"}
    assert len({n.decision for n in notices if n.kind == "decided"}) == sum(n.kind == "decided" for n in notices)


@pytest.mark.slow
def test_everything_in_other_processes_is_reported(url):
    notices = []
    check(notices, tuned(spoilt, url, [notices.append], workers=2))


def test_a_continued_study_reports_only_what_is_new(url):
    first, second = [], []
    tuned(descend, url, [first.append], budget=3, candidates=[GOOD, BAD])
    tuned(descend, url, [second.append], budget=6, candidates=[GOOD, BAD])
    reported = [(n.run, n.epoch) for n in first + second if n.kind == "epoch"]
    assert len(reported) == len(set(reported)) == 6


def test_a_callback_that_raises_is_reported_and_the_others_are_called(url, capsys):
    notices = []

    def broken(notice):
        raise ValueError(f"no connection for {notice.kind}")

    result = tuned(spoilt, url, [broken, notices.append])
    check(notices, result)
    with Store(url) as store:
        [said] = [event for event in store.open("study").events() if event.kind == CALLBACK_FAILED]
    assert "the callback broken raised ValueError: no connection for decided" in said.text
    assert "raise ValueError" in said.details["traceback"]
    assert capsys.readouterr().err.count("the study continues") == 1


def test_an_end_by_an_error_is_reported_too(url):
    notices = []
    with pytest.raises(ft.StudyError, match="failed in all"):
        tuned(lambda run: 1 / 0, url, [notices.append])
    assert notices[-1].kind == "ended"
    assert "ZeroDivisionError" in notices[-1].text
    with pytest.raises(ft.StudyError, match="'text' cannot be called"):
        tuned(descend, url, ["text"])


def test_a_callback_may_end_the_search_as_ctrl_c_does(url, tmp_path, monkeypatch):
    monkeypatch.setenv(LOG, str(tmp_path / "log"))

    def enough(notice):
        if notice.kind == "epoch" and notice.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(descend, url, [enough], candidates=[GOOD], max_epochs=3)
    result = tuned(descend, url, [], candidates=[GOOD])
    assert [run.state for run in result.runs] == ["finished"]
    assert (tmp_path / "log").read_text().splitlines() == ["1 1", "1 2", "1 3"], "an epoch was trained again"
