from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freezethaw.errors import StoreError
from freezethaw.store import documents, rows

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("$number")
NAMES = st.text() | st.sampled_from(["$number", "$dict"])
PLAIN = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4))


@given(PLAIN)
def test_what_is_written_is_read(value):
    text = documents.dump(value)
    assert repr(documents.load(text)) == repr(value)  # repr: NaN is NaN, 1 is not True, and the order of names stays
    assert text.isascii()
    assert "NaN" not in text.replace('"NaN', "") or "NaN" in repr(value)


@given(PLAIN, PLAIN)
def test_a_difference_leads_from_one_to_the_other(old, new):
    before = repr(old)
    changes = documents.load(documents.dump(rows.difference(old, new)))
    assert repr(rows.apply(old, changes)) == repr(new)
    assert repr(old) == before
    assert rows.difference(new, new) == []


def test_a_difference_is_small():
    old = {"samples": [{"a": float(i), "b": 0.5} for i in range(10)], "anchor": [0.1] * 100}
    new = {**old, "samples": [*old["samples"][:3], {"a": 9.0, "b": 0.5}, *old["samples"][4:]]}
    assert rows.difference(old, new) == [[["samples", 3, "a"], 9.0]]


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {3.0}}, b"bytes", [complex(1, 2)]])
def test_what_json_cannot_represent_is_refused(value):
    with pytest.raises(StoreError, match="plain JSON"):
        documents.dump(value)


def test_numbers_that_json_does_not_have():
    assert documents.dump([math.nan, math.inf, -math.inf, 1.5]) == (
        '[{"$number":"nan"},{"$number":"inf"},{"$number":"-inf"},1.5]'
    )
