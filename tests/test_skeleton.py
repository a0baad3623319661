"""From a space and a training function to a best configuration, inline."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import freezethaw as ft
from freezethaw.runtime import training_session

ROOT = Path(__file__).parents[1]
SPACE = ft.Space(rate=ft.Float(1e-3, 0.5, log=True), units=ft.Int(1, 8))


def descend(log):
    """Gradient descent on a parabola, with a checkpoint; `log` gets (run, epoch, loaded) of every call."""

    def train(run):
        weight = 4.0
        if run.checkpoint:
            weight = float((run.checkpoint / "w").read_text())
        log.append((run.number, run.from_epoch, run.checkpoint is not None))
        for _ in run.epochs():
            weight *= 1 - run.config["rate"]
            run.report(weight**2, save=lambda folder: (folder / "w").write_text(repr(weight)))

    return train


def test_tune_spends_the_budget_and_resumes_where_it_froze():
    log = []
    result = ft.tune(descend(log), SPACE, max_epochs=10, budget=40, seed=3)
    assert result.epochs == 40
    assert result.reason == "budget spent: 40 epochs"
    assert any(from_epoch > 0 for _, from_epoch, _ in log), "no run was thawed"
    for run in result.runs:
        # frozen and thawed equals uninterrupted, bit for bit
        weight, expected = 4.0, []
        for _ in run.losses:
            weight *= 1 - run.config["rate"]
            expected.append(weight**2)
        assert list(run.losses) == expected
    assert all(loaded == (from_epoch > 0) for _, from_epoch, loaded in log)
    lowest, highest = (f(f(run.losses) for run in result.runs) for f in (min, max))
    assert result.best.loss == lowest
    assert result.recommended.loss <= lowest + 1e-3 * (highest - lowest)  # ranked with the noise removed


def test_same_seed_and_same_seconds_same_decisions(monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(training_session.time, "perf_counter", lambda: float(next(ticks)))
    first, second = (ft.tune(descend([]), SPACE, max_epochs=10, budget=30, seed=5) for _ in range(2))
    assert first.runs[0].config == second.runs[0].config
    assert [run.losses for run in first.runs] == [run.losses for run in second.runs]


def test_a_training_that_raises_is_not_swallowed():
    def train(run):
        raise RuntimeError("out of luck")

    with pytest.raises(ft.StudyError, match=r"failed in all of the first 3 runs.*RuntimeError: out of luck"):
        ft.tune(train, SPACE, max_epochs=3, budget=5)


def test_a_training_that_reports_nothing_is_named():
    with pytest.raises(ft.StudyError, match="without reporting a loss"):
        ft.tune(lambda run: None, SPACE, max_epochs=3, budget=5)


def test_import_is_light():
    code = "import sys, freezethaw; print([m for m in ('scipy', 'sklearn', 'plotly', 'torch') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_resolves():
    assert all(getattr(ft, name) is not None for name in ft.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trial'"):
        _ = ft.trial


def test_the_code_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_demo_runs(tmp_path):
    pytest.importorskip("sklearn")
    demo = str(ROOT / "examples/digits.py")
    found = subprocess.run(
        [sys.executable, "-c", f"import runpy; runpy.run_path({demo!r})['main'](epochs=60)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "best: run" in found.stdout
