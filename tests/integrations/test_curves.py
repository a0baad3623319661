"""Tables that other tools write become curves, and what cannot be read is named."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import freezethaw as ft
from freezethaw.integrations import read_table

FILES = Path(__file__).parent / "files"  # written by Ray 2.60 and MLflow 3.17; hosts and process numbers replaced


def write(folder, text, name="runs.csv"):
    file = folder / name
    file.write_text(text)
    return file


def test_one_row_for_each_epoch(tmp_path):
    text = "run_id,epoch,loss,lr,optimizer,accuracy,timestamp\n"
    text += "a,1,0.5,0.1,adam,0.3,100\nb,1,0.9,0.01,sgd,0.1,100\na,2,0.4,0.1,adam,0.4,101\nb,2,,0.01,sgd,,102\n"
    a, b = read_table(write(tmp_path, text))
    assert a == ft.Curve({"lr": 0.1, "optimizer": "adam"}, (0.5, 0.4), "a")
    assert b == ft.Curve({"lr": 0.01, "optimizer": "sgd"}, (0.9,), "b")  # an empty cell is no loss


def test_the_metric_is_chosen(tmp_path):
    file = write(tmp_path, "run,step,train,val_loss\na,0,1,2\na,1,3,4\n")
    assert read_table(file)[0].losses == (2, 4)
    assert read_table(file, metric="train")[0].losses == (1, 3)


def test_results_of_ray_tune(tmp_path):
    rows = [
        {
            "trial_id": t,
            "training_iteration": e,
            "mean_loss": 1 / e,
            "config": {"lr": lr, "net": {"width": 8}},
            "pid": 7,
        }
        for t, lr in (("x", 0.1), ("y", 0.2))
        for e in (1, 2, 3)
    ]
    file = write(tmp_path, "\n".join(map(json.dumps, rows)), "result.json")
    found = read_table(file, metric="mean_loss")
    assert [curve.config for curve in found] == [{"lr": 0.1, "net/width": 8}, {"lr": 0.2, "net/width": 8}]
    assert found[0].losses == (1, 1 / 2, 1 / 3)
    csv = "trial_id,training_iteration,loss,config/lr,time_total_s\nx,1,3,0.1,9\nx,2,2,0.1,10\n"
    assert read_table(write(tmp_path, csv, "progress.csv")) == (ft.Curve({"lr": 0.1}, (3, 2), "x"),)


def test_the_history_of_mlflow(tmp_path):
    text = "run_id,key,value,step,timestamp,params.lr\n"
    text += "a,loss,3,0,1,0.1\na,accuracy,0.2,0,1,0.1\na,loss,2,1,2,0.1\n"
    file = write(tmp_path, text)
    assert read_table(file) == (ft.Curve({"lr": 0.1}, (3, 2), "a"),)
    with pytest.raises(ft.CurveError, match="no metric 'f1' in the column 'key'; there are: loss, accuracy"):
        read_table(file, metric="f1")


@pytest.mark.parametrize("name", ["progress.csv", "result.json"])
def test_files_that_ray_tune_wrote(name):
    [curve] = read_table(FILES / "ray" / name)
    assert curve.config == {"lr": 0.1, "net/width": 8}  # in the CSV's case from params.json beside it
    assert curve.losses == pytest.approx([0.1 + 1 / epoch for epoch in range(1, 7)])


def test_a_history_that_mlflow_wrote():
    curves = read_table(FILES / "mlflow.csv")
    assert [curve.config for curve in curves] == [
        {"lr": 0.001, "net": "a"},
        {"lr": 0.01, "net": "b"},
        {"lr": 0.1, "net": "a"},
    ]
    for curve in curves:
        assert curve.losses == pytest.approx([curve.config["lr"] + 1 / epoch for epoch in range(1, 7)])
    assert read_table(FILES / "mlflow.csv", metric="accuracy")[0].losses == (0.999,) * 6


def test_numbers_that_are_texts(tmp_path):
    rows = [{"run": "a", "epoch": e, "loss": "0.5", "params.lr": "0.1", "params.net": "a"} for e in (0, 1)]
    [curve] = read_table(write(tmp_path, json.dumps(rows), "runs.json"))
    assert curve == ft.Curve({"lr": 0.1, "net": "a"}, (0.5, 0.5), "a")


def test_a_chart_of_wandb(tmp_path):
    text = '"Step","fast-1 - loss","fast-1 - loss__MIN","slow-2 - loss","slow-2 - _step"\n'
    text += '"0","0.5","0.5","0.9","0"\n"1","0.4","0.4","","1"\n'
    fast, slow = read_table(write(tmp_path, text))
    assert (fast.name, fast.losses) == ("fast-1", (0.5, 0.4))
    assert (slow.name, slow.losses) == ("slow-2", (0.9,))


def test_columns_of_json(tmp_path):
    file = write(tmp_path, json.dumps({"run": ["a", "a"], "epoch": [2, 1], "loss": [1.5, 2.5]}), "runs.json")
    assert read_table(file)[0].losses == (2.5, 1.5)  # in the order of epochs


def test_a_run_that_diverged_ends_there(tmp_path):
    curve = read_table(write(tmp_path, "run,epoch,loss\na,1,2\na,2,NaN\na,3,5\n"))[0]
    assert curve.diverged
    assert curve.losses[0] == 2
    assert math.isnan(curve.losses[1])
    assert len(curve.losses) == 2


def test_steps_may_be_long_and_the_later_row_counts(tmp_path):
    text = "run,step,loss\na,390,3\na,780,2\na,780,1\nb,390,5\n"
    assert [curve.losses for curve in read_table(write(tmp_path, text))] == [(3, 1), (5,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "run,epoch,score\na,1,2\n",
            "no column looks like the loss; name it .* there are: run, epoch, score",
        ),
        ("loss,lr\n1,2\n", "no column looks like the epoch; .* there are: loss, lr"),
        ("run,epoch,loss\na,1,good\n", "run 'a': 'good' in column 'loss' is not a number"),
        ("run,epoch,loss\na,1,2\na,2,2\na,5,1\n", "run 'a' has a gap: no loss between epochs 2 and 5"),
        ("run,epoch,loss\na,1,2\na,2,2\nb,10,1\n", "run 'b' starts at epoch 10: its first losses are missing"),
        ("run,epoch,loss\na,50,2\nb,50,2\n", "one row per run: it is a summary"),
        ("run,epoch,loss\na,1,2\n,2,1\n", "column 'run' is empty in some rows"),
        ("run,epoch,loss\na,1,\n", "column 'loss' is empty"),
        ("run,epoch,loss\n", "has no rows"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    with pytest.raises(ft.CurveError, match=message):
        read_table(write(tmp_path, text))


def test_a_metric_that_is_not_there_and_files_that_are_none(tmp_path):
    with pytest.raises(ft.CurveError, match="no column 'f1'; there are: run, epoch, loss"):
        read_table(write(tmp_path, "run,epoch,loss\na,1,2\n"), metric="f1")
    with pytest.raises(ft.CurveError, match="cannot read"):
        read_table(tmp_path / "missing.csv")
    with pytest.raises(ft.CurveError, match="is not a table"):
        read_table(write(tmp_path, "{no json", "bad.json"))
    with pytest.raises(ft.CurveError, match=r"extension must be \.csv"):
        read_table(write(tmp_path, "x", "runs.xls"))


def test_a_curve_is_checked():
    with pytest.raises(ft.CurveError, match="no losses"):
        ft.Curve({}, (), "a")
    with pytest.raises(ft.CurveError, match="not finite before its last"):
        ft.Curve({}, (math.nan, 1.0), "a")
