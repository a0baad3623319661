"""Configurations, the unit cube and features: round trips, bins, and what does not matter."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from freezethaw.space import Choice, Float, Int, Space
from tests.space.spaces import EXAMPLE, close, spaces, units


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_configuration_to_unit_and_back(data: st.DataObject) -> None:
    space = data.draw(spaces())
    config = space.config(data.draw(units(space)))
    assert space.validate(config) == config
    point = space.unit(config)
    again = space.config(point)
    assert list(again) == list(config)
    assert all(close(space, name, config[name], again[name]) for name in config)
    inactive = [name not in config for name in space.names]
    assert_array_equal(point[inactive], 0.5)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_features_lie_in_the_unit_interval_and_the_fast_way_agrees(data: st.DataObject) -> None:
    space = data.draw(spaces())
    points = np.array([data.draw(units(space)) for _ in range(3)]).reshape(3, len(space))
    features = space.features_of([space.config(point) for point in points])
    assert features.shape == (3, len(space.lengths)) == (3, len(space.warped))
    assert features.dtype == np.float64
    assert features.min(initial=0) >= 0
    assert features.max(initial=1) <= 1
    narrow = [p for p in space.parameters.values() if isinstance(p, Float) and p.high - p.low < 1e-6 * abs(p.high)]
    if not narrow:  # there the value itself is rounded
        assert_allclose(space.features_of_units(points), features, atol=1e-8)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_coordinates_of_inactive_parameters_do_not_matter(data: st.DataObject) -> None:
    space = data.draw(spaces())
    point = data.draw(units(space))
    config = space.config(point)
    other = point.copy()
    for column, name in enumerate(space.names):
        if name not in config:
            other[column] = data.draw(st.floats(0, 1))
    assert space.config(other) == config
    assert_array_equal(space.features(space.config(other)), space.features(config))
    assert_array_equal(space.features_of_units([other]), space.features_of_units([point]))


@settings(max_examples=200, deadline=None)
@given(spaces())
def test_plain_description_and_text_give_the_space_back(space: Space) -> None:
    assert Space.from_dict(json.loads(json.dumps(space.to_dict()))) == space
    assert eval(repr(space)) == space
    again = pickle.loads(pickle.dumps(space))
    assert again == space == copy.deepcopy(space)
    assert hash(again) == hash(space)
    assert not space.difference(again)


@given(st.integers(1, 30), st.integers(-5, 5), st.integers(1, 4))
def test_bins_of_integers_are_equally_wide(count: int, low: int, step: int) -> None:
    if count == 1:
        count = 2
    space = Space(n=Int(low, low + (count - 1) * step, step=step))
    grid = (np.arange(60 * count) + 0.5) / (60 * count)
    drawn = [space.config([u])["n"] for u in grid]
    values, times = np.unique(drawn, return_counts=True)
    assert_array_equal(values, low + step * np.arange(count))
    assert_array_equal(times, 60)


def test_log_integers_have_bins_of_their_share_of_the_log_scale() -> None:
    space = Space(n=Int(1, 8, log=True))
    grid = (np.arange(20000) + 0.5) / 20000
    drawn = np.array([space.config([u])["n"] for u in grid])
    edges = np.log(np.arange(1, 10) - 0.5)
    assert_allclose([np.mean(drawn == k) for k in range(1, 9)], np.diff(edges) / (edges[-1] - edges[0]), atol=1e-4)


@pytest.mark.parametrize(
    "parameter",
    [
        Float(1e-6, 0.1, log=True),
        Float(5e-324, 1.7976931348623157e308, log=True),
        Float(-0.3, 0.7),
        Float(0, 0.7, step=0.1),
        Float(1 / 3, 2 / 3, step=1 / 9),
        Int(-3, 12),
        Int(1, 2**40, log=True),
        Int(10**18, 10**18 + 3, log=True),
        Choice("a", "b", "c"),
    ],
)
def test_ends_of_the_unit_interval_are_the_bounds_exactly(parameter: Any) -> None:
    space = Space(x=parameter)
    low, high = (
        (parameter.values[0], parameter.values[-1])
        if isinstance(parameter, Choice)
        else (
            parameter.low,
            parameter.high,
        )
    )
    assert space.config([0.0]) == {"x": low}
    assert space.config([1.0]) == {"x": high}
    assert space.config(space.unit({"x": low})) == {"x": low}
    assert space.config(space.unit({"x": high})) == {"x": high}


def test_values_are_plain_python() -> None:
    config = EXAMPLE.sample(np.random.default_rng(0))
    assert {type(value) for value in config.values()} <= {int, float, str, bool}
    assert json.loads(json.dumps(config)) == config


def test_steps_are_the_decimals_one_would_write() -> None:
    drawn = [config["x"] for config in Space(x=Float(0, 0.7, step=0.1)).enumerate()]
    assert drawn == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert Space(x=Float(0, 1, step=0.1)).validate({"x": 3 * 0.1}) == {"x": 0.3}


def test_list_values_are_handed_out_as_copies() -> None:
    space = Space(layers=Choice([64, 64], [128]))
    space.config([0.0])["layers"].append(1)
    assert space.config([0.0]) == {"layers": [64, 64]}
    assert space.validate({"layers": (128,)}) == {"layers": [128]}


def test_sample_is_reproducible_and_uniform_on_the_scale() -> None:
    rng = np.random.default_rng(1)
    rates = [Space(x=Float(1e-4, 1, log=True)).sample(rng)["x"] for _ in range(2000)]
    assert abs(np.mean(np.array(rates) < 1e-2) - 0.5) < 4 * math.sqrt(0.25 / 2000)
    assert EXAMPLE.sample(np.random.default_rng(7)) == EXAMPLE.sample(np.random.default_rng(7))


# Features.


def test_features_of_choices() -> None:
    three, two, one = Choice("a", "b", "c"), Choice("a", "b"), Choice("a")
    space = Space(three=three, two=two, one=one, ordered=Choice(1, 2, 5, ordered=True), f=Float(1, 100, log=True))
    rows = space.features_of(
        {"three": a, "two": b, "one": "a", "ordered": c, "f": f}
        for a, b, c, f in [("a", "a", 1, 1), ("b", "b", 2, 10), ("c", "b", 5, 100)]
    )
    for left, right in itertools.combinations(rows[:, :3], 2):
        assert_allclose(np.linalg.norm(left - right), 1.0)
    assert_allclose(rows[:, 3:], np.array([[0, 0, 0], [1, 0.5, 0.5], [1, 1, 1]]), atol=1e-15)
    assert space.lengths == (0, 0, 0, 1, 2, 3)
    assert space.warped == (False, False, False, False, False, True)


def test_features_of_integers_are_those_of_the_value() -> None:
    space = Space(linear=Int(0, 4), log=Int(1, 16, log=True), pair=Int(0, 1), step=Float(0, 1, step=1))
    assert_allclose(space.features({"linear": 1, "log": 4, "pair": 1, "step": 0}), [0.25, 0.5, 1, 0])
    assert space.warped == (True, True, False, False)
    same = space.features_of_units([[0.01, 0.5, 0.6, 0.6], [0.19, 0.5, 0.9, 0.9]])
    assert_array_equal(same[0], same[1])


def test_features_of_many_units() -> None:
    points = np.random.default_rng(0).random((2000, len(EXAMPLE)))
    table = EXAMPLE.features_of_units(points)
    assert_allclose(table[::100], EXAMPLE.features_of([EXAMPLE.config(point) for point in points[::100]]), atol=1e-12)


def test_inactive_constants() -> None:
    space = Space(
        on=Choice(True, False),
        **{
            f"p{i}": p
            for i, p in enumerate(
                [Float(0, 1, when={"on": True}), Choice(1, 2, when={"on": True}), Choice(1, 2, 3, when={"on": True})]
            )
        },
    )
    assert_array_equal(space.features({"on": False}), [1, 0.5, 0.5, 0, 0, 0])
