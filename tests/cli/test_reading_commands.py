"""Commands that read a study: their output as text and as JSON."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sqlite3
import subprocess
import sys

import pytest

import freezethaw as ft
from freezethaw.cli import formatting
from tests.cli.conftest import SPACE, advance


def read(cli, *arguments, store):
    return json.loads(cli(*arguments, "--json", store=store).stdout)


def test_studies(cli, filled):
    assert "one" in cli("studies", store=filled).stdout
    [study] = read(cli, "studies", store=filled)
    assert study["name"] == "one"
    assert study["decisions"] == 14


def test_status(cli, filled):
    shown = cli("status", store=filled).stdout
    study = ft.Study.open(filled, "one")
    lowest = min(loss for run in study.runs for loss in run.losses)
    decision = study.pending[0]
    study.close()
    for text in ("study one in sqlite:///", "of 40 epochs", f"{lowest:.5g}", "1 failed", "1 pending", decision.reason):
        assert text in shown
    assert f"training  run {decision.run}" in shown
    found = read(cli, "status", "--last", "3", store=filled)
    assert found["best"]["loss"] == lowest
    assert found["budget"]["epochs"] == 40
    assert [d["number"] for d in found["decisions"]] == [12, 13, 14]
    assert found["decisions"][1]["outcome"] == "out_of_memory"
    assert found["pending"][0]["decision"] == 14
    assert found["pending"][0]["holder"].startswith("process ")
    assert found["pending"][0]["dead"] is False
    assert not read(cli, "status", "--last", "0", store=filled)["decisions"]


def test_status_of_a_dead_worker(cli, tmp_path):
    url = f"sqlite:///{tmp_path}/dead.db"
    code = f"""
import os, freezethaw as ft
ft.Study(ft.Space(x=ft.Float(0, 1)), max_epochs=3, store={url!r}).ask()
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert "which has ended: any worker may take it over" in cli("status", store=url).stdout


def test_best(cli, filled):
    study = ft.Study.open(filled, "one")
    best = study.best
    study.close()
    found = read(cli, "best", store=filled)
    assert (found["run"], found["epoch"], found["loss"]) == (best.run, best.epoch, best.loss)
    assert found["config"] == best.config
    assert found["expected"] == pytest.approx(best.expected)
    assert found["end"]["low"] <= found["end"]["mean"] <= found["end"]["high"]  # equal if that epoch is measured
    assert found["checkpoint"] is None
    shown = cli("best", store=filled).stdout
    assert "checkpoint  none" in shown
    assert f"run {best.run}, epoch {best.epoch}: loss {best.loss:.5g}" in shown
    assert f"kind = {best.config['kind']!r}" in shown


def test_forecast(cli, filled):
    study = ft.Study.open(filled, "one")
    expected = study.forecast(1, [5.0, 9.0])
    study.close()
    found = read(cli, "forecast", "1", "--epochs", "5", store=filled)
    assert [entry["epoch"] for entry in found["forecasts"]] == [5, 9]
    assert [entry["mean"] for entry in found["forecasts"]] == pytest.approx(expected.mean)
    assert found["forecasts"][1]["most"] == pytest.approx(expected.quantile([0.05, 0.95])[:, 1])
    for entry, measured in zip(found["forecasts"], [True, len(found["curve"]) == 9], strict=True):
        assert entry["measured"] == measured
        assert (entry["most"] == [found["curve"][int(entry["epoch"]) - 1]] * 2) == measured
    [entry] = read(cli, "forecast", "rate=0.1", "kind=a", store=filled)["forecasts"]
    assert entry["most"][0] < entry["half"][0] < entry["half"][1] < entry["most"][1]
    assert "▁" in cli("forecast", "1", store=filled).stdout
    for given in (["rate=0.1", "kind=a"], ['{"rate": 0.1, "kind": "a"}']):
        assert read(cli, "forecast", *given, store=filled)["config"] == {"rate": 0.1, "kind": "a"}


def test_explain(cli, filled):
    found = read(cli, "explain", "10", store=filled)
    assert found["number"] == 10
    assert len(found["basket"]) > 1
    scores = [entry["score"] for entry in found["basket"]]
    assert scores == sorted(scores, reverse=True)
    shown = cli("explain", "10", store=filled).stdout
    assert found["reason"] in shown
    assert len(shown.splitlines()) >= len(found["basket"]) + 3
    assert "rate=" in shown.splitlines()[-1]


def test_replay(cli, filled):
    assert read(cli, "replay", "9", store=filled)["same"] is True
    assert "replayed: identical" in cli("replay", "9", store=filled).stdout


def test_a_replay_that_differs(cli, tmp_path):
    url = f"sqlite:///{tmp_path}/changed.db"
    study = ft.Study(SPACE, max_epochs=9, store=url)
    advance(study, 6)
    study.close()
    with sqlite3.connect(tmp_path / "changed.db") as database:
        database.execute("UPDATE freezethaw_decisions SET reason = 'for no reason' WHERE number = 5")
    database.close()
    found = json.loads(cli("replay", "5", "--json", store=url, code=1).stdout)
    assert found["same"] is False
    assert found["differences"]["reason"]["taken"] == "for no reason"


