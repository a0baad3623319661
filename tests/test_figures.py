"""Figures hold what the model says, for one run, for many, and for none; and Chromium turns them into images."""

from __future__ import annotations

import os
import shutil
import struct
import sys

import numpy as np
import pytest

from freezethaw import figures
from freezethaw.errors import FreezeThawError
from freezethaw.model.forecaster import Forecaster
from freezethaw.model.inference import Schedule
from freezethaw.model.kernels import exponential_decay
from freezethaw.model.loss_units import Observations
from freezethaw.model.sequential import from_scratch
from freezethaw.model.specification import Geometry

pytest.importorskip("plotly")

HORIZON = 20.0
QUICK = Schedule(chains=2, warm_up=1, thin=1)


def observe(lengths, dimensions=1, maximize=False, seed=0):
    rng = np.random.default_rng(seed)
    sign = -1.0 if maximize else 1.0
    curves = tuple(
        tuple(float(y) for y in sign * (0.3 + rng.random() / np.arange(1, n + 1) + 0.01 * rng.standard_normal(n)))
        for n in lengths
    )
    geometry = Geometry.plain(dimensions)
    return Observations(rng.random((len(lengths), dimensions)), curves, geometry, HORIZON, maximize)


def forecast(observations, model="paper"):
    belief = from_scratch(observations, model, np.random.default_rng(1), count=3, schedule=QUICK)
    return Forecaster.condition(belief, observations)


def named(figure, ending):
    return [trace for trace in figure.data if trace.name.endswith(ending)]


def test_the_basis_is_exponentials_and_their_mean():
    figure = figures.kernel_basis(alpha=1.5, beta=0.7, count=5)
    *exponentials, mean = figure.data
    assert len(exponentials) == 5
    for trace in exponentials:
        t, y = np.array(trace.x), np.array(trace.y)
        rate = -np.log(y[1]) / t[1]
        assert rate > 0
        np.testing.assert_allclose(y, np.exp(-rate * t), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mean.y, (0.7 / (np.array(mean.x) + 0.7)) ** 1.5)


def test_the_mean_of_many_exponentials_is_the_drop():
    # catches a rate where a scale belongs: the mixing measure has rate beta
    figure = figures.kernel_basis(alpha=1.0, beta=0.5, count=4000)
    *exponentials, mean = figure.data
    average = np.mean([trace.y for trace in exponentials], axis=0)
    assert np.abs(average - mean.y).max() < 5 * 0.5 / np.sqrt(4000)


def test_prior_draws_have_the_kernels_covariance():
    figure = figures.prior_draws(alpha=1.0, beta=0.5, count=3000)
    band, *draws = figure.data
    t, Y = np.array(draws[0].x), np.array([d.y for d in draws])[:, ::20]
    K = exponential_decay(t, t, 1.0, 0.5)[::20, ::20]
    assert np.abs(Y.T @ Y / 3000 - K).max() < 5 * np.sqrt(2 / 3000)
    np.testing.assert_allclose(band.y[: len(t)], 2 * np.sqrt(0.5 / (2 * t + 0.5)))


def test_realistic_draws_start_above_their_asymptotes():
    figure = figures.realistic_draws(count=400, wander=0.01)
    curves = [trace for trace in figure.data if trace.mode == "lines"]
    ends = [trace.y[0] for trace in named(figure, "asymptote")]
    assert len(curves) == len(ends) == 400
    starts = np.array([trace.y[0] for trace in curves]) - ends
    assert starts.min() > 0
    assert min(ends) > 0
    # half normal with the kernel's variance at zero: exact conditioning, not a clipped draw
    assert abs(starts.mean() / np.sqrt(1.01 * 2 / np.pi) - 1) < 5 * np.sqrt((np.pi / 2 - 1) / 400)


def test_the_curves_and_forecasts_are_those_of_the_model():
    observations = observe([5, 2, 12])
    forecaster = forecast(observations)
    figure = figures.curves_with_forecasts(forecaster, observations)
    assert len(figure.data) == 3 * 4
    for run, losses in enumerate(observations.losses):
        seen = named(figure, f"run {run + 1}")[0]
        assert tuple(seen.y) == losses
        assert list(seen.x) == list(range(1, len(losses) + 1))
        mean = named(figure, f"run {run + 1}: forecast")[0]
        epochs = np.arange(len(losses) + 1.0, HORIZON + 1)
        np.testing.assert_array_equal(mean.x, epochs)
        expected = forecaster.run(run, epochs)
        np.testing.assert_allclose(mean.y, expected.mean)
        for level, label in ((0.05, "90 %"), (0.25, "50 %")):
            band = named(figure, f"run {run + 1}: {label} interval")[0]
            low, high = expected.quantile([level, 1 - level])
            np.testing.assert_allclose(band.y, np.concatenate([high, low[::-1]]))


