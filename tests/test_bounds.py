"""Forecasts stay within the range of the metric; measured epochs are as measured; any finite magnitude is modelled."""

from __future__ import annotations

import re

import numpy as np
import pytest

import freezethaw as ft
from freezethaw.losses import LARGEST, LOG_SPAN, Transform, inferred_bounds
from freezethaw.study import read

QUANTILES = [0.001, 0.05, 0.5, 0.95, 0.999]


def searched(loss, count=30, last=20, **options):
    study = ft.Study({"x": ft.Float(0.0, 1.0)}, last, prices=ft.Prices(), **options)
    rng = np.random.default_rng(0)
    reasons = []
    for _ in range(count):
        decision = study.ask()
        epochs = range(decision.from_epoch + 1, decision.to_epoch + 1)
        study.tell(decision, [float(loss(decision.config["x"], epoch, rng)) for epoch in epochs])
        reasons.append(decision.reason)
    return study, reasons


def error(x, epoch, rng):
    return 0.02 * abs(x - 0.3) + 2.0 * np.exp(-epoch / 3) + 0.001 * rng.random()


def accuracy(x, epoch, rng):
    return 1.0 - 0.9 * np.exp(-epoch * (1 - abs(x - 0.3)) / 3) - 0.001 * rng.random()


@pytest.mark.parametrize(
    ("loss", "options", "low", "high"),
    [
        (error, {"bounds": (0, None)}, 0.0, np.inf),
        (error, {}, 0.0, np.inf),  # positive, and spans orders of magnitude
        (accuracy, {"bounds": (0, 1), "direction": "maximize"}, 0.0, 1.0),
        (accuracy, {"direction": "maximize"}, 0.0, 1.0),
        (error, {"bounds": (0, None), "model": "paper"}, 0.0, np.inf),
        (lambda x, e, rng: max(0.0, abs(x - 0.3) - 0.2 + 1 / e), {"bounds": (0, None)}, 0.0, np.inf),
        (lambda x, e, rng: 10 ** (-6 * (1 - abs(x - 0.3)) * e / 20), {}, 0.0, np.inf),
        (lambda x, e, rng: 1.0, {"direction": "maximize"}, 0.0, 1.0),
    ],
)
def test_no_forecast_and_no_reason_leaves_the_range(loss, options, low, high):
    study, reasons = searched(loss, **options)
    epochs = [float(e) for e in range(1, 21)]
    for subject in [*(run.number for run in study.runs), {"x": 0.77}]:
        ahead = study.forecast(subject, epochs)
        for values in (ahead.mean, *ahead.quantile(QUANTILES)):
            assert np.isfinite(values).all()
            assert (values >= low).all()
            assert (values <= high).all()
        assert np.all(np.diff(ahead.quantile(QUANTILES), axis=0) >= 0)
    for reason in reasons:
        for number in re.findall(r"chance to beat (\S+)", reason):
            assert low <= float(number) <= high
    assert low <= study.recommended.expected <= high


def test_without_bounds_such_a_forecast_leaves_the_range():
    """What the tests above would not notice if the range were never in danger."""
    transform = Transform.fit([1.0, 0.5, 0.05, 0.3])
    assert transform.from_model(-6.0) < 0
    assert 0 < Transform.fit([1.0, 0.5, 0.05, 0.3], bounds=(0.0, None)).from_model(-6.0) < 0.05


@pytest.mark.parametrize("bounds", [(0.0, None), (None, 3.0), (0.0, 3.0), (0.01, 2.5)])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("blend", [0.0, 0.5])
def test_a_bounded_transform_is_monotone_smooth_and_invertible(bounds, maximize, blend):
    rng = np.random.default_rng(1)
    losses = np.concatenate([0.02 + rng.exponential(0.3, 40), [2.0] * 5])
    transform = Transform.fit(losses, maximize, blend, bounds=bounds)
    z = np.linspace(-8, 8, 400)
    y = transform.from_model(z)
    assert np.all(np.diff(transform.sign * y) >= 0)
    assert y.min() >= (bounds[0] or -np.inf)
    assert y.max() <= (bounds[1] or np.inf)
    inside = np.linspace(0.015, 2.4, 300)
    back = transform.from_model(transform.with_slope(inside)[0])
    np.testing.assert_allclose(back, inside, rtol=1e-9)
    h = 1e-7
    slopes = (transform.with_slope(inside + h)[0] - transform.with_slope(inside - h)[0]) / (2 * h)
    np.testing.assert_allclose(transform.sign * slopes, transform.with_slope(inside)[1], rtol=1e-3)


def test_losses_that_span_orders_of_magnitude_are_modelled_on_a_log_scale():
    losses = 10.0 ** np.linspace(-6, 0, 60)
    transform = Transform.fit(losses, bounds=(0.0, None))
    assert transform.log
    z = transform.to_model(losses)
    assert np.diff(z).min() > 0.2 * np.diff(z).max()  # equal ratios are about equally far apart
    np.testing.assert_allclose(transform.from_model(z), losses, rtol=1e-9)
    assert not Transform.fit(losses).log
    assert not Transform.fit(0.5 + losses, bounds=(0.0, None)).log
    assert not Transform.fit(LOG_SPAN * losses + 0.0, blend=0.0, bounds=(0.0, None)).log  # the paper's model is affine


