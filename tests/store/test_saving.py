from __future__ import annotations

import pytest

from freezethaw.errors import StudyError
from freezethaw.records import Run
from freezethaw.store.recording import past_decisions


def run(number, losses=1, added=False):
    return Run(number, {}, (1.0,) * losses, added=added)


@pytest.mark.parametrize(
    ("runs", "pending", "count", "expected"),
    [
        ([], {}, 0, []),
        ([run(1), run(2)], {}, 2, [(1, 1), (2, 2)]),
        ([run(1), run(2)], {}, 9, [(1, 1), (9, 2)]),  # the last number is used, so that it is known how many there were
        ([run(1), run(2, added=True), run(3, losses=0)], {}, 2, [(1, 1), (2, 3)]),
        ([run(1), run(2)], {2: 3}, 3, [(1, 2), (2, 1)]),  # the past of run 2 comes before its pending decision
        ([run(1), run(2, losses=0)], {2: 1}, 2, [(2, 1)]),
    ],
)
def test_numbers_for_the_past(runs, pending, count, expected):
    assert [(number, found.number) for number, found in past_decisions(runs, pending, count)] == expected


@pytest.mark.parametrize(("runs", "pending", "count"), [([run(1), run(2)], {}, 1), ([run(1), run(2)], {2: 1}, 2)])
def test_impossible_histories_are_refused(runs, pending, count):
    with pytest.raises(StudyError, match="cannot have led"):
        past_decisions(runs, pending, count)