@pytest.mark.parametrize("lengths", [[4], [4, 0], [20], [3, 20, 7, 1, 0], [2] * 9])
def test_any_number_of_runs(lengths):
    observations = observe(lengths)
    figure = figures.curves_with_forecasts(forecast(observations), observations)
    unfinished = sum(n < HORIZON for n in lengths)
    assert len(figure.data) == len(lengths) + 3 * unfinished
    panels = {trace.xaxis for trace in figure.data}
    assert len(panels) == (len(lengths) if len(lengths) > figures.PANELS_BEYOND else 1)


def test_without_a_forecaster_only_curves_and_without_runs_a_note():
    figure = figures.curves_with_forecasts(None, observe([3, 2]))
    assert [trace.name for trace in figure.data] == ["run 1", "run 2"]
    empty = figures.curves_with_forecasts(None, observe([]))
    assert not empty.data
    assert empty.layout.annotations[0].text == "no loss yet"


def test_some_runs_and_what_came_later():
    observations = observe([3, 2, 5])
    figure = figures.curves_with_forecasts(forecast(observations), observations, [2, 0], [(0.5, 0.4), ()])
    (later,) = named(figure, "later")
    assert list(later.x) == [6, 7]
    assert list(later.y) == [0.5, 0.4]
    assert not named(figure, "run 2")


def test_a_run_has_one_colour_in_all_figures():
    observations = observe([3] * 10)
    forecaster = forecast(observations)
    dots = figures.asymptotes(forecaster, observations)
    curves = figures.curves_with_forecasts(forecaster, observations)
    looks = set()
    for run in range(10):
        here, there = (named(figure, f"run {run + 1}")[0].marker for figure in (dots, curves))
        assert (here.color, here.symbol) == (there.color, there.symbol)
        looks.add((here.color, here.symbol))
    assert len(looks) == 10


@pytest.mark.parametrize("model", ["paper", "drift"])
@pytest.mark.parametrize("maximize", [False, True])
def test_asymptotes_are_those_of_the_model(model, maximize):
    observations = observe([6, 3, 0], dimensions=2, maximize=maximize)
    forecaster = forecast(observations, model)
    figure = figures.asymptotes(forecaster, observations, column=1, config=np.array([0.2, 0.9]), points=11)
    end = np.inf if model == "paper" else HORIZON
    (mean,) = named(figure, "mean")
    expected = forecaster.points([(np.array([0.2, x]), end) for x in np.linspace(0, 1, 11)], noise=False)
    np.testing.assert_allclose(mean.y, expected.mean)
    outer = named(figure, "90 % interval")[0]
    low, high = expected.quantile([0.05, 0.95])
    np.testing.assert_allclose(outer.y, np.concatenate([high, low[::-1]]))
    for run in range(3):
        (dot,) = named(figure, f"run {run + 1}")
        own = forecaster.points([(run, end)], noise=False)
        assert dot.x[0] == observations.configs[run, 1]
        np.testing.assert_allclose(dot.y, own.mean)
        low, high = own.quantile([0.05, 0.95])[:, 0]
        np.testing.assert_allclose(dot.y[0] + dot.error_y.array[0], high)
        np.testing.assert_allclose(dot.y[0] - dot.error_y.arrayminus[0], low)


def test_asymptotes_in_the_users_units():
    observations = observe([4, 2])
    axis = figures.Axis("learning rate", lambda x: 10 ** (-4 + 3 * x), log=True)
    figure = figures.asymptotes(forecast(observations), observations, axis=axis, points=5)
    (mean,) = named(figure, "mean")
    np.testing.assert_allclose(mean.x, 10 ** np.linspace(-4, -1, 5))
    np.testing.assert_allclose(named(figure, "run 1")[0].x, 10 ** (-4 + 3 * observations.configs[0]))
    assert figure.layout.xaxis.type == "log"
    assert figure.layout.xaxis.title.text == "learning rate"


