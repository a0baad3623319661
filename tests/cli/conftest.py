from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

import freezethaw as ft
from freezethaw.cli import app

SPACE = ft.Space(rate=ft.Float(1e-3, 0.5, log=True), kind=ft.Choice("a", "b"))
SPACE_FILE = """
[rate]
type = "float"
low = 1e-3
high = 0.5
log = true

[kind]
type = "choice"
values = ["a", "b"]
"""
TRAINING = """
import json

def train(run):
    weight, speed = 4.0, 0.0
    if run.checkpoint:
        weight, speed = json.loads((run.checkpoint / "state.json").read_text())
    for epoch in run.epochs():
        speed = 0.5 * speed - run.config["rate"] * weight
        weight += speed
        save = lambda folder: (folder / "state.json").write_text(json.dumps([weight, speed]))
        run.report(weight**2 + 0.1, save=save, accuracy=1 - weight)

def forgets(run):
    weight = 4.0
    for epoch in run.epochs():
        weight *= 1 - run.config["rate"]
        run.report(weight, save=lambda folder: (folder / "w").write_text(repr(weight)))
"""


def advance(study, count):
    for _ in range(count):
        decision = study.ask()
        x = 3.0 * decision.config["rate"] + (decision.config["kind"] == "a")
        study.tell(decision, [x + 1 / e for e in range(decision.from_epoch + 1, decision.to_epoch + 1)])


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    """A store with one study of a dozen decisions and one that another process has begun."""
    folder = tmp_path_factory.mktemp("filled")
    url = f"sqlite:///{folder}/filled.db"
    study = ft.Study(SPACE, max_epochs=9, name="one", store=url, budget=40, seed=1)
    advance(study, 12)
    failed = study.ask()
    study.cancel(failed, "out_of_memory")
    study.ask()  # and never told
    yield url
    study.close()


class Cli:
    """Runs commands as a user does: in another process with `process=True`, else in this one, which is quicker."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, *words, store=None, code=0, process=False):
        words = [str(word) for word in words]
        done = self._process(words, store) if process else self._here(words, store)
        assert done.code == code, done.stdout + done.stderr
        assert (
            "Traceback" not in done.stderr.partition("the first failure: ")[0]
        )  # after it, that of the user's training
        assert "\x1b" not in done.stdout + done.stderr
        return done

    def _here(self, words, store):
        found = CliRunner().invoke(app, words, prog_name="freezethaw", env={"FREEZETHAW_STORE": store})
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return Done(found.exit_code, found.stdout, found.stderr)

    def _process(self, words, store):
        environment = {k: v for k, v in os.environ.items() if k != "FREEZETHAW_STORE"}
        environment |= {"FREEZETHAW_STORE": store} if store else {}
        done = subprocess.run(
            [sys.executable, "-m", "freezethaw", *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=environment,
        )
        return Done(done.returncode, done.stdout, done.stderr)


@dataclass
class Done:
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path)


@pytest.fixture
def training(tmp_path):
    """A folder with a training and its space."""
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "space.toml").write_text(SPACE_FILE)
    return tmp_path
