"""Part of what every store does: one decides at a time, and one owns a run."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from freezethaw.errors import LeaseLost
from freezethaw.records import DecisionDraft
from freezethaw.store import Process, Watcher
from tests.store.small_study import CONFIG, Clock, decide, opened, report, take_over, tickets


class LeasesContract:
    """Needs a fixture `url` of an empty store."""

    def test_one_process_decides_at_a_time(self, url):
        one, two = opened(url), opened(url)
        lease_to_decide = one.acquire_decision_lease(Watcher())
        assert two.acquire_decision_lease(Watcher()) is None
        one.release(lease_to_decide)
        second = two.acquire_decision_lease(Watcher())
        assert second.token == lease_to_decide.token + 1
        before = one.load()
        with pytest.raises(LeaseLost, match=r"decision lease \(token 1\) was lost: token 2 is held by process"):
            one.commit(lease_to_decide, DecisionDraft(None, CONFIG, 3, "r"), 0, {"a": 1})
        assert one.load() == before
        assert one.samples() is None

    def test_a_commit_releases_the_decision_lease_by_default(self, url):
        study = opened(url)
        lease_to_decide = study.acquire_decision_lease(Watcher())
        study.commit(lease_to_decide, DecisionDraft(None, CONFIG, 3, "r"), 0, keep_lease=True)
        study.commit(lease_to_decide, DecisionDraft(None, CONFIG, 3, "r"), 1)
        with pytest.raises(LeaseLost, match="released before"):
            study.commit(lease_to_decide, DecisionDraft(None, CONFIG, 3, "r"), 2)
        assert study.load().decisions == 2

    def test_a_silent_holder_loses_its_lease_only_to_a_process_that_watched_it_for_the_lease_time(self, url):
        study, clock = opened(url), Clock()
        lease = decide(study).lease
        study.record(lease, report(1, 3.0))
        watcher = Watcher(60.0, clock)
        assert take_over(study, watcher) is None  # first seen now
        clock.now += 59
        assert take_over(study, watcher) is None
        assert take_over(study, Watcher(60.0, clock)) is None  # another one has not watched yet
        study.beat(lease)
        clock.now += 59
        assert take_over(study, watcher) is None  # it moved: the wait begins anew
        clock.now += 59
        study.record(lease, report(2, 2.0))  # recording shows life too
        clock.now += 59
        assert take_over(study, watcher) is None
        clock.now += 60
        taken = take_over(study, watcher)
        assert taken.lease == replace(lease, token=lease.token + 1)
        assert taken.decision == study.load().pending[0]
        before = study.load()
        for late in (
            lambda: study.record(lease, report(3, 9.0)),
            lambda: study.record(lease, close="told"),
            lambda: study.beat(lease),
            lambda: study.release(lease),
            lambda: study.drop_checkpoints([1], "replaced", lease),
        ):
            with pytest.raises(LeaseLost, match=r"run 1 \(token 1\) was lost: token 2 is held"):
                late()
        assert study.load() == before
        study.record(taken.lease, report(3, 1.0), close="told")
        assert study.load().runs[0].losses == (3.0, 2.0, 1.0)
        assert [(e.kind, e.run) for e in study.events()] == [("lease taken over", 1)]

    def test_taking_a_lease_as_seen_before_works_once(self, url):
        study, clock = opened(url), Clock()
        decide(study)
        one, two = Watcher(1.0, clock), Watcher(1.0, clock)
        assert take_over(study, one) is take_over(study, two) is None
        clock.now += 2
        assert take_over(study, one) is not None
        assert take_over(study, two) is None

    def test_a_holder_that_beats_at_the_last_moment_keeps_its_lease(self, url):
        """Between the look and the taking: what was seen must still be so."""
        study = opened(url)
        lease = decide(study).lease
        times = iter([0.0, 100.0])

        def clock():
            now = next(times)
            if now:
                study.beat(lease)
            return now

        watcher = Watcher(60.0, clock)
        assert take_over(study, watcher) is None
        assert take_over(study, watcher) is None
        study.record(lease, report(1, 1.0))

    @pytest.mark.parametrize(
        ("change", "dead"),
        [
            ({}, False),  # it is us
            ({"started": "1"}, True),  # our number, but another process had it
            ({"pid": 2**22 + 1}, True),  # no such process
            ({"pid": 2**22 + 1, "boot": "another"}, False),  # of another machine or boot: cannot be known
            ({"pid": 2**22 + 1, "boot": ""}, False),
        ],
    )
    def test_which_holders_are_known_to_be_dead(self, url, change, dead):
        study = opened(url)
        decide(study)
        elsewhere = replace(Process.current(), **change)
        watcher = Watcher(3600.0)
        held = replace(study.leases()[-1], holder=elsewhere)
        assert watcher.may_take(study.uid, held) is dead

    def test_a_released_lease_is_taken_over_at_once(self, url):
        study = opened(url)
        first = decide(study)
        study.record(first.lease, report(1, 1.0))
        study.release(first.lease)
        taken = take_over(study, Watcher(3600.0))
        assert (taken.decision, taken.lease.token) == (first.decision, 2)
        study.record(taken.lease, report(2, 1.0), close="told")
        assert take_over(study, Watcher(0.0)) is None  # nothing is pending

    def test_the_right_to_decide_is_granted_in_the_order_of_asking(self, url):
        study, granted = opened(url), []
        held = study.acquire_decision_lease(Watcher())

        def ask(name):
            mine = opened(url)
            lease = mine.wait_for_decision_lease(Watcher(), time.sleep)
            granted.append(name)
            assert study.acquire_decision_lease(Watcher()) is None
            mine.release(lease)

        threads = [threading.Thread(target=ask, args=(name,)) for name in range(5)]
        for count, thread in enumerate(threads, 1):
            thread.start()
            while study.shared and tickets(url) < count:  # so that they ask in this order
                time.sleep(0.01)
        study.release(held)
        for thread in threads:
            thread.join()
        if study.shared:  # threads of one process need no order
            assert granted == list(range(5))
        assert study.acquire_decision_lease(Watcher()) is not None
