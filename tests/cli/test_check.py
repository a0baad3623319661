"""`check`: passes what is right, and gives planted mistakes the right diagnosis."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from freezethaw.errors import TrainingError
from freezethaw.runtime import check as checking
from freezethaw.runtime.check_process import changed, hashes
from freezethaw.trainers import command, named
from tests.trainers.bench import script
from tests.trainers.test_command import C_PROGRAM, SHELL

TRAININGS = Path(__file__).parent / "trainings.py"
CONFIG = {"rate": 0.1, "momentum": 0.8}


def checked(name, **options):
    return checking.check(named(f"{TRAININGS}:{name}"), CONFIG, **options)


def test_a_training_that_is_right_passes():
    report = checked("Line", epochs=5)
    assert report.passed
    assert report.uninterrupted == report.thawed
    assert len(report.thawed) == 5
    assert report.frozen_at == 2
    assert not report.notes
    assert report.files == ("epoch.json", "points.json", "random.json", "speed.json", "weights.json")


@pytest.mark.parametrize(
    ("name", "what", "cause"),
    [
        ("OptimiserForgotten", "losses", checking.OPTIMISER),
        ("OffByOne", "losses", checking.OFF_BY_ONE),
        ("OneEpochBack", "losses", checking.OFF_BY_ONE),
        ("shifted", "losses", checking.OFF_BY_ONE),
        ("UnseededSplit", "losses", checking.UNSEEDED_SPLIT),
        ("UnseededTraining", "losses", checking.UNSEEDED),
        ("UnseededAfterThaw", "losses", checking.UNSEEDED_AFTER),
        ("NeverLoaded", "losses", checking.NEVER_LOADED),
        ("never_loads", "losses", checking.NEVER_LOADED),
        ("CounterForgotten", "state", checking.NOT_RESTORED),
        ("CannotLoad", "training", checking.UNREADABLE),
        ("SavesNothing", "state", "pass save= to run.report"),
        ("without_save", "state", "pass save= to run.report"),
        ("stops_early", "epochs", "loop over run.epochs"),
        ("fails", "training", "the training itself fails"),
        ("diverges", "training", "this configuration diverges"),
    ],
)
def test_planted_mistakes_get_the_right_diagnosis(name, what, cause):
    report = checked(name)
    assert not report.passed
    assert report.findings[0].what == what
    assert cause in report.findings[0].cause


def test_a_difference_says_where(tmp_path):
    report = checked("OptimiserForgotten")
    assert "after the thaw the loss of epoch 3 is" in report.findings[0].text
    assert "weights.json" in report.findings[1].text
    assert report.thawed[:2] == report.uninterrupted[:2]


def test_saves_that_differ_by_themselves_are_a_remark():
    report = checked("Stamped")
    assert report.passed
    assert "time.txt" in report.notes[0]


def test_a_pickle_with_other_bytes_passes_if_training_continues_alike():
    report = checked("pickled")
    assert report.passed
    [note] = report.notes
    assert "model.pkl" in note
    assert "nothing is unpickled" in note
    assert "2 more epochs" in note


def test_a_pickle_that_lost_something_is_found_even_if_it_shows_later():
    report = checked("pickled_and_forgotten", epochs=2)  # the losses of both epochs agree
    assert report.uninterrupted == report.thawed
    assert not report.passed
    assert report.findings[0].what == "state"


def test_archives_and_json_are_compared_by_content(tmp_path):
    for place, (date, text) in enumerate(
        [((2020, 1, 1, 0, 0, 0), '{"a": 1, "b": 2}'), ((2021, 1, 1, 0, 0, 0), '{"b": 2, "a": 1}')]
    ):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / "state.json").write_text(text)
        with zipfile.ZipFile(folder / "model.pt", "w") as archive:
            archive.writestr(zipfile.ZipInfo("weights", date), b"123")
    assert hashes(tmp_path / "0") == hashes(tmp_path / "1")
    with zipfile.ZipFile(tmp_path / "1" / "model.pt", "w") as archive:
        archive.writestr("weights", b"124")
    assert changed(hashes(tmp_path / "0"), hashes(tmp_path / "1")) == ["model.pt"]


def test_losses_may_differ_by_a_little():
    """A computation that adds up in another order in each process."""
    assert checked("Wobbles", tolerance=1e-3).passed
    assert checked("Wobbles", tolerance=1e-9).findings[0].cause == checking.UNSEEDED_SPLIT


def test_an_error_is_shown():
    assert "ValueError: no data in /data" in checked("fails").findings[0].text
    assert "KeyError: 'velocity'" in checked("CannotLoad").findings[0].text


def test_commands(tmp_path):
    right = command([str(script(tmp_path, SHELL))])
    assert checking.check(right, CONFIG, seed=3).passed
    wrong = command([str(script(tmp_path, SHELL.replace('value=$(cat "$FREEZETHAW_LOAD/value")', "true"), "wrong.sh"))])
    report = checking.check(wrong, CONFIG, seed=3)
    assert report.findings[0].cause == checking.NEVER_LOADED


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_c_program(tmp_path):
    (tmp_path / "train.c").write_text(C_PROGRAM)
    subprocess.run(["cc", "-o", tmp_path / "train", tmp_path / "train.c"], check=True)
    assert checking.check(command([str(tmp_path / "train")]), {"rate": 0.2}).passed
    broken = C_PROGRAM.replace("fwrite(&speed, sizeof speed, 1, file);", "double z = 0; fwrite(&z, sizeof z, 1, file);")
    (tmp_path / "train.c").write_text(broken)
    subprocess.run(["cc", "-o", tmp_path / "broken", tmp_path / "train.c"], check=True)
    report = checking.check(command([str(tmp_path / "broken")]), {"rate": 0.2})
    assert report.findings[0].cause == checking.OPTIMISER


def test_a_training_that_hangs(tmp_path):
    (tmp_path / "hangs.py").write_text("import time\ndef train(run):\n    time.sleep(60)\n")
    report = checking.check(named(f"{tmp_path}/hangs.py:train"), CONFIG, limit=3)
    assert "took longer than 3 seconds" in report.findings[0].text


def test_too_few_epochs():
    with pytest.raises(TrainingError, match="at least 2 epochs"):
        checked("Line", epochs=1)
