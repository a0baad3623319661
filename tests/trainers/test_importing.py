"""Trainings by name: found, imported where they are called, and clear messages where they are not there."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from freezethaw.errors import TrainingError
from freezethaw.trainers import NamedTrainer, named
from tests.trainers.bench import Bench

FUNCTION = """
import dataclasses
import beside

@dataclasses.dataclass
class State:
    weight: float = 1.0

def train(run):
    state = State()
    for epoch in run.epochs():
        run.report(beside.loss(epoch), save=lambda folder: (folder / "w").write_text("1"))

class Other:
    def __init__(self, config, seed): self.epoch = 0
    def train_epoch(self): return 2.0
    def save(self, folder): (folder / "w").write_text("1")
    def load(self, folder): pass

number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mytraining.py").write_text(FUNCTION)
    (tmp_path / "beside.py").write_text("def loss(epoch):\n    return 1 / epoch\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize("text", ["mytraining.py:train", "mytraining.py", "mytraining:train", "mytraining"])
def test_a_function_of_a_file_or_a_module(folder, text):
    assert Bench(folder).train(named(text), [2]) == [1.0, 0.5]


def test_a_class(folder):
    assert Bench(folder).train(named("mytraining.py:Other"), [2]) == [2.0, 2.0]


def test_it_is_sent_by_name_to_a_new_process(folder, tmp_path_factory):
    sent = pickle.dumps(named("mytraining.py:train"))
    code = f"import pickle; print(pickle.loads({sent!r}).function().__name__)"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=elsewhere)
    assert found.stdout.strip() == "train"


def test_a_file_with_the_name_of_a_library(folder):
    (folder / "json.py").write_text("def train(run):\n    run.mark = 'ours'\n")
    found = named("json.py:train")

    class Run:
        pass

    run = Run()
    found(run)
    assert run.mark == "ours"
    assert hasattr(sys.modules["json"], "dumps")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere.py:train", r"there is no file .*nowhere\.py"),
        ("nowhere.module:train", "there is no module 'nowhere.module'"),
        ("mytraining.py:trian", "has no 'trian'; did you mean 'train'"),
        ("mytraining.py:xyz", "it has Other, State, train"),
        ("mytraining.py:number", "is a int, not a function or a class"),
        ("mytraining.py:beside", "is a module, not a function or a class"),
        ("mytraining.py:State", "State cannot be trained: it has no method train_epoch"),
        ("", "is not the name of a training"),
        (":train", "is not the name of a training"),
        ("a:b:c", "is not the name of a training"),
        ("some/folder:train", "is not the name of a training"),
    ],
)
def test_wrong_names(folder, text, message):
    with pytest.raises(TrainingError, match=message):
        named(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import not_installed_anywhere", r"broken\.py, line 1: ModuleNotFoundError.*not_installed_anywhere"),
        ("def train(run)\n    pass", "SyntaxError"),
        ("x = 1\nraise ValueError('no data')", r"broken\.py, line 2: ValueError: no data"),
    ],
)
def test_a_file_that_cannot_be_imported(folder, text, message):
    (folder / "broken.py").write_text(text)
    for _ in range(2):  # not found half-made the second time
        with pytest.raises(TrainingError, match=message):
            named("broken.py:train")


def test_names_are_plain():
    assert str(NamedTrainer("package.module", "train")) == "package.module:train"


UNGUARDED = """
import freezethaw as ft


def train(run):
    for epoch in run.epochs():
        run.report(1 / epoch)


ft.tune(train, {"x": ft.Float(0.0, 1.0)}, max_epochs=2, budget=4, workers=2, store="unguarded.db")
"""


def test_a_module_that_starts_a_search_when_it_is_imported_is_refused(tmp_path, monkeypatch):
    (tmp_path / "unguarded.py").write_text(UNGUARDED)
    with pytest.raises(TrainingError, match=r'unguarded.py starts a search while .* `if __name__ == "__main__":`'):
        named("unguarded.py", tmp_path)
    assert not list(tmp_path.glob("*.db"))


def test_workers_do_not_start_workers(tmp_path):
    (tmp_path / "unguarded.py").write_text(UNGUARDED)
    command = [sys.executable, "-c", "import unguarded"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode != 0
    assert "unguarded starts a search while it is imported for its training" in found.stderr
