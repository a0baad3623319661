"""The benchmark of many workers, small: what it counts and how it reckons idling."""

from __future__ import annotations

import pytest
from benchmarks import crowd


def test_workers_that_are_answered_at_once_do_not_idle():
    assert crowd.idle([(0.0, 1.0)] * 100, 60.0) == 0.0
    few = crowd.idle([(0.01, 1.0)] * 100, 60.0)  # nobody waits for another
    assert few == pytest.approx(0.01 / 60.01)


def test_where_answers_are_the_bottleneck_workers_wait_for_their_turn():
    """A round of 64 answers of a second each takes 64 s, of which a worker trains one."""
    assert crowd.idle([(1.0, 1.0)] * 640, 1.0) == pytest.approx(63 / 64, abs=0.05)


def test_the_shortest_epoch_is_the_one_at_which_idling_is_as_allowed():
    turns = [(0.1, 1.0)] * 200
    found = crowd.shortest(turns)
    assert crowd.idle(turns, found) <= crowd.ALLOWED < crowd.idle(turns, 0.9 * found)


@pytest.mark.slow
def test_sixty_four_workers_begin_with_different_configurations():
    found = crowd.simulate(0.0, 3)
    assert (found["runs_before"], found["decisions"]) == (0, 3)
    assert found["runs_after"] >= crowd.WORKERS
    assert (found["duplicates"], found["run_given_to_two"]) == (0, 0)
