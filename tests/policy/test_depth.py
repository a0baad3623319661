"""The share of the epochs for depth."""

from __future__ import annotations

import numpy as np
import pytest

from freezethaw.policy.depth import BLIND_DEPTH, DEPTH, FLAT_DEPTH, Depth, due_doubling


def due(lengths, runs=None, share=0.25, max_epochs=16):
    lengths = np.array(lengths, dtype=np.float64)
    return due_doubling(
        lengths, np.arange(len(lengths)) if runs is None else np.array(runs, dtype=np.int64), max_epochs, share
    )


def test_a_doubling_is_due_if_fewer_runs_reach_its_end_than_its_share_would_pay_for():
    assert due([1] * 7) is None  # a quarter of seven epochs does not pay for a run of two
    found = due([1] * 8)
    assert found.end == 2
    assert found.runs.tolist() == list(range(8))
    assert due([1] * 8 + [2]) is None
    assert due([1] * 16 + [2]).end == 4  # a quarter of 18 epochs pays for one run of four


def test_the_last_doubling_comes_first_and_any_shorter_run_may_be_trained_to_its_end():
    found = due([1] * 60 + [4, 9])  # 73 epochs, a quarter pays for one run of sixteen
    assert found.end == 16
    assert found.runs.tolist() == list(range(62))
    assert due([1] * 60 + [4, 16]).end == 8  # two runs of eight


def test_runs_that_cannot_be_advanced_are_not_due():
    assert due([1] * 8, runs=[]) is None
    assert due([1] * 8, runs=[3]).runs.tolist() == [3]
    assert due([1] * 100, max_epochs=1) is None


@pytest.mark.parametrize("seed", range(5))
def test_of_flat_runs_the_one_under_way_continues_and_otherwise_one_of_the_longest_is_drawn(seed):
    rng, lengths = np.random.default_rng(seed), np.array([1.0] * 60 + [4.0, 9.0])
    assert due(lengths).drawn(lengths, rng).runs.tolist() == [61]
    assert due(lengths, runs=np.arange(61)).drawn(lengths, rng).runs.tolist() == [60]
    drawn = {int(due(lengths, runs=np.arange(60)).drawn(lengths, rng).runs[0]) for _ in range(20)}
    assert 5 < len(drawn) <= 20
    assert drawn <= set(range(60))


def test_losses_are_flat_if_significantly_fewer_than_two_thirds_of_the_runs_have_fallen():
    def share(falling: int, rising: int, unchanged: int = 0) -> float:
        first = np.linspace(1.0, 2.0, falling + rising + unchanged)
        change = np.repeat([-0.01, 0.01, 0.0], [falling, rising, unchanged])
        return Depth.of(first, first + change).share

    assert share(0, 0) == DEPTH
    assert share(0, 0, 100) == DEPTH  # no run was trained further
    assert share(0, 2) == DEPTH  # one of nine by chance
    assert share(0, 3) == BLIND_DEPTH
    assert share(50, 50) == BLIND_DEPTH
    assert share(66, 34) == DEPTH
    assert share(100, 0) == DEPTH


def test_runs_are_drawn_until_a_loss_is_far_below_all_first_losses():
    first = np.linspace(1.0, 2.0, 101)  # the interquartile range is one half
    last = first + 0.01
    last[7] = 0.51
    assert Depth.of(first, last) == Depth(BLIND_DEPTH, blind=True)
    last[7] = 0.49
    assert Depth.of(first, last) == Depth(FLAT_DEPTH)


@pytest.mark.parametrize(("share", "workers", "deep"), [(DEPTH, 1, 4), (DEPTH, 8, 1), (BLIND_DEPTH, 8, 4)])
def test_at_most_half_of_the_decisions_are_for_depth_and_of_several_workers_the_share(share, workers, deep):
    shares = [Depth(share).of_decision(number, workers).share for number in range(8)]
    assert shares.count(share) == deep
    assert shares.count(0.0) == 8 - deep
    assert due([1] * 100, share=0.0) is None
