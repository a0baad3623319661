"""Search spaces: round trips, conditions, features, refusals, and exchange with other libraries."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
import re
import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from freezethaw.errors import FreezeThawError, SpaceError
from freezethaw.space import Choice, Float, Int, Space

EXAMPLE = Space(
    learning_rate=Float(1e-6, 1e-1, log=True, guess=1e-3),
    batch_size=Int(20, 2000, log=True),
    dropout=Float(0, 0.5, step=0.1),
    layers=Int(1, 4),
    optimizer=Choice("sgd", "adam", "rmsprop"),
    momentum=Float(0.0, 0.99, when={"optimizer": "sgd"}),
    nesterov=Choice(True, False, when={"optimizer": ["sgd", "rmsprop"]}),
    damping=Int(1, 9, step=2, when={"nesterov": True, "layers": [3, 4]}),
    width=Choice("s", "m", "l", ordered=True),
    seed=3,
)


# Spaces of any kind, for the properties.


@st.composite
def floats(draw: st.DrawFn, when: Any = None) -> Float:
    if draw(st.booleans()):
        step, count = draw(st.sampled_from([0.1, 0.25, 1.0, 3.0, 1e-3])), draw(st.integers(1, 1000))
        low = draw(st.integers(-50, 50)) * step
        return Float(round(low, 6), round(low + count * step, 6), step=step, when=when)
    log = draw(st.booleans())
    bounds = st.floats(1e-300, 1e300) if log else st.floats(-1e300, 1e300, allow_subnormal=False)
    low, high = sorted([draw(bounds), draw(bounds)])
    if low == high or (log and high / low < 1 + 1e-9):
        low, high = 1.0, 2.0
    return Float(low, high, log=log, when=when)


@st.composite
def ints(draw: st.DrawFn, when: Any = None) -> Int:
    log = draw(st.booleans())
    low = draw(st.integers(1, 10**15) if log else st.integers(-(10**15), 10**15))
    steps = draw(st.integers(1, 6) | st.integers(1, 2**40 - 1))
    step = None if log else draw(st.none() | st.integers(1, 7))
    return Int(low, low + steps * (step or 1), log=log, step=step, when=when)


@st.composite
def choices(draw: st.DrawFn, when: Any = None) -> Choice:
    values = draw(
        st.lists(st.none() | st.booleans() | st.integers() | st.text(), min_size=1, max_size=6, unique_by=repr)
    )
    return Choice(*values, ordered=draw(st.booleans()), when=when)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    entries: dict[str, Any] = {}
    for number in range(draw(st.integers(0, 6))):
        parents = [name for name, p in entries.items() if isinstance(p, Choice)]
        when = {}
        if parents:
            for parent in draw(st.lists(st.sampled_from(parents), max_size=2, unique=True)):
                values = entries[parent].values
                when[parent] = draw(st.lists(st.sampled_from(values), min_size=1, max_size=len(values)))
        kind = draw(st.sampled_from([floats, ints, choices, choices]))
        entries[f"p{number}"] = draw(kind(when=when))
    if draw(st.booleans()):
        entries["constant"] = draw(st.none() | st.booleans() | st.integers() | st.text())
    names = draw(st.permutations(list(entries)))  # a child may come before its parent
    return Space({name: entries[name] for name in names})


def units(space: Space) -> st.SearchStrategy[np.ndarray]:
    coordinate = st.floats(0, 1) | st.sampled_from([0.0, 1.0])
    return st.lists(coordinate, min_size=len(space), max_size=len(space)).map(np.array)


def close(space: Space, name: str, value: Any, again: Any) -> bool:
    parameter = space.parameters.get(name)
    if not isinstance(parameter, Float) or parameter.step is not None:
        return type(value) is type(again) and value == again
    scale = abs(value) if parameter.low >= 0 else parameter.high - parameter.low
    return type(again) is float and abs(again - value) <= 1e-12 * max(scale, abs(value))


# Round trips.


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


# What a space is.


def test_space_is_immutable_and_has_names_and_length() -> None:
    assert len(EXAMPLE) == 9
    assert EXAMPLE.names[:2] == ("learning_rate", "batch_size")
    assert dict(EXAMPLE.fixed) == {"seed": 3}
    with pytest.raises(AttributeError):
        EXAMPLE.names = ()
    with pytest.raises(TypeError):
        EXAMPLE.parameters["x"] = 1  # type: ignore[index]


def test_equality_tells_true_from_one() -> None:
    assert Space(a=Choice(True, False)) != Space(a=Choice(1, 0))
    assert Space(a=True) != Space(a=1)
    assert Space(a=1) == Space(a=1.0)
    assert Space(a=Int(0, 1), b=Int(0, 1)) != Space(b=Int(0, 1), a=Int(0, 1))
    assert Choice(True, 1).index(1) == 1
    assert Space(a=Float(0, 1)) != Space(a=Int(0, 1))


def test_repr_can_be_typed_in() -> None:
    assert repr(Space({"model.lr": Float(0, 1, guess=0.5), "n": 3})) == (
        "Space({'model.lr': Float(0.0, 1.0, guess=0.5), 'n': 3})"
    )
    assert repr(EXAMPLE.parameters["nesterov"]) == "Choice(True, False, when={'optimizer': ['sgd', 'rmsprop']})"
    assert repr(Choice(True, False, guess=False)) == "Choice(True, False, guess=False)"
    assert eval(repr(EXAMPLE)) == EXAMPLE


def test_spaces_without_anything_to_search() -> None:
    space = Space(seed=1)
    assert space.config([]) == {"seed": 1}
    assert space.features({}).shape == (0,)
    assert space.features_of([{}, {}]).shape == (2, 0)
    assert space.features_of_units(np.empty((4, 0))).shape == (4, 0)
    assert space.size == 1
    assert list(space.enumerate()) == [{"seed": 1}]
    assert Space().size == 1


# Conditions.


def test_conditions_nest_and_an_inactive_parameter_is_absent() -> None:
    def names(**values: Any) -> set[str]:
        point = EXAMPLE.unit(
            {"learning_rate": 1e-3, "batch_size": 20, "dropout": 0, "layers": 1, "optimizer": "adam", "width": "s"}
        )
        for name, value in values.items():
            point[EXAMPLE.names.index(name)] = EXAMPLE.parameters[name].unit(value)
        return set(EXAMPLE.config(point)) & {"momentum", "nesterov", "damping"}

    assert names(optimizer="adam", nesterov=True, layers=4) == set()
    assert names(optimizer="sgd", nesterov=False, layers=4) == {"momentum", "nesterov"}
    assert names(optimizer="rmsprop", nesterov=True, layers=3) == {"nesterov", "damping"}
    assert names(optimizer="rmsprop", nesterov=True, layers=2) == {"nesterov"}


def test_a_fixed_value_may_be_a_parent() -> None:
    space = Space(optimizer="sgd", momentum=Float(0, 1, when={"optimizer": "sgd"}))
    assert space.config([0.5]) == {"optimizer": "sgd", "momentum": 0.5}
    assert_array_equal(space.features_of_units([[0.25]]), [[0.25]])


def test_numbers_may_be_parents_by_listed_values() -> None:
    space = Space(
        n=Int(1, 4),
        second=Float(0, 1, when={"n": [2.0, np.int64(3)]}),
        s=Float(0, 1, step=0.5),
        t=Int(0, 1, when={"s": 1}),
    )
    assert [("second" in space.config([u, 0, 0, 0])) for u in (0.1, 0.3, 0.6, 0.9)] == [False, True, True, False]
    assert [("t" in space.config([0, 0, u, 0])) for u in (0.1, 0.5, 0.9)] == [False, False, True]
    assert_array_equal(space.features_of_units([[0.9, 0.1, 0.9, 0.9]])[0], space.features(space.config([0.9, 0, 1, 1])))


def when_of(when: Any, **others: Any) -> Space:
    return Space(**others, x=Float(0, 1, when=when))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: when_of({"optimiser": "sgd"}, optimizer=Choice("sgd")),
            "x: when names 'optimiser'.*did you mean 'optim",
        ),
        (lambda: when_of({"a": 1}), "x: when names 'a', which is not in the space, which has 'x'"),
        (
            lambda: when_of({"a": "c"}, a=Choice("a", "b")),
            "x: .*a cannot take: 'c' is not allowed; give one of 'a', 'b'",
        ),
        (lambda: when_of({"a": 1}, a=Choice(True, False)), "x: .*a cannot take: 1 is not"),
        (
            lambda: when_of({"a": 5}, a=Int(0, 4)),
            "x: .*a cannot take: 5 is not allowed; give a whole number from 0 to 4",
        ),
        (lambda: when_of({"a": 0.5}, a=Float(0, 4)), "x: when names 'a', a continuous Float"),
        (lambda: when_of({"a": 0.5}, a=0.6), "x: when needs a = 0.5, but a is fixed to 0.6"),
        (lambda: when_of({"x": 0.5}), "x: when names 'x', a continuous Float"),
        (lambda: Space(x=Choice(1, 2, when={"x": 1})), "x: when goes round in a circle among 'x'"),
        (
            lambda: Space(z=Int(0, 1), x=Choice(1, 2, when={"y": 1}), y=Choice(1, 2, when={"x": 1})),
            "x: when goes round in a circle among 'x', 'y'",
        ),
        (lambda: when_of({"a": []}, a=Choice(1, 2)), "when lists no value of 'a'"),
        (lambda: when_of("a", a=Choice(1, 2)), "when is 'a'; write it as in"),
    ],
)
def test_wrong_conditions_are_refused(build: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build()


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


# Validation.


CONFIG = {
    "learning_rate": 0.01, "batch_size": 100, "dropout": 0.2, "layers": 3, "optimizer": "rmsprop",
    "nesterov": True, "damping": 5, "width": "m",
}  # fmt: skip


def test_validate_normalises() -> None:
    given = CONFIG | {"learning_rate": np.float32(0.0625), "batch_size": np.int64(100), "dropout": 0, "layers": 3.0}
    valid = EXAMPLE.validate(given)
    assert valid == CONFIG | {"learning_rate": 0.0625, "dropout": 0.0, "seed": 3}
    assert list(valid) == [*(name for name in EXAMPLE.names if name in valid), "seed"]
    assert [type(valid[name]) for name in ("learning_rate", "batch_size", "dropout", "layers")] == [
        float,
        int,
        float,
        int,
    ]
    assert EXAMPLE.validate(CONFIG | {"nesterov": np.True_})["nesterov"] is True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.2}, "learning_rate: 0.2 is not allowed; give a number from 1e-06 to 0.1"),
        ({"learning_rate": math.nan}, "learning_rate: nan is not allowed"),
        ({"learning_rate": np.float64("nan")}, "learning_rate: nan is not allowed"),
        ({"learning_rate": True}, "learning_rate: True is not allowed"),
        ({"learning_rate": "0.01"}, "learning_rate: '0.01' is not allowed"),
        ({"learning_rate": 10**400}, "learning_rate: 10+ is not allowed"),
        (
            {"dropout": 0.25},
            "dropout: 0.25 is not allowed; give a number from 0.0 to 0.5 in steps of 0.1, for instance 0.2",
        ),
        ({"batch_size": 19}, "batch_size: 19 is not allowed; give a whole number from 20 to 2000"),
        ({"batch_size": 20.5}, "batch_size: 20.5 is not allowed"),
        ({"layers": True}, "layers: True is not allowed; give a whole number from 1 to 4"),
        ({"layers": math.inf}, "layers: inf is not allowed"),
        ({"layers": None}, "layers: None is not allowed"),
        ({"damping": 4}, "damping: 4 is not allowed; give a whole number from 1 to 9 in steps of 2"),
        ({"optimizer": "lion"}, "optimizer: 'lion' is not allowed; give one of 'sgd', 'adam', 'rmsprop'"),
        ({"optimizer": {1, 2}}, r"optimizer: \{1, 2\} is not allowed"),
        ({"nesterov": 1}, "nesterov: 1 is not allowed; give one of True, False"),
        ({"momentum": 0.5}, "momentum: is inactive here and must be left out; it needs optimizer = 'sgd'"),
        ({"layers": 2}, "damping: is inactive here.*nesterov = True and layers = 3 or 4"),
        ({"lr": 0.5}, "lr: is not in the space, which has 'learning_rate'"),
        ({"learningrate": 0.5}, "learningrate: is not in the space; did you mean 'learning_rate'?"),
        ({"seed": 4}, "seed: 4 is not allowed; it is fixed to 3"),
        ({"optimizer": "sgd"}, "momentum: is missing; give a number from 0.0 to 0.99"),
    ],
)
def test_wrong_configurations_are_refused(change: dict[str, Any], message: str) -> None:
    for method in (EXAMPLE.validate, EXAMPLE.unit, EXAMPLE.features, EXAMPLE.key):
        with pytest.raises(SpaceError, match=message):
            method(CONFIG | change)


def test_a_configuration_is_a_dict_and_a_point_is_in_the_cube() -> None:
    with pytest.raises(SpaceError, match=re.escape("a configuration is a dict of parameters and values, not [1]")):
        EXAMPLE.validate([1])  # type: ignore[arg-type]
    space = Space(x=Float(0, 1), y=Float(0, 1))
    with pytest.raises(SpaceError, match=re.escape("unit points have shape (3,); this space needs (2,)")):
        space.config([0, 0, 0])
    with pytest.raises(SpaceError, match=re.escape("unit points have shape (2,); this space needs (2, 2)")):
        space.features_of_units([0, 0])
    with pytest.raises(SpaceError, match=r"a unit coordinate is 1\.5; all must lie in"):
        space.config([0, 1.5])
    with pytest.raises(SpaceError, match="a unit coordinate is nan"):
        space.config([0, math.nan])


def test_key_is_the_same_for_equal_configurations_only() -> None:
    shuffled = dict(reversed((CONFIG | {"batch_size": np.int32(100), "seed": 3}).items()))
    assert EXAMPLE.key(shuffled) == EXAMPLE.key(CONFIG)
    assert len({EXAMPLE.key(CONFIG), EXAMPLE.key(shuffled), EXAMPLE.key(CONFIG | {"damping": 3})}) == 2
    space = Space(a=Choice(True, 1, [1, 2], {"b": [1]}, None))
    assert len({space.key(config) for config in space.enumerate()}) == 5


# Parameters are checked when they are made.


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Float(1, 0), "low is 1.0 and high is 0.0; low must be below high"),
        (lambda: Float(1, 1), "low and high are both 1.0; write the plain value 1.0 to fix it"),
        (lambda: Float(0, 1, log=True), "low is 0.0; a log scale needs low above 0"),
        (lambda: Float(math.nan, 1), "low is nan; it must be a finite number"),
        (lambda: Float(0, math.inf), "high is inf; it must be a finite number"),
        (lambda: Float("0", 1), "low is '0'; it must be a finite number"),  # type: ignore[arg-type]
        (lambda: Float(False, 1), "low is False; it must be a finite number"),
        (lambda: Float(-1.5e308, 1.5e308), "too wide or too narrow"),
        (lambda: Float(1e15, 1e15 + 0.125, log=True), "too wide or too narrow"),
        (lambda: Float(0, 1, 0.5), "log is 0.5; it must be True or False"),  # type: ignore[arg-type]
        (lambda: Float(0, 1, step=0.3), "high - low must be a multiple of step=0.3; the nearest high is 0.9"),
        (lambda: Float(0, 1, step=5), "high - low must be a multiple of step=5.0; the nearest high is 5.0"),
        (lambda: Float(0, 1, step=0), "step is 0; it must be a positive number"),
        (lambda: Float(0, 1, step="1"), "step is '1'; it must be a positive number"),  # type: ignore[arg-type]
        (lambda: Float(0, 1, step=1e-14), "step=1e-14 is too small for the range"),
        (lambda: Float(1e16, 2e16, step=0.5), "step=0.5 is too small for the range"),
        (lambda: Float(1, 2, step=0.1, log=True), "log and step cannot be combined"),
        (lambda: Float(0, 1, guess=2), "guess: 2 is not allowed; give a number from 0.0 to 1.0"),
        (lambda: Int(0, 1.5), r"high is 1.5; it must be a whole number \(use Float"),  # type: ignore[arg-type]
        (lambda: Int(True, 2), "low is True; it must be a whole number"),
        (lambda: Int(0, 5, log=True), "low is 0; a log scale needs low of at least 1"),
        (lambda: Int(5, 5), "low and high are both 5; write the plain value 5"),
        (lambda: Int(0, 5, step=2), "high - low must be a multiple of step=2; the nearest high is 4"),
        (lambda: Int(0, 5, step=-1), "step is -1; it must be a positive whole number"),
        (lambda: Int(0, 2**41), "too many values to be told apart"),
        (lambda: Int(1, 9, guess=0), "guess: 0 is not allowed; give a whole number from 1 to 9"),
        (Choice, "a Choice needs at least one value"),
        (lambda: Choice(1, 2, 1.0), "1.0 is given twice; the values of a Choice must differ"),
        (lambda: Choice(1, math.nan), "nan cannot be a value; name it by a text"),
        (lambda: Choice(1, {2}), r"\{2\} cannot be a value; use numbers, text"),
        (lambda: Choice("a", "b", guess="c"), "guess: 'c' is not allowed; give one of 'a', 'b'"),
        (lambda: Choice("a", "b", ordered=1), "ordered is 1; it must be True or False"),  # type: ignore[arg-type]
        (lambda: Space(x=["a", "b"]), r"x: \['a', 'b'\] is no parameter and no plain value; write Choice"),
        (lambda: Space(x=math.inf), "x: inf cannot be a value"),
        (lambda: Space(x=Float), r"x: is the class Float; call it, as in Float\(...\)"),
        (lambda: Space({"": 1}), "a parameter's name must be a text that is not empty, not ''"),
        (lambda: Space({1: 1}), "a parameter's name must be a text that is not empty, not 1"),  # type: ignore[dict-item]
        (lambda: Space({"x": 1}, x=2), "x: is given twice"),
    ],
)
def test_wrong_parameters_are_refused(build: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build()


def test_numpy_numbers_make_parameters() -> None:
    assert Float(np.float32(0), np.int64(1)) == Float(0, 1)  # type: ignore[arg-type]
    assert Int(np.int64(1), 1e3) == Int(1, 1000)  # type: ignore[arg-type]
    assert Choice(*np.array([0.5, 1.5])) == Choice(0.5, 1.5)


def test_guesses_are_unit_coordinates() -> None:
    space = Space(f=Float(1e-4, 1, log=True, guess=1e-2), n=Int(0, 9, guess=0), c=Choice(1, 2, guess=2), x=Float(0, 1))
    assert space.guesses() == pytest.approx({"f": 0.5, "n": 0.05, "c": 0.75})


# Counting.


def test_size_counts_what_enumerate_gives() -> None:
    space = Space(
        a=Choice("x", "y", "z"), b=Int(1, 4, when={"a": "x"}), c=Choice(1, 2, when={"b": [2, 3]}),
        d=Float(0, 1, step=0.5, when={"a": ["x", "y"], "b": 1}), e=Int(0, 1), seed=1,
    )  # fmt: skip
    configs = list(space.enumerate())
    assert len(configs) == len({space.key(config) for config in configs}) == space.size
    assert space.size == 2 * (3 + 2 + 2 + 1 + 1 + 1)  # b=1 with d, b=2 and b=3 with c, b=4, a=y, a=z
    assert all(space.validate(config) == config for config in configs)


@settings(max_examples=100, deadline=None)
@given(spaces())
def test_size_of_any_small_space_is_exact(space: Space) -> None:
    if space.size <= 500:
        keys = [space.key(config) for config in space.enumerate()]
        assert len(keys) == len(set(keys)) == space.size


def test_a_parameter_that_is_never_active_does_not_count() -> None:
    never = Float(0, 1, when={"a": 1, "b": 1})
    space = Space(a=Choice(1, 2), b=Choice(1, when={"a": 2}), never=never)
    assert list(space.enumerate()) == [{"a": 1}, {"a": 2, "b": 1}]
    assert space.size == 2


def test_infinite_and_huge_spaces() -> None:
    assert EXAMPLE.size == math.inf
    with pytest.raises(SpaceError, match="learning_rate: has infinitely many values; give it a step"):
        EXAMPLE.enumerate()
    switches: dict[str, Any] = {f"s{i}": Choice(True, False) for i in range(40)}
    child = Choice(1, 2, when=dict.fromkeys(switches, True))
    assert Space(switches | {"child": child}).size == 2**41  # an upper bound
    assert Space(a=Int(1, 10**9), b=Int(1, 3, when={"a": 7})).size == 10**9 + 2


# Descriptions.


def test_description_is_short_and_plain() -> None:
    space = Space(
        learning_rate=Float(1e-6, 0.1, log=True), optimizer=Choice("sgd", "adam"),
        momentum=Float(0, 1, guess=0.9, when={"optimizer": "sgd"}), seed=3, note=None,
    )  # fmt: skip
    described = {
        "learning_rate": {"type": "float", "low": 1e-6, "high": 0.1, "log": True},
        "optimizer": {"type": "choice", "values": ["sgd", "adam"]},
        "momentum": {"type": "float", "low": 0.0, "high": 1.0, "guess": 0.9, "when": {"optimizer": "sgd"}},
        "seed": {"type": "fixed", "value": 3},
        "note": {"type": "fixed"},
    }
    assert space.to_dict() == described
    assert Space.from_dict(described) == space
    assert Space.from_dict(described | {"seed": 3, "note": None}) == space
    assert Space.from_dict(EXAMPLE.to_dict()) == EXAMPLE


def test_description_in_toml() -> None:
    text = """
    seed = 3
    optimizer = {type = "choice", values = ["sgd", "adam"]}
    [learning_rate]
    type = "float"
    low = 1e-6
    high = 1e-1
    log = true
    """
    assert Space.from_dict(tomllib.loads(text)) == Space(
        seed=3, optimizer=Choice("sgd", "adam"), learning_rate=Float(1e-6, 0.1, log=True)
    )


def test_list_valued_choices_and_their_children_survive_a_description() -> None:
    space = Space(layers=Choice((64, 64), (128,)), x=Float(0, 1, when={"layers": [(128,)]}))
    again = Space.from_dict(json.loads(json.dumps(space.to_dict())))
    assert again == space
    assert "x" in again.config([1, 0])
    assert "x" not in again.config([0, 0])


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"x": {"low": 0, "high": 1}}, "x: its description has no type; give 'float', 'int', 'choice' or 'fixed'"),
        ({"x": {"type": "real", "low": 0}}, "x: type is 'real'; it must be one of 'float'"),
        ({"x": {"type": ["int"]}}, r"x: type is \['int'\]; it must be one of 'float'"),
        ({"x": {"type": "int", "low": 0}}, "x: a description of type 'int' needs 'high'"),
        (
            {"x": {"type": "int", "low": 0, "high": 3, "logg": True}},
            "x: unknown key 'logg'; type 'int' has 'low', 'high'",
        ),
        ({"x": {"type": "fixed", "valeu": 0}}, "x: unknown key 'valeu'; type 'fixed' has 'value'"),
        ({"x": {"type": "choice", "values": "ab"}}, "x: values is 'ab'; it must be a list"),
        ({"x": {"type": "float", "low": 2, "high": 1}}, "x: low is 2.0 and high is 1.0"),
        ([1], r"a space is described by a dict of parameters, not \[1\]"),
    ],
)
def test_wrong_descriptions_are_refused(description: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        Space.from_dict(description)


def test_values_that_no_file_can_hold_may_be_searched_but_not_described() -> None:
    space = Space(activation=Choice(math.tanh, math.erf))
    assert space.config([0.0]) == {"activation": math.tanh}
    with pytest.raises(
        SpaceError, match="activation: <built-in function tanh> cannot be written to a file; use a text"
    ):
        space.to_dict()


def test_difference_tells_added_from_removed_from_changed() -> None:
    old = Space(a=Float(0, 1), b=Int(1, 3), c=Choice(1, 2), d=4, same=Int(0, 1))
    new = Space(same=Int(0, 1), a=Float(0, 2), c=Int(1, 2), d=5, e=Float(0, 1))
    difference = old.difference(new)
    assert difference.added == ("c=Int(1, 2)", "e=Float(0.0, 1.0)")
    assert difference.removed == ("b=Int(1, 3)", "c=Choice(1, 2)")
    assert difference.changed == ("a=Float(0.0, 1.0) to Float(0.0, 2.0)", "d=4 to 5")
    assert str(difference).startswith("added: c=Int(1, 2), e=Float(0.0, 1.0); removed: b=")
    assert str(old.difference(old)) == "no difference"
    assert not old.difference(Space(dict(reversed(list(old.parameters.items()))), d=4))  # the order is no difference


# Other libraries.


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("optuna", "optuna.distributions", "ConfigSpace"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(FreezeThawError, match="this needs optuna, which is not installed: pip install optuna"):
        EXAMPLE.to_optuna()
    with pytest.raises(
        FreezeThawError, match="this needs ConfigSpace, which is not installed: pip install ConfigSpace"
    ):
        Space.from_configspace(None)


def test_optuna_and_back() -> None:
    optuna = pytest.importorskip("optuna")
    space = Space(
        a=Float(1e-3, 1, log=True), b=Float(0, 1, step=0.25), c=Int(1, 64, log=True), d=Int(0, 10, step=5),
        e=Choice("x", None, True), f=Int(0, 3), g=7, h=None,
    )  # fmt: skip
    distributions = space.to_optuna()
    assert distributions["a"] == optuna.distributions.FloatDistribution(1e-3, 1, log=True)
    assert distributions["d"] == optuna.distributions.IntDistribution(0, 10, step=5)
    back = Space.from_optuna(distributions)
    assert not space.difference(back)
    trial = optuna.trial.create_trial(params=space.config(np.full(6, 0.3)), distributions=distributions, value=0.0)
    assert space.validate(trial.params) == trial.params
    assert Space.from_optuna({"x": optuna.distributions.IntDistribution(3, 3)}) == Space(x=3)
    with pytest.raises(SpaceError, match="x: 3 is no Optuna distribution"):
        Space.from_optuna({"x": 3})


def test_configspace_and_back() -> None:
    pytest.importorskip("ConfigSpace")
    space = Space(
        a=Float(1e-3, 1, log=True), b=Choice("x", "y", "z"), c=Int(1, 64, when={"b": ["x", "y"]}),
        d=Choice(1, 2, 4, ordered=True, when={"b": "x", "g": 7}), e=Choice("only", when={"d": 2, "b": "x"}), g=7,
    )  # fmt: skip
    configspace = space.to_configspace()
    configspace.seed(0)
    back = Space.from_configspace(configspace)
    assert set(back.names) == set(space.names)
    for config in configspace.sample_configuration(100):
        valid = space.validate(dict(config))
        assert back.validate(valid) == {name: valid[name] for name in back.validate(valid)}
    for seed in range(50):
        config = space.sample(np.random.default_rng(seed))
        assert back.validate(config) == config
    assert back.size == math.inf


def test_configspace_steps_guesses_and_other_conditions() -> None:
    library = pytest.importorskip("ConfigSpace")
    configspace = Space(x=Float(0, 1, step=0.5, guess=0.5), n=Int(0, 9, guess=2)).to_configspace()
    assert configspace["x"].sequence == (0.0, 0.5, 1.0)
    assert dict(configspace.get_default_configuration()) == {"x": 0.5, "n": 2}
    with pytest.raises(SpaceError, match="x: ConfigSpace has no steps, and 1000001 values are too many"):
        Space(x=Int(0, 3000000, step=3)).to_configspace()

    kind, size = (
        library.CategoricalHyperparameter("kind", ["a", "b", "c"]),
        library.UniformIntegerHyperparameter("size", 1, 5),
    )
    child, other = library.UniformFloatHyperparameter("child", 0, 1), library.UniformFloatHyperparameter("other", 0, 1)
    configspace = library.ConfigurationSpace()
    configspace.add(kind, size, child, other)
    configspace.add(
        library.NotEqualsCondition(child, kind, "a"),
        library.OrConjunction(library.LessThanCondition(other, size, 2), library.GreaterThanCondition(other, size, 4)),
    )
    assert Space.from_configspace(configspace) == Space(
        kind=Choice("a", "b", "c"), size=Int(1, 5), child=Float(0, 1, when={"kind": ["b", "c"]}),
        other=Float(0, 1, when={"size": [1, 5]}),
    )  # fmt: skip


def test_configspace_refusals() -> None:
    library = pytest.importorskip("ConfigSpace")
    configspace = library.ConfigurationSpace({"a": (0, 5), "b": (0, 5), "c": (0.0, 1.0)})
    a, b, c = (configspace[name] for name in "abc")
    configspace.add(library.OrConjunction(library.EqualsCondition(c, a, 1), library.EqualsCondition(c, b, 1)))
    with pytest.raises(SpaceError, match=r"c: the condition .* has no counterpart in `when`"):
        Space.from_configspace(configspace)
    configspace = library.ConfigurationSpace({"a": (0, 5)})
    configspace.add(library.ForbiddenEqualsClause(configspace["a"], 5))
    with pytest.raises(SpaceError, match="forbidden clauses cannot be searched here"):
        Space.from_configspace(configspace)
    configspace = library.ConfigurationSpace()
    configspace.add(library.NormalFloatHyperparameter("x", 0, 1, lower=-5, upper=5))
    with pytest.raises(SpaceError, match="x: a NormalFloatHyperparameter cannot be searched here"):
        Space.from_configspace(configspace)
