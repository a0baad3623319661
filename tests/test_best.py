"""The checkpoint of the best epoch: from a store, from a call without one, from a folder of one's own."""

from __future__ import annotations

import gc
import json

import pytest
from typer.testing import CliRunner

import freezethaw as ft
from freezethaw.cli import app

SPACE = {"rate": ft.Float(0.05, 0.4)}


def train(run):
    weight = float((run.checkpoint / "weight").read_text()) if run.checkpoint else 3.0
    for epoch in run.epochs():
        weight -= run.config["rate"] * weight
        bump = 0.5 if epoch % 4 == 0 else 0.0  # so that the last epoch is not the best
        run.report(weight**2 + bump, save=lambda folder: (folder / "weight").write_text(repr(weight)))


def loss_of(best):
    return float((best.checkpoint / "weight").read_text()) ** 2


def test_a_study_that_is_opened_has_the_checkpoint_of_its_best_epoch(tmp_path):
    store = tmp_path / "study.db"
    result = ft.tune(train, SPACE, 8, 30, store=store)
    with ft.Study.open(store) as study:
        best = study.best
        assert best == result.best
        assert loss_of(best) == best.loss
    shown = json.loads(CliRunner().invoke(app, ["best", str(store), "--json"]).stdout)
    assert shown["checkpoint"] == str(best.checkpoint)


def test_without_a_store_the_checkpoint_lives_as_long_as_the_result():
    result = ft.tune(train, SPACE, 8, 30)
    best = result.best
    assert loss_of(best) == best.loss
    del result
    gc.collect()
    assert loss_of(best) == best.loss
    folder = best.checkpoint
    del best
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize("stored", [True, False])
def test_checkpoints_in_a_folder_of_ones_own_are_found(tmp_path, stored):
    store = tmp_path / "study.db" if stored else None
    kept = ft.Checkpoints(folder=tmp_path / "elsewhere")
    result = ft.tune(train, SPACE, 8, 20, store=store, checkpoints=kept)
    assert tmp_path / "elsewhere" in result.best.checkpoint.parents
    assert loss_of(result.best) == result.best.loss
    if stored:
        with ft.Study.open(store) as study:
            assert study.best.checkpoint == result.best.checkpoint
        again = ft.tune(train, SPACE, 8, 30, store=store)  # the folder is remembered
        assert tmp_path / "elsewhere" in again.best.checkpoint.parents
        assert not (tmp_path / "checkpoints").exists()


def test_a_study_in_memory_has_no_checkpoint():
    study = ft.Study(SPACE, 4)
    study.tell(study.ask(), 1.0)
    assert study.best.checkpoint is None
