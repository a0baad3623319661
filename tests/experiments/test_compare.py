"""The methods on a made-up problem that trains in no time: what they spend, what is kept, what is read off it."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from experiments.baseline import EPOCHS, WarpedExpectedImprovement, specification
from experiments.diary import Diary
from experiments.methods import METHODS, Interrupted, study
from experiments.problems import Problem

import freezethaw as ft
from experiments import compare, results
from freezethaw.model.curves import Curves
from freezethaw.model.posterior import condition
from freezethaw.model.predictions import predict
from freezethaw.model.specification import Geometry
from freezethaw.study import session


class Bowl:
    """Falls to a bowl over the two hyperparameters; diverges at one of its rims."""

    def __init__(self, config, seed):
        self.config, self.epoch = config, 0

    def train_epoch(self):
        self.epoch += 1
        x, y = self.config["x"], self.config["y"]
        if x > 0.95 and self.epoch > 2:
            return float("nan")
        return (x - 0.3) ** 2 + (y - 0.7) ** 2 + np.exp(-self.epoch / 3)

    def save(self, folder):
        (folder / "epoch.txt").write_text(str(self.epoch))

    def load(self, folder):
        self.epoch = int((folder / "epoch.txt").read_text())


BOWL = Problem(
    "bowl",
    "A bowl",
    "height",
    ft.Space(x=ft.Float(0.0, 1.0), y=ft.Float(0.0, 1.0)),
    Bowl,
    lambda: None,
    budget=20,
    max_epochs=9,
)


@pytest.fixture(scope="module")
def records():
    return {method: study(BOWL, method, seed=0) for method in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_spends_the_budget_and_every_run_goes_on_where_it_was(records, method):
    found = records[method]
    assert found["epochs"] == len(found["order"]) == len(found["losses"]) == BOWL.budget
    assert len(found["training"]) == len(found["deciding"]) == BOWL.budget
    assert found["order"][0] == 1
    assert set(found["order"]) == set(range(1, len(found["configs"]) + 1))
    for run, config in enumerate(found["configs"], 1):
        losses = [loss for number, loss in zip(found["order"], found["losses"], strict=True) if number == run]
        bowl = Bowl(config, 0)
        expected = [bowl.train_epoch() for _ in losses]
        assert [np.nan if loss is None else loss for loss in losses] == pytest.approx(expected, rel=1e-5, nan_ok=True)
        assert len(losses) <= 9


@pytest.mark.parametrize("method", ["paper", "default", "baseline", "asha"])
def test_a_study_is_a_function_of_its_seed(records, method):
    again, other = study(BOWL, method, seed=0), study(BOWL, method, seed=1)
    assert again["configs"] == records[method]["configs"]
    assert again["order"] == records[method]["order"]
    assert other["configs"] != records[method]["configs"]


def test_the_papers_method_is_run_by_tune_with_the_papers_model_and_policy(monkeypatch):
    seen = []
    decide = session.decide
    monkeypatch.setattr(session, "decide", lambda definition, *a: (seen.append(definition), decide(definition, *a))[1])
    study(BOWL, "paper", 0, budget=3)
    assert {(d.model, d.policy, d.finish_best) for d in seen} == {("paper", "entropy_search", False)}
    seen.clear()
    study(BOWL, "default", 0, budget=3)
    default = ft.Study(BOWL.space, 9).definition
    assert {(d.model, d.policy) for d in seen} == {(default.model, default.policy)}


def test_time_is_split_into_thought_and_training(records):
    for method in ("paper", "default", "baseline"):
        assert sum(records[method]["deciding"]) > 0
        assert sum(records[method]["deciding"]) + sum(records[method]["training"]) <= records[method]["wall"]
    assert sum(records["random"]["deciding"]) == 0


# The baseline.


def test_the_baselines_posterior_is_that_of_a_plain_gaussian_process():
    rng = np.random.default_rng(0)
    x, y = rng.random((6, 2)), rng.standard_normal(6)
    spec = specification(-3.0, 3.0)
    values = {p.name: 1.0 for p in spec.parameters(Geometry.plain(2))}
    values |= {"mean": 0.4, "noise": 0.05, "level.variance": 1.7, "length.0": 0.3, "length.1": 0.8}
    values["smooth.variance"] = spec.priors["smooth.variance"].lower

    def kernel(a, b):
        r = np.sqrt((((a[:, None] - b[None]) / np.array([0.3, 0.8])) ** 2).sum(axis=2))
        return 1.7 * (1 + np.sqrt(5) * r + 5 / 3 * r**2) * np.exp(-np.sqrt(5) * r)

    new = rng.random((4, 2))
    K = kernel(x, x) + 0.05 * np.eye(6)
    mean = 0.4 + kernel(new, x) @ np.linalg.solve(K, y - 0.4)
    variance = 1.7 - np.einsum("ij,ji->i", kernel(new, x), np.linalg.solve(K, kernel(x, new)))
    posterior = condition(Curves.of(x, [[v] for v in y]), spec, values)
    found = predict(posterior, np.empty(0, dtype=np.int64), new, np.ones(1))
    assert found.mean[:, 0] == pytest.approx(mean, rel=1e-8)
    assert found.deviations[:, :, 0] ** 2 == pytest.approx(variance[None], rel=1e-6)


def test_the_baseline_finds_a_minimum_and_survives_runs_that_diverge():
    space = ft.Space(x=ft.Float(0.0, 1.0), **{EPOCHS: ft.Int(1, 20)})
    distances, epochs = [], []
    for seed in range(3):  # one search of fourteen may end early; not most of them
        search = WarpedExpectedImprovement(space, np.random.default_rng(seed))
        for _ in range(14):
            config = search.ask()
            diverged = config["x"] > 0.9
            search.tell(config, np.nan if diverged else (config["x"] - 0.3) ** 2 + 1 / config[EPOCHS])
        best = search.configs[int(np.nanargmin(search.losses))]
        distances.append(abs(best["x"] - 0.3))
        epochs.append(best[EPOCHS])
    assert np.median(distances) < 0.1
    assert np.median(epochs) >= 16


def test_a_run_of_the_baseline_costs_as_many_epochs_as_it_asked_for(records):
    found = records["baseline"]
    changes = np.flatnonzero(np.diff(found["order"]))
    assert len(changes) == len(found["configs"]) - 1  # no run is thawed


# What is kept.


def test_a_record_is_kept_whole_and_read_back(records, tmp_path):
    file = results.write(tmp_path, records["paper"])
    assert file.name == "bowl-paper-0.json"
    found = results.read(file)
    assert found.order.tolist() == records["paper"]["order"]
    assert found.lowest[-1] == min(loss for loss in records["paper"]["losses"] if loss is not None)
    assert found.lowest.shape == (BOWL.budget,)
    assert [r.method for r in results.everything(tmp_path)] == ["paper"]
    old = json.loads(file.read_text()) | {"harness": 0}
    file.write_text(json.dumps(old))
    assert results.read(file) is None


def test_what_is_read_off_a_record():
    record = results.Record(
        "bowl", "paper", 0, 8, 9, ({}, {}, {}), np.array([1, 1, 2, 1, 3, 3, 2, 1]),
        np.array([9.0, 8.0, np.nan, 5.0, 6.0, 4.0, 3.0, 4.0]), np.ones(8), np.ones(8), 20.0,
    )  # fmt: skip
    assert record.revisits.tolist() == [2, 1, 0]
    assert record.curve(1).tolist() == [9.0, 8.0, 5.0, 4.0]
    assert record.lowest.tolist() == [9.0, 8.0, 8.0, 5.0, 5.0, 4.0, 3.0, 3.0]
    short = record.summary()
    assert short.lowest.tolist() == record.lowest.tolist()
    assert short.epochs_to(5.5) == 4
    assert short.epochs_to(1.0) == np.inf
    assert (short.runs, short.one_epoch_runs, short.longest) == (3, 0, 4)
    assert (short.thaws, short.thawed_runs, short.most_thaws, short.late_thaws) == (3, 2, 2, 0.66667)
    diverged = replace(record, losses=np.full(8, np.nan))
    assert np.isinf(diverged.lowest).all()


def test_studies_that_are_kept_are_not_run_again(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(compare, "QUICK", {"pmf": replace(BOWL, name="pmf")})
    monkeypatch.setitem(compare.PROBLEMS, "pmf", replace(BOWL, name="pmf"))
    arguments = ["--problem", "pmf", "--method", "random", "asha", "--quick", "--processes", "1"]
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    monkeypatch.setattr("sys.argv", ["compare", *arguments, *folders])
    compare.main()
    assert capsys.readouterr().out.count("lowest loss") == 2
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["pmf-asha-0.json", "pmf-random-0.json"]
    assert not list((tmp_path / "work").iterdir())
    compare.main()
    assert capsys.readouterr().out == ""


# Interruptions.


class Killed(BaseException):
    """Stands for a process that is gone."""


@pytest.mark.parametrize(
    ("method", "at"),
    [("paper", 9), ("default", 9), *((m, at) for m in ("baseline", "random", "asha") for at in (1, 14))],
)
def test_a_study_that_was_interrupted_goes_on_as_if_nothing_had_happened(records, method, at, tmp_path):
    trained = []

    class Mortal(Bowl):
        def train_epoch(self):
            if len(trained) == at:
                if method not in ("paper", "default"):
                    raise Killed
                signal.raise_signal(signal.SIGTERM)  # `tune` saves and leaves
            trained.append(self)
            return super().train_epoch()

    folder = tmp_path / "study"
    with pytest.raises((Killed, Interrupted)):
        study(replace(BOWL, build=Mortal), method, 0, folder=folder)
    lines = (folder / "diary.jsonl").read_text()
    (folder / "diary.jsonl").write_text(lines + '{"run": 3, "epo')  # a line that was cut off
    again = study(BOWL, method, 0, folder=folder)
    for name in ("configs", "order", "losses"):
        assert again[name] == records[method][name], name
    assert again["wall"] > sum(again["training"])
    assert not folder.exists()


def test_an_epoch_that_has_to_be_trained_again_is_noted_once(tmp_path):
    diary = Diary(tmp_path / "diary.jsonl")
    for epoch in (1, 2):
        diary.train_epoch(7, epoch, {"x": 0.3, "y": 0.7}, Bowl({"x": 0.3, "y": 0.7}, 0))
    again = Diary(tmp_path / "diary.jsonl")
    assert again.loss_of(7, 2) == diary.losses[1]
    assert again.loss_of(7, 3) is None
    again.train_epoch(7, 2, {"x": 0.3, "y": 0.7}, Bowl({"x": 0.3, "y": 0.7}, 0))
    assert again.epochs == 2


def test_studies_are_asked_to_leave_in_time_and_go_on_later(monkeypatch, tmp_path):
    class Slow(Bowl):
        def train_epoch(self):
            time.sleep(0.1)
            return super().train_epoch()

    monkeypatch.setattr(compare, "QUICK", {"pmf": replace(BOWL, name="pmf", build=Slow)})
    job = compare.Job("pmf", "random", 0, True, None, tmp_path / "out", tmp_path / "work")
    assert compare.run_all([job], 1, minutes=0.02) == 1
    assert not (tmp_path / "out").exists()
    assert 2 <= len((tmp_path / "work" / "pmf-random-0-quick" / "diary.jsonl").read_text().splitlines()) <= 15
    assert compare.run_all([job], 1) == 0
    assert results.read(tmp_path / "out" / "pmf-random-0.json").order.shape == (BOWL.budget,)
