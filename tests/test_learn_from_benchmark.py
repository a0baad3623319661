"""The benchmark of earlier studies: searches on small made-up tables, records and report."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from benchmarks import learn_from, tables
from benchmarks.learn_from import EarlierJob, Search

import freezethaw as ft
from freezethaw.model.specification import Geometry


def made_up_table(name, seed):
    rng = np.random.default_rng(seed)
    configs = [{"x": float(x), "y": float(y)} for x, y in rng.random((40, 2))]
    space = ft.Space(x=ft.Float(0.0, 1.0), y=ft.Float(0.0, 1.0))
    ends = np.array([(c["x"] - 0.3) ** 2 + 0.3 * c["y"] for c in configs]) + 0.02 * rng.standard_normal(40)
    losses = ends[:, None, None] + 1.0 / np.arange(1.0, 7.0)
    return tables.Table(
        name, space.features_of(configs), Geometry.plain(2), losses, space=space, configs=tuple(configs)
    )


@pytest.fixture
def made_up(monkeypatch):
    found = {name: made_up_table(name, i) for i, name in enumerate(["made/one", "made/two", "made/three"])}
    monkeypatch.setattr(tables, "load", lambda: found)
    return found


def searches(kinds=("related",), budget=30):
    alone = Search("made/one", 0, budget, "alone")
    return [alone, *(Search("made/one", 0, budget, "learn_from", kind, 2, 20) for kind in kinds)]


@pytest.mark.usefixtures("made_up")
def test_earlier_studies_are_other_tables_and_more_of_them_include_fewer():
    one, two = (replace(searches()[1], earlier=count).needs() for count in (1, 2))
    assert two[:1] == one
    assert {job.table for job in two} == {"made/two", "made/three"}
    assert searches()[0].needs() == []


@pytest.mark.usefixtures("made_up")
def test_searches_are_recorded_and_not_repeated(tmp_path, monkeypatch):
    for job in searches()[1].needs():
        learn_from.simulate_earlier(job, tmp_path)
    found = [
        learn_from.simulate(search, tmp_path) for search in searches(("related", "shuffled", "permuted", "flipped"))
    ]
    file = tmp_path / "searches.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in found) + '{"table": "made/tw')  # cut by a kill
    assert learn_from.read(tmp_path) == json.loads(json.dumps(found))
    monkeypatch.setattr(learn_from, "simulate", None)  # would be called if a search were repeated
    learn_from.run(searches(("related", "shuffled", "permuted", "flipped")), tmp_path, 1)
    assert all(len(record["weights"]["25"]) == 2 for record in found[1:])


@pytest.mark.parametrize("kind", ["related", "shuffled", "permuted", "flipped"])
@pytest.mark.usefixtures("made_up")
def test_kinds_change_configurations_or_losses_only(kind, tmp_path):
    job = EarlierJob("made/two", 100, 20)
    learn_from.simulate_earlier(job, tmp_path)
    runs = json.loads(job.file(tmp_path).read_text())["runs"]
    study = learn_from._earlier_study(job, kind, np.random.default_rng(0), tmp_path)
    configs, losses = [dict(run.config) for run in study.runs], [list(run.losses) for run in study.runs]
    same = [run["config"] for run in runs] == configs, [run["losses"] for run in runs] == losses
    assert same == {"related": (True, True), "flipped": (True, False)}.get(kind, (False, True))
    if kind == "permuted":
        assert configs[0] == pytest.approx({"x": runs[0]["config"]["y"], "y": runs[0]["config"]["x"]})
    if kind == "flipped":
        assert losses[0] == [-loss for loss in runs[0]["losses"]]


def test_the_report_compares_with_the_search_alone(tmp_path, capsys):
    found = []
    for table, gain in (("made/one", 0.1), ("made/two", 0.3)):
        for search, regret in ((Search(table, 0, 50, "alone"), 0.5), (searches()[1], 0.5 - gain)):
            search = replace(search, table=table, budget=50)
            found.append(
                asdict(search)
                | {"regret": {"25": 1.0, "50": regret}, "seconds": 2.0, "weights": {"25": [0.5, 0.1]}, "commit": "abc"}
            )
    (tmp_path / "searches.jsonl").write_text("".join(json.dumps(record) + "\n" for record in found))
    learn_from.report(tmp_path, tmp_path / "out.json")
    (row,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert row["50"] == {"regret": 0.3, "alone": 0.5, "difference": -0.2, "error": 0.1}
    assert (row["weight"], row["time"], row["commits"]) == ({"25": 0.3}, 1.0, ["abc"])
    assert "0.300 (-0.200 ± 0.100)" in capsys.readouterr().out