def test_export(cli, filled, tmp_path):
    study = ft.Study.open(filled, "one")
    runs = study.runs
    study.close()
    rows = list(csv.DictReader(io.StringIO(cli("export", store=filled).stdout)))
    assert len(rows) == sum(run.epoch for run in runs)
    assert list(rows[0]) == ["run", "epoch", "loss", "seconds", "state", "config.rate", "config.kind"]
    assert float(rows[0]["loss"]) == runs[0].losses[0]
    assert rows[0]["seconds"] == ""
    assert read(cli, "export", store=filled)[0]["loss"] == runs[0].losses[0]
    cli("export", "--runs", "-o", tmp_path / "runs.json", store=filled)
    table = json.loads((tmp_path / "runs.json").read_text())
    assert [row["run"] for row in table] == [run.number for run in runs]
    assert [row["outcome"] for row in table].count("out_of_memory") == 1
    assert "cannot write" in cli("export", "-o", tmp_path / "no" / "such.csv", store=filled, code=1).stderr


def test_export_to_parquet(cli, filled, tmp_path):
    pandas = pytest.importorskip("pandas")
    if importlib.util.find_spec("pyarrow") is None:
        done = cli("export", "-o", tmp_path / "x.parquet", store=filled, code=1)
        assert "pip install pandas pyarrow" in done.stderr
    else:
        cli("export", "-o", tmp_path / "x.parquet", store=filled)
        assert len(pandas.read_parquet(tmp_path / "x.parquet")) > 10
    assert "--output FILE is required" in cli("export", "--format", "parquet", store=filled, code=2).stderr


def test_a_study_without_a_loss(cli, tmp_path):
    url = f"sqlite:///{tmp_path}/empty.db"
    ft.Study(SPACE, max_epochs=3, store=url, direction="maximize").close()
    assert "no loss yet" in cli("status", store=url).stdout
    assert "has no finite loss yet" in cli("best", store=url, code=1).stderr
    assert "no run 1" in cli("forecast", "1", store=url, code=1).stderr
    assert "nothing to forecast from yet" in cli("forecast", "rate=0.1", "kind=a", store=url, code=1).stderr
    assert cli("export", store=url).stdout.strip() == ""
    assert read(cli, "status", store=url)["best"] is None


def test_runs_of_every_state(cli, tmp_path):
    url = f"sqlite:///{tmp_path}/odd.db"
    study = ft.Study(SPACE, max_epochs=5, store=url)
    study.enqueue({"rate": 0.1, "kind": "a"}, to_epoch=3)
    study.tell(study.ask(), [3.0, 2.0, 1.0])
    study.thaw(1, 5)
    study.tell(study.ask(), float("nan"))
    study.cancel(study.ask(), "failed")
    study.ask()
    study.close()
    for run in ("1", "2", "3"):  # diverged, failed and pending: two of them without a loss
        assert read(cli, "forecast", run, store=url)["forecasts"][0]["epoch"] == 5
    assert "no basket" in cli("explain", "1", store=url).stdout
    for number in ("1", "2", "3", "4"):
        assert read(cli, "replay", number, store=url)["same"] is True
    found = read(cli, "status", store=url)
    assert found["runs"] == {"pending": 1, "diverged": 1, "failed": 1}
    assert found["epochs"] == 4
    table = read(cli, "export", "--runs", store=url)
    assert [row["state"] for row in table] == ["diverged", "failed", "pending"]
    assert table[1]["best_loss"] is None


def test_on_a_server(cli, postgresql_server):
    study = ft.Study(SPACE, max_epochs=9, name="of the command line", store=postgresql_server, budget=20)
    advance(study, 4)
    study.close()
    found = read(cli, "status", "--name", "of the command line", store=postgresql_server)
    assert found["epochs"] >= 4
    assert read(cli, "best", "--name", "of the command line", store=postgresql_server)["loss"] > 0
    assert "of the command line" in cli("studies", store=postgresql_server).stdout


def test_a_choice_among_studies(cli, tmp_path):
    url = f"sqlite:///{tmp_path}/two.db"
    for name in ("first", "[red]second"):
        ft.Study(SPACE, max_epochs=3, name=name, store=url).close()
    assert "choose a study with --name: 'first', '[red]second'" in cli("status", store=url, code=1).stderr
    assert "study [red]second in" in cli("status", "--name", "[red]second", store=url).stdout
    assert "there is no study 'third'" in cli("status", "--name", "third", store=url, code=1).stderr


def test_formatting():
    assert formatting.sparkline([8.0, 5.0, 1.0]) == "█▅▁"
    assert formatting.sparkline([]) == ""
    assert formatting.sparkline([1.0, 1.0]) == "▁▁"
    assert formatting.sparkline([1.0, float("nan"), 2.0]) == "▁ █"
    assert len(formatting.sparkline([float(i) for i in range(500)])) == 60
    assert formatting.sparkline([float("nan")]) == " "
    assert [formatting.duration(s) for s in (0, 0.394, 5, 120, 7200)] == ["0 s", "0.39 s", "5 s", "2 min", "2 h"]
    assert [formatting.size(n) for n in (10, 12_300, 4_000_000, 5e12)] == ["10 bytes", "12.3 kB", "4 MB", "5000 GB"]
    assert formatting.number(float("inf")) == "–"
