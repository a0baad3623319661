"""Metrics and user attributes: in runs, data frames and exported files, under the same names."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import freezethaw as ft
from freezethaw.cli import app


def save(folder):
    (folder / "state").write_text("1")


SPACE = {"rate": ft.Float(0.1, 1.0)}


def train(run):
    for epoch in run.epochs():
        run.report(1 - run.config["rate"] / (epoch + 1), save=save, seen=epoch * 10, note="first try")


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    file = tmp_path_factory.mktemp("table") / "study.db"
    result = ft.tune(train, SPACE, 4, 8, store=file, metric="accuracy", direction="maximize", tags=["mine"])
    return file, result


def test_runs_have_their_metrics(searched):
    file, result = searched
    with ft.Study.open(file) as study:
        runs = study.runs
        assert [run.metrics for run in runs] == [run.metrics for run in result.runs]
        for run in runs:
            assert [metrics["note"] for metrics in run.metrics] == ["first try"] * run.epoch
    assert result.runs[0].metrics[0]["seen"] >= 0


def test_files_have_the_columns_of_the_data_frame(searched, tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    file, _ = searched
    with ft.Study.open(file) as study:
        frame = study.to_dataframe()
    expected = [
        "run", "epoch", "accuracy", "seconds", "state", "config.rate", "metric.seen", "metric.note", "tags",
    ]  # fmt: skip
    assert list(frame.columns) == expected
    for suffix, reader in ((".csv", pd.read_csv), (".json", pd.read_json), (".parquet", pd.read_parquet)):
        out = tmp_path / f"table{suffix}"
        assert CliRunner().invoke(app, ["export", str(file), "-o", str(out)]).exit_code == 0
        found = reader(out)
        assert list(found.columns) == expected
        assert found["accuracy"].tolist() == pytest.approx(frame["accuracy"].tolist())
    rows = json.loads(CliRunner().invoke(app, ["export", str(file), "--runs", "--json"]).stdout)
    assert {"best_accuracy", "last_accuracy", "imported", "config.rate"} <= set(rows[0])


def test_the_metric_has_its_name_everywhere(searched):
    file, result = searched
    for words in (["status"], ["best"], ["forecast", "1"], ["status", "--json"]):
        shown = CliRunner().invoke(app, [words[0], str(file), *words[1:]]).stdout
        assert "accuracy" in shown
        assert "loss" not in shown.replace('"loss"', ""), shown
    with ft.Study.open(file) as study:
        assert "best accuracy" in repr(study)
        assert "best accuracy" in study._repr_html_()
        assert "loss" not in study._repr_html_()
    assert result.metric == "accuracy"


def test_a_metric_with_the_name_of_another_column_is_refused():
    for name in ("epoch", "", 3, "a\nb"):
        with pytest.raises(ft.StudyError, match="metric"):
            ft.Study(SPACE, 4, metric=name)