def test_the_view_follows_the_losses_not_a_wild_outer_band():
    observations = observe([3, 2])
    figure = figures.curves_with_forecasts(forecast(observations, "drift"), observations)
    low, high = figure.layout.yaxis.range
    inner = np.concatenate([t.y for t in figure.data if not t.name.endswith("90 % interval")])
    assert low < inner.min() < inner.max() < high
    assert high - low <= 1.08 * (1 + 2 * figures.OUTER_MARGIN) * np.ptp(inner) + 1e-12


def test_without_plotly_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(FreezeThawError, match=r"pip install 'freezethaw\[figures\]'"):
        figures.kernel_basis()


def test_without_a_browser_the_message_names_some(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(FreezeThawError, match="chromium"):
        figures.write_png(figures.kernel_basis(), tmp_path / "x.png")


def test_a_browser_that_fails_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/false")
    with pytest.raises(FreezeThawError, match="wrote no image"):
        figures.write_png(figures.kernel_basis(), tmp_path / "x.png")
    assert not list(tmp_path.iterdir())


needs_browser = pytest.mark.skipif(
    not any(map(shutil.which, figures.BROWSERS)) and "FREEZETHAW_CI" not in os.environ,
    reason="no Chromium on this machine",
)


@needs_browser
@pytest.mark.parametrize("scale", [1, 2])
def test_a_png_of_the_size_asked_for(tmp_path, scale):
    written = figures.write_png(figures.kernel_basis(), tmp_path / "new" / "basis.png", 500, 320, scale)
    data = written.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (500 * scale, 320 * scale)
    assert len(data) > 10_000  # drawn: a blank page of this size takes about a kilobyte


def test_calibration_shows_every_suite_and_what_is_perfect():
    figure = figures.calibration({"one": [0.1] * 10, "two": [0.2] * 5 + [0.0] * 5})
    assert [trace.name for trace in figure.data] == ["one", "two"]
    assert list(figure.data[1].y) == [0.2] * 5 + [0.0] * 5
    assert figure.layout.shapes[0].y0 == pytest.approx(0.1)
    assert not figures.calibration({}).data


# Studies.


def test_lowest_losses_are_means_over_studies_and_the_view_leaves_the_first_epochs_out():
    falling = np.array([[9.0, 5.0, 3.0, 2.0], [7.0, 3.0, 1.0, 0.0]])
    late = np.array([[np.inf, 4.0, 4.0, 4.0]])
    figure = figures.lowest_losses({"a": falling, "b": late}, skip=0.3)
    lines = {trace.name: trace for trace in figure.data if not trace.fill}
    assert lines["a"].y.tolist() == [8.0, 4.0, 2.0, 1.0]
    assert lines["b"].x.tolist() == [2.0, 3.0, 4.0]
    band = next(trace for trace in figure.data if trace.fill and trace.name == "a")
    assert band.y[0] == pytest.approx(8.0 + 1.0)  # the standard error of 9 and 7
    low, high = figure.layout.yaxis.range
    assert low < 0.0
    assert 5.0 < high < 8.0


@pytest.mark.parametrize("depth", [False, True])
def test_a_progression_holds_every_epoch_once_in_the_colour_of_its_time(depth):
    order, losses = [1, 1, 2, 1, 3], [0.9, 0.8, 0.95, 0.7, 5.0]
    figure = figures.progression(order, losses, depth, highest=1.0)
    trace = figure.data[-1]
    run, epoch, height = np.array(trace.customdata, dtype=float).T
    when = np.array(trace.marker.color, dtype=float)
    there = np.isfinite(run)
    assert run[there].tolist() == [1, 1, 1, 2, 3]
    assert epoch[there].tolist() == [1, 2, 3, 1, 1]
    assert when[there].tolist() == [1, 2, 4, 3, 5]
    assert height[there][:4].tolist() == [0.9, 0.8, 0.7, 0.95]
    assert np.isnan(height[there][4])  # cut off
    assert trace.type == ("scatter3d" if depth else "scatter")


def test_a_progression_without_a_finite_loss_says_so():
    with pytest.raises(FreezeThawError, match="no finite loss"):
        figures.progression([1], [float("nan")])
