"""Spaces for the tests: one with everything in it, and spaces of any kind for the properties."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

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


CONFIG = {
    "learning_rate": 0.01, "batch_size": 100, "dropout": 0.2, "layers": 3, "optimizer": "rmsprop",
    "nesterov": True, "damping": 5, "width": "m",
}  # fmt: skip


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
