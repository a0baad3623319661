"""Part of what every store does: one decides at a time, and one owns a run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from freezethaw.errors import LeaseLost
from freezethaw.store import Process, Proposal, Watcher
from tests.store.small_study import CONFIG, Clock, decide, opened, report


class LeasesContract:
    """Needs a fixture `url` of an empty store."""

    def test_one_decides_at_a_time(self, url):
        one, two = opened(url), opened(url)
        permit = one.permission(Watcher())
        assert two.permission(Watcher()) is None
        one.release(permit)
        second = two.permission(Watcher())
        assert second.token == permit.token + 1
        before = one.load()
        with pytest.raises(LeaseLost, match=r"lease to decide \(token 1\) was lost: token 2 is held by process"):
            one.commit(permit, Proposal(None, CONFIG, 3, "r"), 0, {"a": 1})
        assert one.load() == before
        assert one.sampler_state() is None

    def test_a_commit_gives_the_permission_back_unless_told_otherwise(self, url):
        study = opened(url)
        permit = study.permission(Watcher())
        study.commit(permit, Proposal(None, CONFIG, 3, "r"), 0, keep_permit=True)
        study.commit(permit, Proposal(None, CONFIG, 3, "r"), 1)
        with pytest.raises(LeaseLost, match="given back before"):
            study.commit(permit, Proposal(None, CONFIG, 3, "r"), 2)
        assert study.load().decisions == 2

    def test_a_silent_holder_loses_its_lease_only_to_who_watched_it_for_the_lease_time(self, url):
        study, clock = opened(url), Clock()
        lease = decide(study).lease
        study.record(lease, report(1, 3.0))
        watcher = Watcher(60.0, clock)
        assert study.take_over(watcher) is None  # first seen now
        clock.now += 59
        assert study.take_over(watcher) is None
        assert study.take_over(Watcher(60.0, clock)) is None  # another one has not watched yet
        study.beat(lease)
        clock.now += 59
        assert study.take_over(watcher) is None  # it moved: the wait begins anew
        clock.now += 59
        study.record(lease, report(2, 2.0))  # recording shows life too
        clock.now += 59
        assert study.take_over(watcher) is None
        clock.now += 60
        taken = study.take_over(watcher)
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

    def test_who_looks_twice_does_not_take_twice(self, url):
        study, clock = opened(url), Clock()
        decide(study)
        one, two = Watcher(1.0, clock), Watcher(1.0, clock)
        assert study.take_over(one) is study.take_over(two) is None
        clock.now += 2
        assert study.take_over(one) is not None
        assert study.take_over(two) is None

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
        assert study.take_over(watcher) is None
        assert study.take_over(watcher) is None
        study.record(lease, report(1, 1.0))

    def test_a_dead_process_of_this_machine_loses_its_lease_at_once(self, url):
        code = (
            "import os, sys\n"
            "from tests.store.small_study import decide, opened\n"
            "study = opened(sys.argv[1])\n"
            "decide(study)\n"
            "from freezethaw.store import Watcher\n"
            "assert study.permission(Watcher())\n"
            "os.kill(os.getpid(), 9)\n"
        )
        killed = subprocess.run([sys.executable, "-c", code, url], env=os.environ, check=False, cwd=_root())
        assert killed.returncode == -9
        study = opened(url)
        assert [lease.held for lease in study.leases()] == [True, True]
        watcher = Watcher(3600.0)
        assert study.take_over(watcher).lease.token == 2
        assert study.permission(watcher).token == 3
        assert [e.kind for e in study.events()] == ["lease taken over"] * 2

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
    def test_which_holders_are_surely_dead(self, url, change, dead):
        study = opened(url)
        decide(study)
        elsewhere = replace(Process.current(), **change)
        watcher = Watcher(3600.0)
        held = replace(study.leases()[-1], holder=elsewhere)
        assert watcher.may_take(study.uid, held) is dead

    def test_a_lease_that_is_given_back_is_taken_over_at_once(self, url):
        study = opened(url)
        first = decide(study)
        study.record(first.lease, report(1, 1.0))
        study.release(first.lease)
        taken = study.take_over(Watcher(3600.0))
        assert (taken.decision, taken.lease.token) == (first.decision, 2)
        study.record(taken.lease, report(2, 1.0), close="told")
        assert study.take_over(Watcher(0.0)) is None  # nothing is pending


def _root():
    from pathlib import Path

    return Path(__file__).parents[2]
