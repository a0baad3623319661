"""Frozen runs in memory: they spare loads, change no loss, and are never of another time than their checkpoint."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

import freezethaw as ft
from freezethaw.records import Checkpoint
from freezethaw.runtime.checkpoints import CheckpointManager, ModelCache
from freezethaw.runtime.training_session import CACHE_OFF, FAILED
from freezethaw.runtime.worker import Worker, WorkerOptions
from freezethaw.store import Store
from freezethaw.study import Study, session_of
from freezethaw.trainers import function_of
from tests.runtime.trainings import SPACE, freeze_after_each_decision


class Walk:
    """Draws from its own generator and from those that all share; both are saved and loaded, as they should be."""

    built = loaded = 0

    def __init__(self, config, seed):
        type(self).built += 1
        self.weight, self.own = 1.0 + config["rate"], random.Random(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - shared by all

    def train_epoch(self):
        draws = (self.own.random(), random.random(), np.random.random())  # noqa: NPY002
        self.weight *= 1 - 0.1 * sum(draws) / 3
        return self.weight

    def save(self, folder):
        state = (self.weight, self.own.getstate(), random.getstate(), np.random.get_state())  # noqa: NPY002
        (folder / "state").write_text(repr(state))

    def load(self, folder):
        type(self).loaded += 1
        state = eval((folder / "state").read_text(), {"array": np.array, "uint32": np.uint32})
        self.weight = state[0]
        self.own.setstate(state[1])
        random.setstate(state[2])
        np.random.set_state(state[3])  # noqa: NPY002


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    np.set_printoptions(threshold=10_000)
    monkeypatch.setattr(Walk, "built", 0)
    monkeypatch.setattr(Walk, "loaded", 0)
    yield
    np.set_printoptions(threshold=1000)


def bench(url, folder, trained=Walk, in_memory=2, **study):
    wanted = {"max_epochs": 9, "policy": "random", "budget": 40, "candidates": [{"rate": r / 4} for r in range(4)]}
    made = Study(SPACE, store=url, **wanted | study)
    session = session_of(made)
    freeze_after_each_decision(session)
    checkpoints, options = CheckpointManager(session.storage, folder), WorkerOptions(in_memory=in_memory)
    worker = Worker(session, function_of(trained), checkpoints, options)
    worker.study = made
    return worker


def advance(worker, run, to_epoch):
    """Thaw a run (or start one) as a request of the user, and train it."""
    study = worker.study
    if run > len(study.runs):
        study.enqueue({"rate": run / 10}, to_epoch)
    else:
        study.thaw(run, to_epoch)
    with contextlib.suppress(ft.AllPending):
        worker.train_decision(study.ask())
    return study.runs[run - 1].losses


def test_the_same_losses_with_and_without(tmp_path):
    """Two runs thawed in turn, seven times each: fourteen loads are spared."""
    found = {}
    for in_memory in (0, 2):
        Walk.built = Walk.loaded = 0
        worker = bench(f"sqlite:///{tmp_path}/{in_memory}.db", tmp_path / str(in_memory), in_memory=in_memory)
        for epoch in range(1, 9):
            for run in (1, 2):
                advance(worker, run, epoch)
        found[in_memory] = [run.losses for run in worker.study.runs], Walk.built, Walk.loaded
        worker.study.close()
    assert found[0][0] == found[2][0]
    assert len(set(found[2][0][0] + found[2][0][1])) == 16
    assert found[0][1:] == (16, 14)
    assert found[2][1:] == (2, 0)


@pytest.mark.parametrize("in_memory", [0, 1, 3])
def test_every_curve_of_a_search_is_that_of_an_uninterrupted_training(url, tmp_path, in_memory):
    kept = ft.Checkpoints(tmp_path / "kept", in_memory=in_memory)
    result = ft.tune(Walk, SPACE, 6, 25, store=url, checkpoints=kept, seed=3, prices=ft.Prices())  # repeats exactly
    assert (Walk.built < result.epochs) or not in_memory
    seeds = session_of(Study(SPACE, 6, seed=3)).training_seed
    for run in result.runs:
        alone = Walk(run.config, seeds(run.number))
        assert run.losses == tuple(alone.train_epoch() for _ in run.losses)


def test_a_run_that_another_worker_advanced_is_loaded(url, tmp_path):
    one, other = bench(url, tmp_path / "kept"), bench(url, tmp_path / "kept")
    alone = bench(f"sqlite:///{tmp_path}/alone.db", tmp_path / "alone")
    for worker, to_epoch, loads in ((one, 2, 0), (other, 4, 1), (one, 5, 1), (one, 6, 0), (other, 8, 1)):
        Walk.loaded = 0
        losses = advance(worker, 1, to_epoch)
        assert (len(losses), Walk.loaded) == (to_epoch, loads), "taken from memory although another worker advanced it"
    assert losses == advance(alone, 1, 8)


def test_only_the_last_few_are_kept(url, tmp_path):
    worker = bench(url, tmp_path / "kept", in_memory=2)
    for run in (1, 2, 3):
        advance(worker, run, 1)
    assert len(worker.models) == 2
    for run, loads in ((3, 0), (2, 0), (1, 1)):
        Walk.loaded = 0
        advance(worker, run, 2)
        assert Walk.loaded == loads
    advance(worker, 1, 9)
    assert len(worker.models) == 1, "a run that is finished is never thawed"


def test_a_model_is_taken_once_and_only_for_its_checkpoint():
    cache, model = ModelCache(3), object()
    cache.keep(Checkpoint(1, 4, "place", "hash", 10), model)
    newest = Checkpoint(1, 4, "place", "hash", 10, 7)
    assert cache.take(2, newest) is None
    assert cache.take(1, newest) is model
    assert cache.take(1, newest) is None
    for epoch, sha256 in ((5, "hash"), (4, "other")):
        cache.keep(Checkpoint(1, 4, "place", "hash", 10), model)
        assert cache.take(1, Checkpoint(1, epoch, "place", sha256, 10, 7)) is None
    cache.keep(Checkpoint(1, 4, "place", "hash", 10), model)
    assert cache.take(1, None) is None, "a checkpoint that was evicted is trained again, as the decision says"


class Large(Walk):
    """There is memory for one only."""

    alive = 0

    def __init__(self, config, seed):
        super().__init__(config, seed)
        type(self).alive += 1

    def __del__(self):
        type(self).alive -= 1

    def train_epoch(self):
        if self.alive > 1:
            raise MemoryError("two do not fit")
        return super().train_epoch()


class Forgetful(Walk):
    """Needs its folder again."""

    folder = None

    def load(self, folder):
        super().load(folder)
        self.folder = folder

    def train_epoch(self):
        if self.folder is not None:
            (self.folder / "state").read_text()
        return super().train_epoch()


@pytest.mark.parametrize("trained", [Large, Forgetful])
def test_if_the_cache_may_be_the_cause_the_run_is_repeated_without_it(url, tmp_path, trained):
    first = bench(url, tmp_path / "kept", trained)
    advance(first, 1, 1)
    first.models.disable()
    worker = bench(url, tmp_path / "kept", trained)
    repeated = []
    for epoch in range(2, 5):
        for run in (1, 2):
            before = len(worker.study.runs[run - 1].losses) if run <= len(worker.study.runs) else 0
            advance(worker, run, epoch)
            if len(worker.study.runs[run - 1].losses) == before:
                repeated.append(run)
                advance(worker, run, epoch)
    assert [len(run.losses) for run in worker.study.runs] == [4, 4]
    assert len(repeated) == 1
    with Store(url) as store:
        said = [event.kind for event in store.open("study").events()]
    assert said.count(CACHE_OFF) == 1
    assert FAILED not in said


@pytest.mark.parametrize("wrong", [{"in_memory": -1}, {"in_memory": 1.5}, {"gb": 0}, {"every": -1}])
def test_wrong_settings_are_named(wrong):
    with pytest.raises(ft.StudyError, match=f"Checkpoints: {next(iter(wrong))} must be"):
        ft.Checkpoints(**wrong)
