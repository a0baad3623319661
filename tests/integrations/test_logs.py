"""What callbacks wrote is read with the libraries' own readers: every loss at its epoch, also of a continued study."""

from __future__ import annotations

import json
import os
import struct
import sys

import pytest

import freezethaw as ft
from freezethaw.errors import MissingLibrary
from freezethaw.integrations import MLflowLog, TensorBoardLog, WandbLog, read_tensorboard
from tests.runtime.test_callbacks import spoilt
from tests.runtime.trainings import BAD, GOOD, SPACE, descend

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries have warnings of their own


def library(name):
    """In CI a missing one is a failure."""
    if not os.environ.get("FREEZETHAW_CI"):
        pytest.importorskip(name)


def tuned(callback, tmp_path, train=descend, **changes):
    """Two calls: the second continues the first."""
    wanted = {"max_epochs": 3, "candidates": [GOOD, BAD], "policy": "random", "store": f"sqlite:///{tmp_path}/s.db"}
    for budget in (3, 9):
        result = ft.tune(train, SPACE, budget=budget, callbacks=[callback()], **wanted | changes)
    return result.runs


def test_tensorboard(tmp_path):
    library("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    runs = tuned(lambda: TensorBoardLog(tmp_path / "logs"), tmp_path)
    assert [run.epoch for run in runs] == [3, 3]
    for run in runs:
        home = tmp_path / "logs" / f"run-{run.number}"
        assert json.loads((home / "config.json").read_text()) == run.config
        found = []
        for file in sorted(home.glob("*tfevents*")):
            reader = EventAccumulator(str(file))
            reader.Reload()
            found += [(event.step, event.value) for event in reader.Scalars("loss")]
        assert found == [(epoch, pytest.approx(loss)) for epoch, loss in enumerate(run.losses, 1)]
    ours = read_tensorboard(tmp_path / "logs")
    assert [curve.losses for curve in ours] == [pytest.approx(run.losses) for run in runs]


def test_tensorboard_of_long_names_and_late_epochs(tmp_path):
    library("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = TensorBoardLog(tmp_path, metric="m" * 200)
    log(ft.Notice("epoch", run=1, config={}, epoch=100_000, loss=0.5))
    reader = EventAccumulator(str(tmp_path / "run-1"))
    reader.Reload()
    assert [(event.step, event.value) for event in reader.Scalars("m" * 200)] == [(100_000, 0.5)]


def test_mlflow(tmp_path, monkeypatch):
    library("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # files need no server
    from mlflow.tracking import MlflowClient

    place = (tmp_path / "mlruns").as_uri()
    candidates = [GOOD, BAD, {"rate": 0.7}]
    runs = tuned(lambda: MLflowLog("mine", place), tmp_path, spoilt, candidates=candidates, finish_best=False)
    client = MlflowClient(tracking_uri=place)
    kept = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert len(kept) == len(runs)
    for of_mlflow in kept:
        run = runs[int(of_mlflow.data.tags["freezethaw.run"]) - 1]
        history = client.get_metric_history(of_mlflow.info.run_id, "loss") if run.losses else []
        assert [(m.step, m.value) for m in history] == list(enumerate(run.losses, 1))
        assert of_mlflow.data.params == {"rate": str(run.config["rate"])}
        assert of_mlflow.data.tags["freezethaw.reason"]
        assert of_mlflow.info.status == {"finished": "FINISHED", "diverged": "FAILED"}.get(run.state, "SCHEDULED")
    assert "diverged" in {run.state for run in runs}


def test_wandb(tmp_path):
    library("wandb")
    runs = tuned(lambda: WandbLog("project", "mine", folder=tmp_path), tmp_path)
    found = {}
    for file in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb")):
        for record in _records(file):
            if record.WhichOneof("record_type") == "history":
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                found.setdefault(file.stem, {})[int(items["_step"])] = float(items["loss"])
    assert found == {f"run-mine-{run.number}": dict(enumerate(run.losses, 1)) for run in runs}


def _records(file):
    """W&B writes a log as LevelDB does: blocks of 32 kB with records of checksum (4), length (2) and type (1)."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole of it, or its end
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


@pytest.mark.parametrize(("name", "make"), [("mlflow", MLflowLog), ("wandb", lambda x: WandbLog(x, x))])
def test_a_missing_library_is_one_line(name, make, monkeypatch):
    for module in (name, "mlflow.tracking"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingLibrary, match=rf'this needs {name}: pip install "freezethaw\[{name}\]"'):
        make("x")
