"""`freezethaw forecast runs.csv`: runs of another tool, without a store."""

from __future__ import annotations

import json

import pytest

from freezethaw.integrations import forecast, read_table


@pytest.fixture
def table(tmp_path):
    rows = ["run,epoch,loss,accuracy,rate"]
    for run, rate, epochs in (("good", 0.1, 12), ("young", 0.2, 6), ("bad", 0.9, 12)):
        rows += [f"{run},{e},{rate + 1 / e:.4f},{1 - rate - 0.1 / e:.4f},{rate}" for e in range(1, epochs + 1)]
    rows += ["lost,1,3,0,0.8", "lost,2,nan,nan,0.8"]
    file = tmp_path / "runs.csv"
    file.write_text("\n".join(rows))
    return file


def test_a_table_is_forecast(cli, table):
    found = json.loads(cli("forecast", str(table), "--max-epochs", "12", "--json").stdout)
    assert found["max_epochs"] == 12
    runs = {run["name"]: run for run in found["runs"]}
    assert found["runs"][0]["name"] == "good"
    assert runs["young"]["epoch"] == 6
    assert runs["young"]["config"] == {"rate": 0.2}
    assert runs["young"]["low"] < runs["young"]["median"] < runs["young"]["high"]
    assert sum(run["chance"] for run in runs.values()) == pytest.approx(1.0)
    assert runs["good"]["chance"] > 0.3 > runs["bad"]["chance"]
    assert runs["lost"] | {"diverged": True, "chance": 0.0, "last_loss": None} == runs["lost"]
    same = forecast(read_table(table), 12)[1].quantile([0.05, 0.95])[:, 0]
    assert [runs["young"]["low"], runs["young"]["high"]] == pytest.approx(list(same))


def test_tables_for_people_and_maximized_metrics(cli, table):
    shown = cli("forecast", str(table), "--max-epochs", "12", "--metric", "accuracy", "--maximize").stdout
    lines = shown.splitlines()
    assert lines[0] == "4 runs, forecast at epoch 12"
    assert "P(best)" in lines[2]
    assert [line.split()[0] for line in lines[3:]] == ["good", "young", "bad", "lost"]


def test_errors_are_explained(cli, table, filled):
    assert "need --max-epochs" in cli("forecast", str(table), code=2).stderr
    assert "there is no file" in cli("forecast", "missing.csv", "--max-epochs", "9", code=2).stderr
    assert "are for a table" in cli("forecast", "1", "--max-epochs", "9", store=filled, code=2).stderr
    assert "--epochs is for" in cli("forecast", str(table), "--epochs", "3", "--max-epochs", "9", code=2).stderr
    wrong = cli("forecast", str(table), "--max-epochs", "12", "--metric", "f1", code=1).stderr
    assert wrong == "freezethaw: there is no column 'f1'; there are: run, epoch, loss, accuracy, rate\n"
    assert "run 'good' has 12 losses" in cli("forecast", str(table), "--max-epochs", "9", code=1).stderr
