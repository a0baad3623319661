from __future__ import annotations

import time

import pytest

from freezethaw.errors import StoreError
from freezethaw.store import Heartbeat, Watcher
from tests.store.small_study import Clock, decide, opened, take_over


@pytest.fixture
def study(tmp_path):
    return opened(f"sqlite:///{tmp_path / 'x.db'}")


def beats(study):
    return {lease.run: lease.beat for lease in study.leases() if lease.run}


def until(condition):
    while not condition():
        time.sleep(0.01)


def test_leases_beat_while_they_are_held(study):
    one, two = decide(study).lease, decide(study).lease
    with Heartbeat(study.beat, one, seconds=0.1) as heart:
        until(lambda: beats(study)[1] > 3)
        assert beats(study)[2] == 0
        heart.add(two)
        until(lambda: beats(study)[2] > 3)
        heart.remove(one)
        time.sleep(0.1)
        before = beats(study)[1]
        until(lambda: beats(study)[2] > 10)
        assert beats(study)[1] == before
        assert heart.lost == frozenset()
    after = beats(study)
    time.sleep(0.1)
    assert beats(study) == after


def test_a_lost_lease_is_noticed(study):
    lease, clock = decide(study).lease, Clock()
    watcher = Watcher(60.0, clock)
    take_over(study, watcher)
    clock.now += 61
    assert take_over(study, watcher)
    with Heartbeat(study.beat, lease, seconds=0.1) as heart:
        until(lambda: heart.lost == {lease})


def test_errors_of_the_store_do_not_end_the_heartbeat(study):
    lease, failing = decide(study).lease, [True]

    def beat(lease):
        if failing[0]:
            raise StoreError("away")
        study.beat(lease)

    with Heartbeat(beat, lease, seconds=0.1) as heart:
        until(lambda: heart.trouble is not None)
        failing[0] = False
        until(lambda: beats(study)[1] > 1)
        assert heart.trouble is None
        assert heart.lost == frozenset()