@pytest.mark.parametrize(
    ("losses", "maximize", "expected"),
    [
        ([1.0, 0.5, 0.05], False, (0.0, None)),
        ([1.0, 0.5, 0.3], False, None),
        ([1.0, 0.5, -0.05], False, None),
        ([0.1, 0.9], True, (0.0, 1.0)),
        ([0.1, 1.1], True, None),
        ([-0.1, 0.9], True, None),
    ],
)
def test_bounds_are_inferred_only_where_that_is_safe(losses, maximize, expected):
    assert inferred_bounds(np.array(losses), np.ones(len(losses)), maximize) == expected


def test_an_inferred_bound_that_is_wrong_is_given_up():
    study, _ = searched(lambda x, e, rng: 1 / e**2, count=20)
    decision = study.ask()
    study.tell(decision, -1.0)
    assert study.best.loss == -1.0
    assert study.forecast(study.best.run).quantile(0.05)[0] < 0.0
    study.ask()


def test_a_loss_outside_declared_bounds_is_refused():
    study = ft.Study({"x": ft.Float(0.0, 1.0)}, 5, bounds=(0, 1), metric="error rate")
    decision = study.ask()
    with pytest.raises(ft.TellError, match=r"the error rate 1.5 is outside bounds=\(0.0, 1.0\)"):
        study.tell(decision, 1.5)
    study.tell(decision, 1.0)
    with pytest.raises(ft.TellError, match="outside bounds"):
        study.add_run({"x": 0.1}, [-0.1])


def test_bounds_are_kept_in_the_store(tmp_path):
    store = tmp_path / "study.db"
    ft.Study({"x": ft.Float(0.0, 1.0)}, 5, bounds=(0, None), metric="error", store=store).close()
    with ft.Study.open(store) as study:
        assert study.definition.bounds == (0.0, None)
        assert study.definition.metric == "error"


def test_measured_epochs_are_forecast_as_measured():
    study, _ = searched(error)
    run = max(study.runs, key=lambda run: run.epoch)
    assert run.epoch >= 3
    epochs = [float(e) for e in range(1, 21)]
    ahead = study.forecast(run.number, epochs)
    count = run.epoch
    np.testing.assert_array_equal(ahead.mean[:count], run.losses)
    np.testing.assert_array_equal(ahead.quantile([0.05, 0.95])[:, :count], [run.losses] * 2)
    np.testing.assert_array_equal(ahead.std[:count], 0.0)
    assert (ahead.std[count:] > 0).all()
    below = ahead.probability_below(np.array([*run.losses, *[1.0] * (20 - count)]) + 1e-9)
    np.testing.assert_array_equal(below[:count], 1.0)


@pytest.mark.parametrize("scale", [1e-300, 1e-310, 1e-120, 1e120, 1e200, 1e306, -1e200])
def test_losses_of_any_magnitude_get_the_same_decisions(scale):
    plain, expected = searched(lambda *at: np.sign(scale) * error(*at), count=15)
    scaled, reasons = searched(lambda *at: scale * error(*at), count=15)
    assert [run.losses != () for run in scaled.runs] == [run.losses != () for run in plain.runs]
    assert [r.partition(" chance")[0] for r in reasons] == [r.partition(" chance")[0] for r in expected]
    ratio = scaled.forecast(1).mean / plain.forecast(1).mean
    np.testing.assert_allclose(ratio, abs(scale), rtol=1e-6)
    np.testing.assert_allclose(scaled.forecast(1).std / plain.forecast(1).std, abs(scale), rtol=1e-6)


@pytest.mark.parametrize("loss", [5e-324, 0.0, 1.7e308, -1e-300, LARGEST])
def test_constant_losses_of_any_magnitude_get_decisions(loss):
    study, _ = searched(lambda *_: loss, count=6)
    assert np.isfinite(study.forecast(1).mean).all()


def test_the_inference_of_bounds_can_be_switched_off(tmp_path):
    """Positive losses that span orders of magnitude: with (None, None) they are modelled as they are."""
    transforms = {}
    for bounds in (None, (None, None)):
        with ft.Study(ft.Space(x=ft.Float(0, 1)), 4, store=tmp_path / f"{bounds}.db", bounds=bounds) as study:
            for loss in (100.0, 10.0, 1.0, 0.1, 0.01):
                study.tell(study.ask(), [loss])
        with ft.Study.open(tmp_path / f"{bounds}.db") as study:
            assert study.definition.bounds == bounds
            transforms[bounds] = read(study).inference.forecaster.transform
    assert transforms[None].lower == 0.0
    assert transforms[None, None].lower is None
