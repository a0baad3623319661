"""Commands that train: run (a function, a command, a study file), check, worker, demo."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import freezethaw as ft
from freezethaw.cli import formatting
from freezethaw.cli.training_source import read_space, read_study
from freezethaw.study import session_of
from tests.cli.conftest import SPACE, SPACE_FILE
from tests.trainers.bench import script
from tests.trainers.test_command import SHELL

EXAMPLES = Path(__file__).parents[2] / "examples"
SEARCH = ["run", "train.py:train", "--space", "space.toml", "--max-epochs", "6", "--budget", "14"]


def test_a_function_and_the_same_again_with_a_greater_budget(cli, training):
    done = cli(*SEARCH, "--name", "mine")
    assert "ended: budget spent: 14 epochs" in done.stdout
    assert "best: run" in done.stdout
    assert "to continue: the same command with a larger budget" in done.stdout
    assert "freezethaw status mine.db --name mine" in done.stdout
    study = ft.Study.open(training / "mine.db")
    shown = re.findall(r"^run +(\d+)  epoch +(?:\d+-)?(\d+)  loss (\S+) +(.*)$", done.stdout, re.MULTILINE)
    decisions = session_of(study).history().decisions
    for number, epoch, loss, reason in shown:  # each with its own loss, and the reason of the decision that trained it
        assert loss == f"{study.runs[int(number) - 1].losses[int(epoch) - 1]:.5g}"
        [own] = [d for d in decisions if d.decision.run == int(number) and d.decision.to_epoch == int(epoch)]
        assert reason == own.decision.reason
    assert len(shown) == len(decisions), "a decision was not shown"
    study.close()
    again = json.loads(cli(*SEARCH, "--name", "mine", "--budget", "20", "--json").stdout)
    assert again["epochs"] == 20
    study = ft.Study.open(f"sqlite:///{training}/mine.db", "mine")
    assert sum(run.epoch for run in study.runs) == 20
    study.close()
    assert Path(again["best"]["checkpoint"]).is_dir()
    best = json.loads(cli("best", "sqlite:///mine.db", "--json").stdout)
    assert best["checkpoint"] == again["best"]["checkpoint"]
    assert "metric.accuracy" in cli("export", "sqlite:///mine.db").stdout


def test_tags_are_shown_found_and_kept(cli, training):
    url = "sqlite:///study.db"
    cli(*SEARCH, "--quiet", "--budget", "2", "--tag", "mnist", "--tag", "first try")
    cli(*SEARCH, "--quiet", "--budget", "3")
    assert "tags      mnist, first try" in cli("status", url).stdout
    assert json.loads(cli("status", url, "--json").stdout)["tags"] == ["mnist", "first try"]
    assert "mnist, first try" in cli("studies", url, "--tag", "mnist").stdout
    assert cli("studies", url, "--tag", "mnist", "--tag", "x").stdout == "no study with this tag\n"
    for words in ([], ["--runs"]):
        rows = json.loads(cli("export", url, "--json", *words).stdout)
        assert {row["tags"] for row in rows} == {"mnist, first try"}
    assert "without a comma" in cli(*SEARCH, "--tag", "a,b", code=1).stderr


def test_the_function_is_not_hidden_by_its_module(cli, training):
    cli(*SEARCH, "--quiet", "--budget", "2")
    assert not isinstance(ft.tune, type(ft))


def test_two_workers(cli, training):
    done = cli(*SEARCH, "--workers", "2", "--quiet", process=True)
    assert "ended: budget spent: 14 epochs" in done.stdout
    assert "epoch    1  loss" not in done.stdout
    assert (training / "study.db").is_file()


def test_a_command(cli, training):
    script(training, SHELL)
    words = ["run", "--space", "space.toml", "--max-epochs", "4", "--budget", "8", "--json", "--name", "sh"]
    found = json.loads(cli(*words, "--", "./train.sh", "--name", "not ours").stdout)
    assert found["epochs"] == 8
    assert found["name"] == "sh"
    assert "give a training function or a command" in cli(*SEARCH, "--", "./train.sh", code=2).stderr


STUDY = f"""
name = "of a file"
train = "train.py:train"
max_epochs = 6
budget = 10
seed = 3
store = "sqlite:///from_file.db"
finish_best = false
checkpoints = {{ folder = "kept", gb = 1.0, every = 2 }}

