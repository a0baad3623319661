"""The command line as a new user tries it: without arguments, with wrong ones, without a store, into a pipe."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

COMMANDS = [
    "studies", "status", "best", "forecast", "explain", "replay", "export", "run", "worker", "check", "demo",
    "stop", "resume", "enqueue", "budget", "delete", "dashboard", "report",
]  # fmt: skip
LOOKING = {
    "studies": [],
    "status": [],
    "best": [],
    "forecast": ["1"],
    "explain": ["1"],
    "replay": ["1"],
    "export": [],
    "stop": [],
    "resume": [],
    "enqueue": ["1"],
    "budget": [],
    "delete": ["--yes"],
}
READING = [name for name in LOOKING if name not in ("stop", "resume", "enqueue", "budget", "delete")]
SECRET = "hunter2"


def test_help_lists_every_command(cli):
    shown = cli("--help").stdout
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert "..." not in shown.partition("Commands:")[2]
    assert "Usage: freezethaw" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(cli, name):
    shown = cli(name, "--help").stdout
    assert "xample" in shown
    assert f"freezethaw {name}" in shown
    assert "--json" in shown


def test_help_is_quick():
    """It takes less than half of what importing the package with its numerical libraries takes."""

    def seconds(*words):
        taken = []
        for _ in range(4):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(taken)

    everything = seconds("-c", "import freezethaw as ft; ft.Study(ft.Space(x=ft.Float(0, 1)), 2).ask()")
    assert seconds("-m", "freezethaw", "--help") < everything / 2


def test_help_imports_nothing_heavy():
    heavy = ("numpy", "scipy", "sqlalchemy", "rich.console", "sklearn", "pandas")
    code = f"""
import sys
sys.argv = ["freezethaw", "--help"]
import freezethaw.cli
try:
    freezethaw.cli.app()
except SystemExit:
    pass
print("heavy:", [m for m in {heavy!r} if m in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip().endswith("heavy: []")


def test_without_arguments(cli):
    done = cli(code=2, process=True)
    assert "Usage: freezethaw" in done.stdout + done.stderr


@pytest.mark.parametrize("name", LOOKING)
def test_a_store_is_needed(cli, name):
    done = cli(name, *LOOKING[name], code=2)
    assert f"freezethaw {name} STORE" in done.stderr
    assert "FREEZETHAW_STORE" in done.stderr


@pytest.mark.parametrize("name", ["forecast", "explain", "replay"])
def test_an_argument_is_needed(cli, filled, name):
    assert "Missing argument" in cli(name, store=filled, code=2).stderr


@pytest.mark.parametrize("name", LOOKING)
def test_a_store_that_is_not_there(cli, tmp_path, name):
    file = tmp_path / "missing.db"
    done = cli(name, f"sqlite:///{file}", *LOOKING[name], code=1)
    assert done.stderr.startswith("freezethaw: there is no store")
    assert len(done.stderr.splitlines()) == 1
    assert not file.exists()


@pytest.mark.parametrize("name", LOOKING)
def test_a_password_is_never_shown(cli, name):
    url = f"postgresql+psycopg://user:{SECRET}@127.0.0.1:9/none?sslpassword={SECRET}"
    done = cli(name, url, *LOOKING[name], code=1)
    assert SECRET not in done.stdout + done.stderr
    assert "***" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    misplaced = cli(name, *LOOKING[name], url, url, code=2)
    assert SECRET not in misplaced.stdout + misplaced.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "No such command"),
        (["status", "--nothing"], "No such option"),
        (["status", "--last", "many"], "--last"),
        (["explain", "first"], "NUMBER"),
        (["explain", "0"], "NUMBER"),
        (["forecast", "rate"], "neither a run number nor name=value"),
        (["forecast", "{rate}"], "not valid JSON"),
        (["forecast", "1", "--epochs", "soon"], "expected numbers separated by commas"),
        (["forecast", "1", "--epochs", "-3"], "epochs must be positive"),
        (["export", "--format", "xls"], "xls"),
        (["export", "-o", "table.xlsx"], "table.xlsx: cannot write .xlsx files; use .csv, .json or .parquet"),
        (["run"], "nothing to train"),
        (["check"], "nothing to train"),
        (["worker"], "nothing to train"),
        (["run", "study.toml", "--budget", "0"], "--budget"),
    ],
)
def test_wrong_usage(cli, filled, words, message):
    done = cli(*words, store=filled, code=2)
    assert message in done.stderr
    assert "Invalid value: " not in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["explain", "999"], "decision 999"),
        (["replay", "999"], "decision 999"),
        (["forecast", "999"], "there is no run 999; the study has"),
        (["forecast", "rate=7", "kind=a"], "rate"),
        (["forecast", "rat=0.1", "kind=a"], "rat"),
        (["status", "--name", "nowhere"], "there is no study 'nowhere'"),
        (["status", "mysql://x"], "stores of kind 'mysql' are not known"),
        (["status", "nonsense"], "there is no store sqlite:///nonsense: no such file"),
        (["status", "sqlite:/nonsense:x"], "cannot read the store's URL"),
        (["run", "missing.toml"], "cannot read missing.toml"),
        (["run", "missing.py:train"], "there is no file"),
        (["check", "missing.py:train"], "there is no file"),
    ],
)
def test_wrong_values(cli, filled, words, message):
    done = cli(*words, store=filled, code=1)
    assert message in done.stderr
    assert done.stderr.startswith("freezethaw: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_file_is_a_store_too(cli, filled):
    file = filled.removeprefix("sqlite:///")
    assert cli("status", file).stdout == cli("status", filled).stdout


def test_a_study_file_without_its_ending(cli, tmp_path):
    (tmp_path / "mine.toml").write_text("")
    assert "did you mean mine.toml?" in cli("run", "mine", code=2).stderr


def test_no_store_at_all(cli, tmp_path):
    (tmp_path / "text.db").write_text("this is no database, but a text that someone wrote")
    done = cli("status", f"sqlite:///{tmp_path}/text.db", code=1, process=True)
    assert done.stderr.startswith("freezethaw: ")


def test_into_a_file(filled, tmp_path):
    """The class `Cli` checks all other output for colours too."""
    with (tmp_path / "out").open("wb") as out:
        words = [sys.executable, "-m", "freezethaw", "status", filled]
        subprocess.run(words, stdout=out, check=True, env=dict(os.environ) | {"TERM": "xterm-256color"})
    text = (tmp_path / "out").read_text()
    assert text
    assert "\x1b" not in text


@pytest.mark.parametrize("name", READING)
def test_into_a_closed_pipe(cli, filled, name):
    words = [sys.executable, "-m", "freezethaw", name, filled, *LOOKING[name]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_the_version(cli):
    import freezethaw

    assert cli("--version").stdout.strip() == f"freezethaw {freezethaw.__version__}"
