"""What every store does, whatever database is underneath. The subclasses say which."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

import freezethaw as ft
from freezethaw.errors import LeaseLost, StoreError, StudyError, TellError
from freezethaw.store import Lease, NewCheckpoint, Process, Proposal, Report, Store, Watcher
from tests.store.small_study import CONFIG, SPACE, Clock, decide, definition, opened, report

NASTY = [
    "'; DROP TABLE freezethaw_studies; --",
    "../../etc/passwd",
    "100% of_it\\",
    '"quoted"',
    "雪 ❄",
    "a\nb\t",
    "$(id)",
]


class StoreContract:
    """Needs a fixture `url` of an empty store."""

    # Studies.

    def test_the_same_call_continues(self, url):
        first = opened(url)
        decide(first)
        again = opened(url)
        assert again.uid == first.uid
        assert again.load() == first.load()
        assert again.load().version == 1

    def test_tags_are_for_people_and_stay_where_nothing_is_said_of_them(self, url):
        study = opened(url)
        study.tag(["雪", "first try", "雪"])
        before = study.load()
        assert before.definition["tags"] == ["雪", "first try"]
        again = opened(url)  # with a definition that says nothing of tags
        assert again.load() == before
        assert again.load().version == 1, "no decision depends on tags"
        wider = opened(url, max_epochs=20)
        assert (wider.load().version, wider.load().definition["tags"]) == (2, ["雪", "first try"])
        opened(url, name="other")
        with Store(url) as store:
            assert [info.tags for info in store.studies()] == [("雪", "first try"), ()]
        wider.tag([])
        assert wider.load().definition["tags"] == []

    @pytest.mark.parametrize("tags", ["mnist", 3, [3], [""], [" "], ["a,b"], ["a\nb"], ["x" * 51]])
    def test_what_is_no_tag_is_refused(self, url, tags):
        study = opened(url)
        with pytest.raises(StudyError, match=r"tags are a list|a tag is a text"):
            study.tag(tags)
        assert "tags" not in study.load().definition

    def test_two_who_create_at_once_get_the_same_study(self, url):
        barrier, uids = threading.Barrier(6), []

        def create():
            barrier.wait()
            uids.append(opened(url).uid)

        threads = [threading.Thread(target=create) for _ in range(6)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert len(uids) == 6
        assert len(set(uids)) == 1

    def test_changes_of_a_definition_are_accepted_and_recorded(self, url):
        opened(url)
        wider = ft.Space(rate=ft.Float(1e-4, 1.0, log=True), units=ft.Int(1, 8))
        study = opened(url, space=wider.to_dict(), max_epochs=20, budget={"epochs": 200}, policy="random")
        now = study.load()
        assert now.version == 2
        assert ft.Space.from_dict(now.definition["space"]) == wider
        assert ft.Space.from_dict(study.definition(1)["space"]) == SPACE
        [event] = study.events()
        assert event.kind == "definition changed"
        for word in ("rate", "max_epochs: 10 to 20", "budget epochs: 100 to 200;", "policy"):
            assert word in event.text

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"space": ft.Space(rate=ft.Float(1e-3, 1.0, log=True)).to_dict()}, "removed: units=Int"),
            ({"space": ft.Space(SPACE.parameters, depth=ft.Int(1, 3)).to_dict()}, "added: depth=Int"),
            ({"max_epochs": 9}, "shrink from 10 to 9"),
            ({"direction": "maximize"}, "direction is 'minimize', not 'maximize'"),
            ({"seed": 1}, "seed is 0, not 1"),
        ],
    )
    def test_another_study_under_the_same_name_is_refused_with_the_difference(self, url, change, message):
        before = opened(url).load()
        with pytest.raises(StudyError, match=message):
            opened(url, **change)
        assert opened(url).load() == before

    def test_when_max_epochs_grow_finished_runs_can_go_on(self, url):
        study = opened(url, max_epochs=2)
        study.record(decide(study, to_epoch=2).lease, report(1, 2.0, 1.0), close="told")
        added = study.add_run(CONFIG, [3.0, 2.0])
        assert [run.state for run in study.load().runs] == ["finished", "finished"]
        study = opened(url, max_epochs=4)
        assert [run.state for run in study.load().runs] == ["frozen", "finished"]
        with pytest.raises(StudyError, match="finished; only a frozen run"):
            decide(study, run=added, to_epoch=3)
        assert decide(study, run=1, to_epoch=4).decision.from_epoch == 2

    def test_studies_are_listed_and_deleted_whole(self, url):
        store = Store(url)
        two, one = (store.create_or_open(name, definition()) for name in ("two", "one"))
        lease = decide(one).lease
        one.record(lease, report(1, 1.0, 2.0), NewCheckpoint(2, "a", "b", 3))
        one.enqueue(CONFIG)
        decide(two, state={"a": 1})
        assert [(i.name, i.runs, i.epochs, i.decisions) for i in store.studies()] == [
            ("two", 1, 0, 1),
            ("one", 1, 2, 1),
        ]
        store.delete("one")
        assert [info.name for info in store.studies()] == ["two"]
        for write in (lambda: one.record(lease, report(3, 1.0)), one.load, lambda: one.permission(Watcher())):
            with pytest.raises((StudyError, LeaseLost), match="deleted"):
                write()
        with pytest.raises(LeaseLost, match="deleted"):
            one.beat(lease)
        fresh = store.create_or_open("one", definition())
        assert fresh.uid != one.uid
        assert fresh.load().runs == fresh.events() == fresh.checkpoints() == ()
        assert decide(fresh).lease == lease  # the same numbers, in another study
        with pytest.raises(LeaseLost, match="deleted"):  # its old worker does not write into its namesake
            one.record(lease, report(3, 1.0))
        with pytest.raises(StudyError, match=r"no study 'three'.*; it has 'two', 'one'"):
            store.open("three")
        with pytest.raises(StudyError, match="no study 'three'"):
            store.delete("three")

    @pytest.mark.parametrize("text", NASTY)
    def test_any_text_is_only_text(self, url, text):
        store = Store(url)
        store.create_or_open("other", definition())
        space = ft.Space({text: ft.Choice(text, "b")})
        study = store.create_or_open(text, definition(space=space.to_dict()))
        permit = study.permission(Watcher())
        proposal = Proposal(None, {text: text}, 5, text, ({"config": {text: text}},))
        committed = study.commit(permit, proposal, 0, {text: [1.0]})
        study.record(committed.lease, report(1, 1.0, metrics=({text: 1.0},)), NewCheckpoint(1, text, text, 1))
        study.add_event(text, text, details={text: text})
        assert store.open(text).load().runs[0].config == {text: text}
        stored = study.decision(1)
        assert (stored.decision.reason, stored.basket) == (text, ({"config": {text: text}},))
        assert study.sampler_state() == {text: [1.0]}
        assert study.metrics(1) == ({text: 1.0},)
        assert [(e.kind, e.text, e.details) for e in study.events()] == [(text, text, {text: text})]
        assert [c.place for c in study.checkpoints(1)] == [text]
        assert {info.name for info in store.studies()} == {"other", text}

    @pytest.mark.parametrize("name", ["", " ", "a\0b", "\ud800", "x" * 201, None, 3])
    def test_names_that_no_database_holds_are_refused(self, url, name):
        with pytest.raises(StudyError, match="name is a text of 1 to 200"):
            opened(url, name=name)

    def test_texts_that_no_database_holds_are_kept_readably(self, url):
        study = opened(url)
        decide(study, reason="a\0b \ud800")
        assert study.decision(1).decision.reason == "a\\0b \\ud800"

    # Decisions and losses.

    def test_a_run_from_its_start_to_its_end(self, url):
        study = opened(url)
        start = decide(study, to_epoch=3, reason="first", basket=({"score": math.nan, "chance": -math.inf},))
        assert start.decision == ft.Decision(1, "start", 1, CONFIG, 0, 3, "first")
        assert study.load().pending == (start.decision,)
        assert study.load().runs == (ft.Run(1, CONFIG, state="pending"),)
        basket = study.decision(1).basket
        assert math.isnan(basket[0]["score"])
        assert basket[0]["chance"] == -math.inf
        study.record(start.lease, report(1, 3.0, seconds=(0.5,), metrics=({"accuracy": 0.1, "odd": math.nan},)))
        study.record(start.lease, report(2, 1e34, 0.1), close="told")
        [run] = study.load().runs
        assert (run.losses, run.state) == ((3.0, 1e34, 0.1), "frozen")
        assert run.seconds[0] == 0.5
        assert all(math.isnan(s) for s in run.seconds[1:])
        assert study.metrics(1)[0]["accuracy"] == 0.1
        assert math.isnan(study.metrics(1)[0]["odd"])
        assert study.metrics(1)[1:] == ({}, {})
        assert study.decision(1).state == "told"
        thaw = decide(study, run=1, to_epoch=10)
        assert (thaw.decision.kind, thaw.decision.from_epoch, thaw.lease.token) == ("thaw", 3, 2)
        study.record(thaw.lease, Report(4, tuple(float(e) for e in range(4, 11))), close="told")
        assert study.load().runs[0].state == "finished"
        assert study.load().pending == ()

    def test_one_more_loss_is_seen_by_who_looks_again(self, url):
        study = opened(url)
        lease = decide(study).lease
        known = [opened(url).load()]
        for epoch in range(1, 6):
            found = study.record(lease, report(epoch, 1.0 / epoch))
            known.append(study.load(known[-1]))
            assert (known[-1].change, known[-1].runs[0].epoch) == (found.change, epoch)
        assert study.load(at=known[2].change).runs[0].losses == (1.0, 0.5)

    @pytest.mark.parametrize("loss", [sys.float_info.max, -sys.float_info.max, 5e-324, 0.1, 1 / 3])
    def test_a_loss_comes_back_bit_for_bit(self, url, loss):
        study = opened(url)
        study.record(decide(study).lease, report(1, loss, seconds=(1 / 3,)))
        [run] = study.load().runs
        assert (run.losses[0].hex(), run.seconds[0].hex()) == (loss.hex(), (1 / 3).hex())

    @pytest.mark.parametrize(
        ("close", "losses", "expected"),
        [
            ("told", (1.0,), ("told", "frozen", "")),  # fewer than granted: the rest is given back
            ("interrupted", (1.0,), ("told", "frozen", "interrupted")),
            ("interrupted", (), ("cancelled", "frozen", "interrupted")),
            ("diverged", (1.0,), ("told", "diverged", "")),
            ("diverged", (), ("told", "diverged", "")),
            ("out_of_memory", (), ("cancelled", "failed", "out_of_memory")),
            ("failed", (1.0,), ("told", "failed", "failed")),
        ],
    )
    def test_ends_of_a_decision(self, url, close, losses, expected):
        study = opened(url)
        committed = decide(study)
        study.record(committed.lease, report(1, *losses) if losses else None, close=close)
        stored, [run] = study.decision(1), study.load().runs
        assert (stored.state, run.state, run.outcome) == expected
        assert (stored.outcome, stored.reached) == (close, len(losses))
        assert run.losses == losses
        assert study.load().pending == ()
        with pytest.raises(LeaseLost, match="given back before"):
            study.record(committed.lease, report(len(losses) + 1, 1.0))
        if run.state == "frozen":
            assert decide(study, run=1).decision.from_epoch == len(losses)
        else:
            with pytest.raises(StudyError, match="only a frozen run"):
                decide(study, run=1)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (report(3, 1.0), "no gaps"),
            (report(0, 1.0), "no gaps"),
            (report(2, 1.0, 1.0, 1.0, 1.0, 1.0), "epoch 6 was not granted"),
            (report(2, math.nan), "nan is no finite number"),
            (report(2, 1.0, math.inf), "inf is no finite number"),
            (report(2, True), "True is no finite number"),
            (report(2, "1"), "'1' is no finite number"),
            (report(2, 1.0, seconds=(1.0, 2.0)), "1 losses but 2 seconds"),
        ],
    )
    def test_a_wrong_report_changes_nothing(self, url, wrong, message):
        study = opened(url)
        lease = decide(study).lease
        study.record(lease, report(1, 5.0))
        before = study.load()
        with pytest.raises(TellError, match=message):
            study.record(lease, wrong, NewCheckpoint(1, "a", "b", 1), close="told")
        assert study.load() == before
        assert study.checkpoints() == ()
        study.record(lease, report(2, 4.0))  # and the lease is still there

    def test_told_without_a_loss_is_refused(self, url):
        study = opened(url)
        with pytest.raises(TellError, match="no loss yet"):
            study.record(decide(study).lease, close="told")
        with pytest.raises(TellError, match="one of told, diverged"):
            study.record(Lease(1, 1, 1), close="pruned")

    def test_trained_again_the_first_loss_stays_and_a_difference_is_an_event(self, url):
        study = opened(url)
        lease = decide(study).lease
        study.record(lease, report(1, 3.0, 2.0, 1.0))
        same = study.record(lease, report(2, 2.0))
        assert (same.repeated, same.different, same.epoch) == ((2,), (), 3)
        assert study.events() == ()
        found = study.record(lease, report(2, 2.0, 1.5, 0.5))
        assert (found.repeated, found.different, found.epoch) == ((2, 3), (3,), 4)
        assert study.load().runs[0].losses == (3.0, 2.0, 1.0, 0.5)
        [event] = study.events()
        assert (event.kind, event.run, event.epoch) == ("loss differs", 1, 3)
        assert event.details == {"epochs": [3], "kept": [1.0], "again": [1.5]}

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            (Proposal(7, CONFIG, 3, "r"), "no run 7; the study has runs 1 to 1"),
            (Proposal(1, CONFIG, 2, "r"), "at epoch 2 of 10; cannot train to 2"),
            (Proposal(1, CONFIG, 11, "r"), "cannot train to 11"),
            (Proposal(None, CONFIG, 3, ""), "needs a reason"),
            (Proposal(None, {"rate": object()}, 3, "r"), "plain JSON"),
            (Proposal(None, CONFIG, 3, "r", wish=4), "wish 4 is not waiting"),
        ],
    )
    def test_a_wrong_decision_changes_nothing(self, url, wanted, message):
        study = opened(url)
        study.record(decide(study).lease, report(1, 2.0, 1.0), close="told")
        before, permit = study.load(), study.permission(Watcher())
        with pytest.raises(ft.FreezeThawError, match=message):
            study.commit(permit, wanted, before.change, {"a": 1})
        assert study.load() == before
        assert study.sampler_state() is None
        assert study.commit(permit, Proposal(1, CONFIG, 3, "r"), before.change).decision.number == 2

    def test_a_curve_from_elsewhere_is_evidence(self, url):
        study = opened(url)
        assert study.add_run(CONFIG, [3.0, 2.0], [1.0, 1.0]) == 1
        assert study.add_run(CONFIG, [4.0], diverged=True) == 2
        first, second = study.load().runs
        assert (first.state, first.added, first.losses, first.seconds) == ("finished", True, (3.0, 2.0), (1.0, 1.0))
        assert (second.state, second.losses) == ("diverged", (4.0,))
        for wrong in ([], [math.nan], [1.0] * 11):
            with pytest.raises(TellError):
                study.add_run(CONFIG, wrong)
        assert decide(study).decision.run == 3

    def test_wishes_come_in_order_and_go_with_their_decision(self, url):
        study = opened(url)
        study.record(decide(study).lease, report(1, 1.0), close="told")
        other = {"rate": 0.5, "units": 1}
        numbers = study.enqueue(other, 3), study.thaw(1, 4), study.enqueue(CONFIG)
        waiting = study.load().wishes
        assert [(w.number, w.run, w.config, w.to_epoch) for w in waiting] == [
            (numbers[0], None, other, 3),
            (numbers[1], 1, CONFIG, 4),
            (numbers[2], None, CONFIG, 1),
        ]
        decide(study, config=other, to_epoch=3, wish=numbers[0])
        study.drop_wish(numbers[1])
        assert [w.number for w in study.load().wishes] == [numbers[2]]
        for wrong in (lambda: study.thaw(1, 1), lambda: study.thaw(9, 2), lambda: study.enqueue(CONFIG, 11)):
            with pytest.raises(StudyError):
                wrong()

    # Leases.

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

    # Checkpoints.

    def test_a_checkpoint_is_recorded_with_its_losses(self, url):
        study = opened(url)
        lease = decide(study).lease
        study.record(lease, report(1, 2.0, 1.0), NewCheckpoint(2, "x/run-1/epoch-2", "ab", 10))
        [kept] = study.load().checkpoints
        assert (kept.run, kept.epoch, kept.place, kept.sha256, kept.bytes) == (1, 2, "x/run-1/epoch-2", "ab", 10)
        before = study.load()
        with pytest.raises(StoreError, match="checkpoint of epoch 5 cannot be recorded: run 1 is at epoch 3"):
            study.record(lease, report(3, 0.5), NewCheckpoint(5, "y", "ab", 10))
        assert study.load() == before

    def test_checkpoints_of_leased_runs_are_dropped_by_their_holder_only(self, url):
        study = opened(url)
        lease = decide(study).lease
        study.record(lease, report(1, 2.0), NewCheckpoint(1, "one", "ab", 10))
        study.record(lease, report(2, 1.0), NewCheckpoint(2, "two", "ab", 10))
        assert study.drop_checkpoints([1, 2], "evicted") == ()
        assert [c.place for c in study.drop_checkpoints([1], "replaced", lease)] == ["one"]
        study.release(lease)  # its decision is pending still
        assert study.drop_checkpoints([2], "evicted") == ()
        study.record(study.take_over(Watcher()).lease, close="told")
        assert [c.place for c in study.drop_checkpoints([1, 2, 3], "evicted")] == ["two"]
        assert study.drop_checkpoints([2], "evicted") == ()
        assert study.checkpoints() == ()
        assert [e.kind for e in study.events()] == ["checkpoint evicted"]

    # Sampler states and replay.

    def test_every_sampler_state_comes_back_and_differences_are_small(self, url):
        study, states = opened(url), []
        state = {"anchor": [0.1] * 200, "samples": [{"a": 0.1, "b": -math.inf} for _ in range(10)], "turn": 0}
        for turn in range(70):
            samples = [dict(s) for s in state["samples"]]
            samples[turn % 10]["a"] = 1 / (turn + 3)
            state = {**state, "samples": samples, "turn": turn}
            if turn == 40:
                study = opened(url)  # another process goes on
            if turn == 50:
                state = {**state, "anchor": [0.2] * 100, "new": [math.nan, "$number", {"$number": "nan"}]}
            committed = decide(study, state=None if turn == 20 else state)
            states.append(states[-1] if turn == 20 else state)
            study.record(committed.lease, close="interrupted")
        for number in range(1, 71):
            assert repr(study.sampler_state(before=number + 1)) == repr(states[number - 1])
        assert study.sampler_state(before=1) is None
        assert repr(study.sampler_state()) == repr(states[-1])

    def test_the_store_as_it_was_when_a_decision_was_taken(self, url):
        study = opened(url, max_epochs=4)
        seen = [study.load()]

        def look(_=None):
            seen.append(study.load())

        first = decide(study, to_epoch=4)
        look()
        look(study.record(first.lease, report(1, 4.0, 3.0)))
        look(study.enqueue(CONFIG, 2))
        second = decide(study, to_epoch=2, wish=1)
        look()
        look(study.record(first.lease, report(3, 2.0, 1.0), close="told"))
        look(study.record(second.lease, close="out_of_memory"))
        look(study.add_run(CONFIG, [1.0]))
        study = opened(url, max_epochs=6)
        look()
        third = decide(study, run=1, to_epoch=6)
        look()
        look(study.record(third.lease, report(5, 1.0), close="interrupted"))
        look(study.record(decide(study, run=1, to_epoch=6).lease, close="diverged"))
        assert [study.decision(n).basis for n in (1, 2, 3)] == [0, 3, 8]
        for then in seen:
            assert study.load(at=then.change) == replace(then, checkpoints=())
            assert study.load(known=then) == seen[-1]
        with pytest.raises(StudyError, match="changes 0 to"):
            study.load(at=99)

    def test_a_study_from_elsewhere_is_saved_whole_and_goes_on(self, url):
        store = Store(url)
        origin = store.create_or_open("origin", definition(max_epochs=4))
        origin.record(decide(origin, to_epoch=4).lease, report(1, 4.0, 3.0, seconds=(0.5, math.nan)), close="told")
        origin.record(decide(origin, to_epoch=2).lease, report(1, 9.0), close="diverged")
        origin.record(decide(origin, to_epoch=2).lease, close="out_of_memory")
        origin.record(decide(origin, to_epoch=2).lease, close="interrupted")
        origin.add_run(CONFIG, [2.0, 1.0])
        again = decide(origin, run=1, to_epoch=4)
        fresh = decide(origin, to_epoch=3, state={"a": [0.5]})
        origin.record(again.lease, report(3, 2.0))
        origin.enqueue(CONFIG, 2)
        origin.thaw(4, 3)
        then = origin.load()
        copy, leases = store.save("copy", then, origin.sampler_state())
        now = copy.load()
        assert repr((now.runs, now.pending, now.decisions, now.definition)) == repr(
            (then.runs, then.pending, then.decisions, then.definition)
        )
        assert [(w.run, w.config, w.to_epoch) for w in now.wishes] == [
            (w.run, w.config, w.to_epoch) for w in then.wishes
        ]
        assert copy.sampler_state() == {"a": [0.5]}
        assert set(leases) == {again.decision.number, fresh.decision.number}
        copy.record(leases[again.decision.number], report(4, 1.0), close="told")
        copy.record(leases[fresh.decision.number], close="interrupted")
        assert decide(copy, to_epoch=4).decision.number == then.decisions + 1
        past = copy.load(at=now.change)
        assert repr((past.runs, past.pending, past.decisions)) == repr((then.runs, then.pending, then.decisions))
        with pytest.raises(StudyError, match=r"a study 'copy' in .* already"):
            store.save("copy", then)
        with pytest.raises(StudyError, match="1 decisions cannot have led to these runs"):
            store.save("third", replace(then, decisions=1))
        assert [info.name for info in store.studies()] == ["origin", "copy"]

    # Events and metadata.

    def test_events_are_numbered_and_listed_in_order(self, url):
        study = opened(url)
        other = opened(url, name="other")
        for number in range(5):
            study.add_event("note", f"text {number}", run=1, epoch=2, details={"n": number})
            other.add_event("note", "elsewhere")
        found = study.events()
        assert [e.text for e in found] == [f"text {n}" for n in range(5)]
        assert [e.text for e in study.events(after=found[1].number, most=2)] == ["text 2", "text 3"]

    def test_many_writers_at_once_all_get_through(self, url):
        names = [f"writer {number}" for number in range(6)]
        opened(url)

        def write(name):
            study = Store(url).open("study")
            for number in range(15):
                study.add_event(name, str(number))

        threads = [threading.Thread(target=write, args=(name,)) for name in names]
        [t.start() for t in threads]
        [t.join() for t in threads]
        found = opened(url).events()
        for name in names:
            assert [e.text for e in found if e.kind == name] == [str(number) for number in range(15)]
        assert opened(url).load().change == 90

    def test_a_newer_schema_is_refused(self, url):
        store = Store(url)
        with store._database.writing() as connection:
            connection.exec_driver_sql("UPDATE freezethaw_meta SET value = '2'")
        with pytest.raises(StoreError, match=r"newer freezethaw \(schema version 2; this one knows 1\)"):
            Store(url)

    def test_a_reader_that_stays_open_stops_nobody(self, url):
        study = opened(url)
        lease = decide(study).lease
        with Store(url)._database.reading() as connection:
            count = "SELECT count(*) FROM freezethaw_epochs"
            assert connection.exec_driver_sql(count).scalar() == 0
            study.record(lease, report(1, 1.0, 2.0))
            assert connection.exec_driver_sql(count).scalar() == 0  # one consistent view
        assert len(study.load().runs[0].losses) == 2


def _root():
    from pathlib import Path

    return Path(__file__).parents[2]
