"""Commands that change a study: stop, resume, enqueue, budget, delete."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import freezethaw as ft
from tests.cli.conftest import SPACE, advance


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path}/steered.db"
    with ft.Study(SPACE, max_epochs=9, store=url, budget=20, seed=1) as study:
        advance(study, 4)
    return url


def test_stop_and_resume(cli, url):
    assert "stopped" in cli("stop", url).stdout
    with ft.Study.open(url) as study:
        with pytest.raises(ft.StudyFinished, match="stopped by the user"):
            study.ask()
        assert "may continue" in cli("resume", url).stdout
        study.cancel(study.ask())


def test_enqueue_a_configuration_and_a_run(cli, url):
    assert "rate=0.1, kind=a, to epoch 3" in cli("enqueue", url, "rate=0.1", "kind=a", "--to-epoch", "3").stdout
    assert "run 1, to epoch 9" in cli("enqueue", url, "1").stdout
    with ft.Study.open(url) as study:
        first = study.ask()
        assert (dict(first.config), first.to_epoch) == ({"rate": 0.1, "kind": "a"}, 3)
        second = study.ask()
        assert (second.run, second.to_epoch) == (1, 9)
        study.cancel(first)
        study.cancel(second)
    assert "kind" in cli("enqueue", url, "rate=0.1", "kind=c", code=1).stderr


def test_budget(cli, url):
    trained = json.loads(cli("budget", url, "--json").stdout)["trained"]
    assert f"study study: 20 epochs; {trained} epochs are trained" in cli("budget", url).stdout
    assert "50 epochs" in cli("budget", url, "50").stdout
    assert "50 epochs, 2 hours of training" in cli("budget", url, "--training-hours", "2").stdout
    with ft.Study.open(url) as study:
        assert study.definition.budget == ft.Budget(epochs=50, training_hours=2.0)


def test_delete_asks_first(cli, url):
    done = cli("delete", url, code=1)
    assert "Delete study study with" in done.stdout + done.stderr
    assert "study" in cli("studies", url).stdout
    assert "is deleted" in cli("delete", url, "--yes").stdout
    assert cli("studies", url).stdout == "no study yet\n"
    assert "no study" in cli("status", url, code=1).stderr


def test_the_environment_is_the_default_of_the_store(cli, url):
    for words in (
        ("explain", "1"),
        ("status",),
        ("forecast", "1"),
        ("forecast", "rate=0.1", "kind=a"),
        ("budget", "30"),
    ):
        assert cli(*words, store=url).stdout
    with ft.Study.open(url) as study:
        assert study.definition.budget.epochs == 30
    other = url.replace("steered", "other")
    ft.Study(SPACE, max_epochs=9, store=other, name="other").close()
    assert "study other" in cli("status", other.removeprefix("sqlite:///"), store=url).stdout


def test_a_shell_completes_commands():
    environment = os.environ | {
        "_FREEZETHAW_COMPLETE": "complete_bash",
        "COMP_WORDS": "freezethaw st",
        "COMP_CWORD": "1",
    }
    words = [sys.executable, "-c", "from freezethaw.cli import app; app(prog_name='freezethaw')"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["status", "stop", "studies"]