{SPACE_FILE.replace("[rate]", "[space.rate]").replace("[kind]", "[space.kind]")}
"""


def test_a_study_file(cli, training):
    (training / "folder").mkdir()
    (training / "train.py").rename(training / "folder" / "train.py")
    (training / "folder" / "study.toml").write_text(STUDY)
    found = json.loads(cli("run", "folder/study.toml", "--json").stdout)
    assert (found["name"], found["epochs"], found["store"]) == ("of a file", 10, "sqlite:///from_file.db")
    assert (training / "kept").is_dir()
    more = json.loads(cli("run", "folder/study.toml", "--json", "--budget", "12", "--repeats", "2").stdout)
    assert more["epochs"] == 12
    study = ft.Study.open("sqlite:///from_file.db", "of a file")
    assert (study.definition.repeats, study.definition.model) == (2, "luck")
    study.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_epoch = 3", "unknown key 'max_epoch'; did you mean 'max_epochs'?"),
        ("zzz = 3", "unknown key 'zzz'; known keys: name, train"),
        ("max_epochs = 'three'", "max_epochs is 'three'; it must be of type int"),
        ("workers = true", "workers is True; it must be of type int"),
        ("train = 'a.py'\ncommand = ['b']", "give train or command, not both"),
        ("this is no toml", "is not valid TOML"),
        (
            "train = 'train.py:train'\nmax_epochs = 6\nbudget = {epoch = 3}\n[space]\nx = 1.0",
            "budget: unknown key 'epoch'",
        ),
        ("train = 'train.py:nothing'\n[space]\nx = 1", "train.py has no 'nothing'"),
        ("command = ['./missing']\n[space]\nx = 1", "'./missing' is not found"),
        ("train = 'train.py:train'\n[space.x]\ntype = 'floaty'", "type is 'floaty'"),
    ],
)
def test_study_files_with_mistakes(cli, training, text, message):
    (training / "wrong.toml").write_text(text)
    done = cli("run", "wrong.toml", code=1)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "train.py:train"], "--space FILE is required"),
        (["run", "train.py:train", "--space", "space.toml"], "--max-epochs is required"),
        (["run", "train.py:train", "--space", "space.toml", "--max-epochs", "5"], "a limit is required"),
    ],
)
def test_missing_arguments_are_named(cli, training, words, message):
    assert message in cli(*words, code=2).stderr


def test_spaces(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE_FILE)
    (tmp_path / "study.toml").write_text(STUDY)
    assert ft.Space.from_dict(read_space(tmp_path / "space.toml")) == SPACE
    assert ft.Space.from_dict(read_space(tmp_path / "study.toml")) == SPACE
    assert read_study(tmp_path / "study.toml")["seed"] == 3
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(ft.SpaceError, match="has no parameter"):
        read_space(tmp_path / "empty.toml")


def test_a_training_that_fails_is_one_line_and_its_traceback(cli, training):
    (training / "train.py").write_text("def train(run):\n    raise ValueError('no data')\n")
    done = cli(*SEARCH, "--quiet", code=1)
    assert "no data" in done.stderr
    assert done.stderr.splitlines()[0].endswith("ValueError: no data")
    assert "Traceback (most recent call last)" in done.stderr  # of the training


def test_interrupted_and_continued(cli, training):
    (training / "train.py").write_text(
        (training / "train.py")
        .read_text()
        .replace("import json", "import json, time", 1)
        .replace("        speed = ", "        time.sleep(0.2)\n        speed = ", 1)
    )
    words = [sys.executable, "-m", "freezethaw", *SEARCH]
    with subprocess.Popen(words, cwd=training, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while "epoch" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 3
    assert "the same command continues the study" in errors
    assert "Traceback" not in errors
    study = ft.Study.open(f"sqlite:///{training}/study.db", "study")
    assert not study.pending
    assert sum(run.epoch for run in study.runs) < 14
    study.close()
    assert json.loads(cli(*SEARCH, "--json").stdout)["epochs"] == 14


def test_a_worker_joins(cli, training):
    url = f"sqlite:///{training}/joined.db"
    ft.Study(SPACE, max_epochs=6, name="joined", store=url, budget=10).close()
    done = cli("worker", "--name", "joined", "--store", url, "train.py:train", process=True)
    assert done.stdout == "ended: budget spent: 10 epochs; this worker trained 10 epochs\n"
    assert json.loads(cli("status", "--json", store=url).stdout)["epochs"] == 10
    assert "nothing to train" in cli("worker", code=2).stderr
    assert "--store is required" in cli("worker", "train.py:train", code=2).stderr
    done = cli("worker", "--name", "nowhere", "train.py:train", store=url, code=1)  # the store of the environment
    assert "there is no study 'nowhere'" in done.stderr
    missing = cli("worker", "train.py:train", "--store", "sqlite:///missing.db", code=1)
    assert "there is no store" in missing.stderr
    assert not (training / "missing.db").exists()


def test_a_worker_joins_with_a_command_and_says_so_in_json(cli, training):
    script(training, SHELL)
    url = f"sqlite:///{training}/joined.db"
    ft.Study(SPACE, max_epochs=6, name="joined", store=url, budget=10).close()
    found = json.loads(cli("worker", "--json", "--store", url, "--", "./train.sh", process=True).stdout)
    assert found == {
        "store": url,
        "name": "joined",
        "reason": "budget spent: 10 epochs",
        "epochs": 10,
        "left": False,
    }


def test_a_worker_keeps_to_the_disk_budget_of_the_study_or_changes_it_for_all(cli, training):
    url = f"sqlite:///{training}/joined.db"
    wide = {"max_epochs": 6, "name": "joined", "store": url, "policy": "random", "finish_best": False}
    ft.Study(SPACE, budget=4, **wide).close()
    words = ("worker", "train.py:train", "--store", url)
    cli(*words, "--gb", "1e-9", process=True)  # a byte: all goes that may
    assert json.loads(cli("status", "--json", store=url).stdout)["disk_gb"] == 1e-9
    before = _events(cli, url, "checkpoint evicted")
    assert before
    ft.Study(SPACE, budget=8, **wide).close()
    cli(*words, process=True)
    assert len(_events(cli, url, "checkpoint evicted")) > len(before), "without --gb the budget stays"
    assert json.loads(cli("status", "--json", store=url).stdout)["disk_gb"] == 1e-9


def _events(cli, url, kind):
    found = json.loads(cli("status", "--json", "--last", "100", store=url).stdout)["events"]
    return [event for event in found if event["kind"] == kind]


def test_a_worker_joins_with_the_study_file_of_the_search(cli, training):
    (training / "mine.toml").write_text(
        f'train = "train.py:train"\nmax_epochs = 6\nbudget = 4\n{SPACE_FILE}'.replace("\n[", "\n[space.")
    )
    cli("run", "mine.toml", "--quiet", process=True)
    assert "this worker trained 0 epochs" in cli("worker", "mine.toml", process=True).stdout
    cli("run", "mine.toml", "--quiet", "--budget", "5", process=True)
    assert len(list((training / "checkpoints").glob("mine-*"))) == 1, "both keep checkpoints at the same place"


def test_a_worker_that_gets_sigterm(cli, training):
    url = f"sqlite:///{training}/joined.db"
    ft.Study(SPACE, max_epochs=1000, name="joined", store=url, budget=100_000).close()
    words = [sys.executable, "-m", "freezethaw", "worker", "train.py:train", "--store", url, "--json"]
    for how, code in ((signal.SIGTERM, 3), (signal.SIGHUP, 3), (signal.SIGINT, 3)):
        with subprocess.Popen(words, cwd=training, stdout=subprocess.PIPE, text=True) as process:
            before = json.loads(cli("status", "--json", store=url).stdout)["epochs"]
            while json.loads(cli("status", "--json", store=url).stdout)["epochs"] == before:
                assert process.poll() is None
                time.sleep(0.1)
            process.send_signal(how)
            found = json.loads(process.communicate()[0])
        assert process.returncode == code
        assert found["left"]
        assert found["epochs"] > 0


def test_check(cli, training):
    done = cli("check", "train.py:train", "--space", "space.toml")
    assert "passed: 4 epochs" in done.stdout
    assert "training epochs 1 to 2, then freezing and killing ..." in done.stderr
    done = cli("check", "train.py:forgets", "--space", "space.toml", code=1)
    assert "the checkpoint is never loaded" in done.stdout
    words = ["check", "train.py:forgets", "--space", "space.toml", "--epochs", "2", "--config", "rate=0.3", "--json"]
    found = json.loads(cli(*words, code=1).stdout)
    assert found["config"]["rate"] == 0.3
    assert found["passed"] is False
    assert len(found["uninterrupted"]) == 2


def test_check_of_a_command(cli, training):
    script(training, SHELL)
    assert "passed" in cli("check", "--space", "space.toml", "--seed", "3", "--", "./train.sh").stdout


def test_the_example_in_shell_passes_the_check_and_runs(cli, tmp_path):
    assert "passed" in cli("check", EXAMPLES / "shell" / "study.toml").stdout
    found = json.loads(cli("run", EXAMPLES / "shell" / "study.toml", "--json", "--budget", "15").stdout)
    assert found["epochs"] == 15


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_example_in_c_passes_the_check_and_runs(cli, tmp_path):
    for name in ("study.toml", "train.c"):
        shutil.copy(EXAMPLES / "c" / name, tmp_path)
    subprocess.run(["cc", "-Wall", "-Werror", "-O2", "-o", "train", "train.c", "-lm"], cwd=tmp_path, check=True)
    assert "passed" in cli("check", "study.toml").stdout
    found = json.loads(cli("run", "study.toml", "--json", "--budget", "40", process=True).stdout)
    assert found["epochs"] == 40
    assert found["best"]["loss"] < 0.1


def test_the_example_of_digits_passes_the_check(cli):
    pytest.importorskip("sklearn")
    assert "passed" in cli("check", EXAMPLES / "digits.toml", process=True).stdout


def test_the_demo(cli, tmp_path):
    pytest.importorskip("sklearn")
    found = cli("demo", "--epochs", "12", process=True)
    assert "best: run" in found.stdout
    assert (tmp_path / "freezethaw-demo" / "study.db").is_file()
    assert "run" in cli("best", "sqlite:///freezethaw-demo/study.db").stdout
    assert os.listdir(tmp_path) == ["freezethaw-demo"]  # noqa: PTH208


def test_the_progress_says_once_that_a_run_has_failed(cli, training):
    (training / "train.py").write_text(
        "def train(run):\n    run.config['rate'] < 0.1 or 1 / 0\n    for e in run.epochs(): run.report(1 / e)\n"
    )
    shown = cli(*SEARCH, "--seed", "1").stdout
    failed = [line.split()[1] for line in shown.splitlines() if "failed" in line]
    assert failed
    assert len(failed) == len(set(failed))
    again = cli(*SEARCH, "--seed", "1", "--budget", "16").stdout
    assert not set(failed) & {line.split()[1] for line in again.splitlines() if "failed" in line}


NOISY = """
import os
print("imported")

