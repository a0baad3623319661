"""Forecasts for curves that somebody else trained."""

from __future__ import annotations

import math

import numpy as np
import pytest

import freezethaw as ft
from freezethaw.integrations import infer_space, study_from_curves
from freezethaw.integrations.from_curves import add_curves
from freezethaw.records import Report
from freezethaw.study import session_of


def curves(count=12, epochs=20, seed=0):
    """Curves that fall to a level that depends on the rate; the last of them are cut short."""
    rng = np.random.default_rng(seed)
    found, ends = [], []
    for i in range(count):
        rate = 10 ** rng.uniform(-4, 0)
        level = 0.1 + 0.1 * (math.log10(rate) + 2) ** 2
        losses = level + math.exp(-0.5) * np.exp(-0.3 * np.arange(1, epochs + 1)) + 0.003 * rng.normal(size=epochs)
        kept = epochs if i < count - 4 else epochs // 2
        found.append(ft.Curve({"rate": rate, "optimizer": "adam"}, tuple(losses[:kept].tolist()), f"run-{i}"))
        ends.append(float(losses[-1]))
    return found, ends


def test_forecasts_are_near_what_came():
    found, ends = curves()
    forecasts = ft.forecast(found, max_epochs=20)
    assert len(forecasts) == len(found)
    for curve, forecast, end in zip(found, forecasts, ends, strict=True):
        low, high = forecast.quantile([0.005, 0.995])[:, 0]
        assert low <= end <= high, curve.name  # equal if the last epoch is measured
        assert abs(forecast.quantile(0.5)[0] - end) < 0.05


def test_the_direction_reverses_everything():
    found, _ = curves(6)
    turned = [ft.Curve(c.config, tuple(1 - loss for loss in c.losses), c.name) for c in found]
    down = [f.quantile(0.5)[0] for f in ft.forecast(found, 20)]
    up = [f.quantile(0.5)[0] for f in ft.forecast(turned, 20, direction="maximize")]
    assert up == pytest.approx([1 - y for y in down], abs=0.02)


def test_a_space_may_be_given():
    found, _ = curves(5)
    space = ft.Space(rate=ft.Float(1e-5, 10, log=True), optimizer="adam")
    assert study_from_curves(found, 20, space=space).definition.space == space
    with pytest.raises(ft.SpaceError, match="rate"):
        ft.forecast(found, 20, space=ft.Space(rate=ft.Float(100, 200), optimizer="adam"))


def test_the_space_is_inferred_from_the_configurations():
    configs = [
        {"lr": 0.001, "width": 8, "net": "a", "flag": True, "fixed": 3},
        {"lr": 0.5, "width": 64, "net": "b", "flag": False, "fixed": 3, "momentum": 0.9},
        {"lr": 0.1, "width": 8, "net": "b", "flag": True, "fixed": 3, "momentum": 0.5, "odd": 1},
    ]
    space = infer_space(configs)
    assert space == ft.Space(
        lr=ft.Float(0.001, 0.5, log=True),
        width=ft.Float(8, 64),
        net=ft.Choice("a", "b"),
        flag=ft.Choice(True, False),
        fixed=3,
        momentum=ft.Float(0.5, 0.9, when={"net": "b"}),
    )


def test_runs_without_configurations_and_the_same_one_twice():
    found, _ = curves(4)
    bare = [ft.Curve({}, curve.losses, curve.name) for curve in found]
    assert all(np.isfinite(f.mean[0]) for f in ft.forecast(bare, 20))
    assert np.isfinite(ft.forecast(bare[:1], 20)[0].mean[0])
    twice = [*found, found[0]]
    assert all(np.isfinite(f.mean[0]) for f in ft.forecast(twice, 20))


def test_a_diverged_curve_is_evidence_and_has_no_chance():
    found, _ = curves(5)
    study = study_from_curves([*found, ft.Curve(found[0].config, (*found[0].losses[:3], math.inf), "lost")], 20)
    assert study.runs[-1].state == "diverged"
    assert 6 not in study.p_min()


def test_what_does_not_fit_is_named():
    found, _ = curves(3)
    with pytest.raises(ft.CurveError, match="run 'run-0' has 10 losses, more than max_epochs = 9"):
        ft.forecast([ft.Curve({}, found[0].losses[:10], "run-0")], 9)
    with pytest.raises(ft.CurveError, match="no curves"):
        ft.forecast([], 9)


@pytest.mark.parametrize("stored", [False, True])
def test_many_runs_are_added_together_or_not_at_all(tmp_path, stored):
    found, _ = curves(4)
    space = ft.Space(rate=ft.Float(1e-4, 1.0, log=True), optimizer="adam")
    study = ft.Study(space, max_epochs=20, store=f"sqlite:///{tmp_path}/study.db" if stored else None)
    session = session_of(study)
    pairs = [(curve.config, Report(1, curve.losses)) for curve in found]
    with pytest.raises(ft.CurveError, match="more than max_epochs"):
        add_curves(study, [*found, ft.Curve(found[0].config, (1.0,) * 21, "long")])
    with pytest.raises(ft.TellError, match="not a finite"):
        session.add_runs([*pairs, (found[0].config, Report(1, (math.nan, 1.0)))])
    assert not study.runs
    runs = add_curves(study, found)
    assert [run.number for run in runs] == [1, 2, 3, 4]
    assert [run.losses for run in study.runs] == [curve.losses for curve in found]
    assert study.add_run(found[0].config, found[0].losses).number == 5
    assert [run.number for run in session.add_runs(pairs)] == [6, 7, 8, 9]
    assert session.add_runs([]) == ()
