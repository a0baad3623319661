"""What a space is: conditions, what is refused, how many configurations there are."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_array_equal

from freezethaw.errors import SpaceError
from freezethaw.space import Choice, Float, Int, Space
from tests.space.spaces import CONFIG, EXAMPLE, spaces


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


@pytest.mark.parametrize("values", [["sgd", "adam"], ("sgd", "adam")])
def test_one_list_or_tuple_is_the_list_of_values(values: Any) -> None:
    assert Choice(values) == Choice("sgd", "adam")
    assert Choice(values, guess="adam", when={"x": 1}) == Choice("sgd", "adam", guess="adam", when={"x": 1})
    assert Choice([values]).values == (values,)
    with pytest.raises(SpaceError, match="at least one value"):
        Choice(type(values)())


@pytest.mark.parametrize("choice", [Choice([[64, 64]]), Choice([(1, 2)], guess=(1, 2)), Choice([[1]], [2])])
def test_values_that_are_lists_survive_description_and_repr(choice: Choice) -> None:
    space = Space(x=choice)
    assert Space.from_dict(space.to_dict()) == space
    assert eval(repr(choice)) == choice


def test_a_dict_of_parameters_is_a_space() -> None:
    parameters = {"rate": Float(0, 1), "model.depth": Int(1, 4), "seed": 3}
    assert Space.of(parameters) == Space(parameters)
    assert Space.of(EXAMPLE) is EXAMPLE
    for wrong in (None, [("rate", Float(0, 1))], Float(0, 1)):
        with pytest.raises(SpaceError, match="expected a Space or a dict of parameters, not"):
            Space.of(wrong)  # type: ignore[arg-type]


def test_the_union_of_two_versions_contains_the_configurations_of_both() -> None:
    now = Space(rate=Float(0.1, 1, log=True), units=Int(2, 8, step=2), kind=Choice("a", "b"), depth=3, new=Int(0, 1))
    before = Space(rate=Float(0.01, 0.5, log=True), units=Int(1, 4), kind=Choice("b", "c"), depth=2)
    assert now.union(before) == Space(
        rate=Float(0.01, 1, log=True), units=Int(1, 8), kind=Choice("a", "b", "c"), depth=Choice(3, 2), new=Int(0, 1)
    )
    assert now.union(now) == now


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
            "x: .*a cannot have: 'c' is not allowed; give one of 'a', 'b'",
        ),
        (lambda: when_of({"a": 1}, a=Choice(True, False)), "x: .*a cannot have: 1 is not"),
        (
            lambda: when_of({"a": 5}, a=Int(0, 4)),
            "x: .*a cannot have: 5 is not allowed; give an integer from 0 to 4",
        ),
        (lambda: when_of({"a": 0.5}, a=Float(0, 4)), "x: when names 'a', a continuous Float"),
        (lambda: when_of({"a": 0.5}, a=0.6), "x: when needs a = 0.5, but a is fixed to 0.6"),
        (lambda: when_of({"x": 0.5}), "x: when names 'x', a continuous Float"),
        (lambda: Space(x=Choice(1, 2, when={"x": 1})), "x: the conditions of 'x' form a cycle"),
        (
            lambda: Space(z=Int(0, 1), x=Choice(1, 2, when={"y": 1}), y=Choice(1, 2, when={"x": 1})),
            "x: the conditions of 'x', 'y' form a cycle",
        ),
        (lambda: when_of({"a": []}, a=Choice(1, 2)), "when has no value of 'a'"),
        (lambda: when_of("a", a=Choice(1, 2)), "when is 'a'; expected e.g."),
    ],
)
def test_wrong_conditions_are_refused(build: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build()


# Validation.


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
        ({"batch_size": 19}, "batch_size: 19 is not allowed; give an integer from 20 to 2000"),
        ({"batch_size": 20.5}, "batch_size: 20.5 is not allowed"),
        ({"layers": True}, "layers: True is not allowed; give an integer from 1 to 4"),
        ({"layers": math.inf}, "layers: inf is not allowed"),
        ({"layers": None}, "layers: None is not allowed"),
        ({"damping": 4}, "damping: 4 is not allowed; give an integer from 1 to 9 in steps of 2"),
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
        (lambda: Float(1, 1), "low and high are both 1.0; to fix the parameter, write 1.0"),
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
        (lambda: Int(0, 1.5), r"high is 1.5; it must be an integer \(use Float"),  # type: ignore[arg-type]
        (lambda: Int(True, 2), "low is True; it must be an integer"),
        (lambda: Int(0, 5, log=True), "low is 0; a log scale needs low of at least 1"),
        (lambda: Int(5, 5), "low and high are both 5; to fix the parameter, write 5"),
        (lambda: Int(0, 5, step=2), "high - low must be a multiple of step=2; the nearest high is 4"),
        (lambda: Int(0, 5, step=-1), "step is -1; it must be a positive integer"),
        (lambda: Int(0, 2**41), "there are too many values"),
        (lambda: Int(1, 9, guess=0), "guess: 0 is not allowed; give an integer from 1 to 9"),
        (Choice, "a Choice needs at least one value"),
        (lambda: Choice(1, 2, 1.0), "1.0 is given twice; the values of a Choice must differ"),
        (lambda: Choice(1, math.nan), "nan cannot be a value; use a text"),
        (lambda: Choice(1, {2}), r"\{2\} cannot be a value; use numbers, text"),
        (lambda: Choice("a", "b", guess="c"), "guess: 'c' is not allowed; give one of 'a', 'b'"),
        (lambda: Choice("a", "b", ordered=1), "ordered is 1; it must be True or False"),  # type: ignore[arg-type]
        (lambda: Space(x=["a", "b"]), r"x: \['a', 'b'\] is neither a parameter nor a simple value; use Choice"),
        (lambda: Space(x=math.inf), "x: inf cannot be a value"),
        (lambda: Space(x=Float), r"x: is the class Float; call it, as in Float\(...\)"),
        (lambda: Space({"": 1}), "the name of a parameter must be a non-empty string, not ''"),
        (lambda: Space({1: 1}), "the name of a parameter must be a non-empty string, not 1"),  # type: ignore[dict-item]
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
