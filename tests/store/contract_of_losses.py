"""Part of what every store does: decisions are taken, and losses recorded with their checkpoints."""

from __future__ import annotations

import math
import sys

import pytest

import freezethaw as ft
from freezethaw.errors import LeaseLost, StoreError, StudyError, TellError
from freezethaw.records import BasketEntry, DecisionDraft, Lease, Report
from freezethaw.store import Watcher
from tests.store.small_study import CONFIG, add_run, checkpoint, decide, opened, report, take_over


class LossesContract:
    """Needs a fixture `url` of an empty store."""

    def test_a_run_from_its_start_to_its_end(self, url):
        study = opened(url)
        start = decide(
            study, to_epoch=3, reason="first", basket=(BasketEntry(None, CONFIG, 0, 3, math.nan, -math.inf),)
        )
        assert start.decision == ft.Decision(1, "start", 1, CONFIG, 0, 3, "first")
        assert study.load().pending == (start.decision,)
        assert study.load().runs == (ft.Run(1, CONFIG, state="pending"),)
        basket = study.decision(1).basket
        assert math.isnan(basket[0].score)
        assert basket[0].chance == -math.inf
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

    def test_a_reader_sees_new_losses_when_it_loads_again(self, url):
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
            ("told", (1.0,), ("told", "frozen", "")),  # fewer than granted
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
        with pytest.raises(LeaseLost, match="released before"):
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
            (report(2, math.nan), "nan is not a finite number"),
            (report(2, 1.0, math.inf), "inf is not a finite number"),
            (report(2, True), "True is not a finite number"),
            (report(2, "1"), "'1' is not a finite number"),
            (report(2, 1.0, seconds=(1.0, 2.0)), "1 losses but 2 seconds"),
        ],
    )
    def test_a_wrong_report_changes_nothing(self, url, wrong, message):
        study = opened(url)
        lease = decide(study).lease
        study.record(lease, report(1, 5.0))
        before = study.load()
        with pytest.raises(TellError, match=message):
            study.record(lease, wrong, checkpoint(1, "a", "b", 1), close="told")
        assert study.load() == before
        assert study.checkpoints() == ()
        study.record(lease, report(2, 4.0))  # and the lease is still there

    def test_closing_as_told_without_a_loss_is_refused(self, url):
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
            (DecisionDraft(7, CONFIG, 3, "r"), "no run 7; the study has runs 1 to 1"),
            (DecisionDraft(1, CONFIG, 2, "r"), "at epoch 2 of 10; cannot train to 2"),
            (DecisionDraft(1, CONFIG, 11, "r"), "cannot train to 11"),
            (DecisionDraft(None, CONFIG, 3, ""), "needs a reason"),
            (DecisionDraft(None, {"rate": object()}, 3, "r"), "plain JSON"),
            (DecisionDraft(None, CONFIG, 3, "r", requests=(4,)), "request 4 is not waiting"),
        ],
    )
    def test_a_wrong_decision_changes_nothing(self, url, wanted, message):
        study = opened(url)
        study.record(decide(study).lease, report(1, 2.0, 1.0), close="told")
        before, lease_to_decide = study.load(), study.acquire_decision_lease(Watcher())
        with pytest.raises(ft.FreezeThawError, match=message):
            study.commit(lease_to_decide, wanted, before.change, {"a": 1})
        assert study.load() == before
        assert study.samples() is None
        assert study.commit(lease_to_decide, DecisionDraft(1, CONFIG, 3, "r"), before.change)[0].number == 2

    def test_an_imported_curve_is_known_to_the_model(self, url):
        study = opened(url)
        assert add_run(study, CONFIG, [3.0, 2.0], [1.0, 1.0]) == 1
        assert add_run(study, CONFIG, [4.0], diverged=True) == 2
        first, second = study.load().runs
        assert (first.state, first.added, first.losses, first.seconds) == ("finished", True, (3.0, 2.0), (1.0, 1.0))
        assert (second.state, second.losses) == ("diverged", (4.0,))
        for wrong in ([], [math.nan], [1.0] * 11):
            with pytest.raises(TellError):
                add_run(study, CONFIG, wrong)
        assert decide(study).decision.run == 3

    def test_requests_come_in_order_and_go_with_their_decision(self, url):
        study = opened(url)
        study.record(decide(study).lease, report(1, 1.0), close="told")
        other = {"rate": 0.5, "units": 1}
        numbers = study.request(None, other, 3), study.request(1, None, 4), study.request(None, CONFIG, 1)
        waiting = study.load().requests
        assert [(w.number, w.run, w.config, w.to_epoch) for w in waiting] == [
            (numbers[0], None, other, 3),
            (numbers[1], 1, CONFIG, 4),
            (numbers[2], None, CONFIG, 1),
        ]
        decide(study, config=other, to_epoch=3, requests=numbers[:2])
        assert [w.number for w in study.load().requests] == [numbers[2]]
        for wrong in (
            lambda: study.request(1, None, 1),
            lambda: study.request(9, None, 2),
            lambda: study.request(None, CONFIG, 11),
        ):
            with pytest.raises(StudyError):
                wrong()

    # Checkpoints.

    def test_a_checkpoint_is_recorded_with_its_losses(self, url):
        study = opened(url)
        lease = decide(study).lease
        study.record(lease, report(1, 2.0, 1.0), checkpoint(2, "x/run-1/epoch-2", "ab", 10))
        [kept] = study.load().checkpoints
        assert (kept.run, kept.epoch, kept.place, kept.sha256, kept.bytes) == (1, 2, "x/run-1/epoch-2", "ab", 10)
        before = study.load()
        with pytest.raises(StoreError, match="checkpoint of epoch 5 cannot be recorded: run 1 is at epoch 3"):
            study.record(lease, report(3, 0.5), checkpoint(5, "y", "ab", 10))
        assert study.load() == before

    def test_checkpoints_of_leased_runs_are_dropped_by_their_holder_only(self, url):
        study = opened(url)
        lease = decide(study).lease
        study.record(lease, report(1, 2.0), checkpoint(1, "one", "ab", 10))
        study.record(lease, report(2, 1.0), checkpoint(2, "two", "ab", 10))
        assert study.drop_checkpoints([1, 2], "evicted") == ()
        assert [c.place for c in study.drop_checkpoints([1], "replaced", lease)] == ["one"]
        study.release(lease)  # its decision is pending still
        assert study.drop_checkpoints([2], "evicted") == ()
        study.record(take_over(study, Watcher()).lease, close="told")
        assert [c.place for c in study.drop_checkpoints([1, 2, 3], "evicted")] == ["two"]
        assert study.drop_checkpoints([2], "evicted") == ()
        assert study.checkpoints() == ()
        assert [e.kind for e in study.events()] == ["checkpoint evicted"]

    def test_the_seconds_of_decisions_are_added_up(self, url):
        study = opened(url)
        assert study.deciding_seconds() == 0.0
        for seconds in (0.5, math.nan, 0.25):
            decide(study, seconds=seconds)
        assert study.deciding_seconds() == 0.75
        assert study.decision(1).seconds == 0.5
        assert math.isnan(study.decision(2).seconds)