def train(run):
    for epoch in run.epochs():
        print("trained")
        os.system("echo child")
        run.report(1 / epoch, save=lambda folder: (folder / "x").write_text("x"))
"""


@pytest.mark.parametrize("words", [["run", "--workers", "1"], ["run", "--workers", "2"], ["worker"], ["check"]])
def test_the_output_of_a_training_is_not_part_of_the_json(cli, training, words):
    (training / "train.py").write_text(NOISY)
    url = f"sqlite:///{training}/study.db"
    options = {"run": ["--max-epochs", "3", "--budget", "4"], "worker": ["--store", url], "check": ["--epochs", "2"]}
    if words == ["worker"]:
        ft.Study(SPACE, max_epochs=3, store=url, budget=4).close()
    else:
        words = [*words, "--space", "space.toml"]
    done = cli(*words, *options[words[0]], "train.py:train", "--json", process=True)
    assert json.loads(done.stdout)
    assert "imported" in done.stderr


def test_a_timeout_ends_a_search_and_the_same_command_continues_it(cli, training):
    wanted = ("run", "train.py:train", "--space", "space.toml", "--max-epochs", "1000", "--json")
    found = json.loads(cli(*wanted, "--timeout", "2s", process=True).stdout)
    assert found["reason"].startswith("timeout: 2 s have passed")
    more = json.loads(cli(*wanted, "--timeout", "1h", "--budget", str(found["epochs"] + 2), process=True).stdout)
    assert more["epochs"] == found["epochs"] + 2
    assert "timeout must be a time such as 90, 90s, 15m, 2h" in cli(*wanted, "--timeout", "soon", code=1).stderr
    assert "a limit is required" in cli(*wanted, code=2).stderr


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400)])
def test_durations(text, seconds):
    assert formatting.parse_duration(text) == seconds
