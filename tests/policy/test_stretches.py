"""Exploration in time: no stretch of training goes without its due, whatever is decided otherwise."""

from __future__ import annotations

import numpy as np
import pytest

import freezethaw as ft
from freezethaw.policy import stretches as time
from freezethaw.policy.stretches import DUE, neglected, stretches


def spent(lengths, max_epochs):
    """(J,) epochs in each stretch, counted one by one."""
    edges = 2.0 ** stretches(max_epochs)
    counts = np.zeros(len(edges) - 1)
    for length in lengths:
        for epoch in range(1, int(length) + 1):
            counts[np.searchsorted(edges, epoch - 1e-9) - 1] += 1
    return counts


def test_where_all_runs_are_short_the_next_stretch_is_owed():
    assert neglected(np.ones(20), np.ones(20), 10) == (1, 2)
    assert neglected(np.r_[np.ones(20), 2 * np.ones(5)], np.array([1.0, 2.0]), 10) == (2, 4)


def test_nothing_is_owed_before_an_epoch_of_it_is_due():
    assert neglected(np.ones(3), np.ones(3), 10) is None
    assert neglected(np.ones(1), np.ones(1), 1) is None
    assert neglected(np.zeros(0), np.zeros(0), 10) is None


def test_a_stretch_waits_until_a_run_stands_there_and_can_come_through():
    lengths = np.r_[np.ones(80), 2 * np.ones(14), 4]
    assert neglected(lengths, np.array([4.0]), 10) == (4, 8)
    assert neglected(lengths, np.array([1.0]), 10) is None
    assert neglected(lengths, np.array([4.0]), 10, left=4) == (4, 8)
    assert neglected(lengths, np.array([4.0]), 10, left=3) is None
    assert neglected(lengths, np.array([6.0]), 10, left=3) == (4, 8)


@pytest.mark.parametrize("max_epochs", [2, 5, 10, 50, 81])
def test_who_would_only_start_runs_still_spends_its_due_on_every_stretch(max_epochs):
    rng, lengths = np.random.default_rng(0), []
    for _ in range(1500):
        at = np.array(lengths, dtype=float)
        may = at[at < max_epochs]
        owed = neglected(at, may, max_epochs)
        if owed is None:
            lengths.append(1)
        else:
            there = [i for i, n in enumerate(lengths) if owed[0] <= n < owed[1]]
            lengths[int(rng.choice(there))] += 1
    edges = stretches(max_epochs)
    due = DUE * 1500 * np.diff(edges) / (edges[-1] - edges[0])
    found = spent(lengths, max_epochs)
    assert found.sum() == 1500
    assert (found >= due - 2).all()
    assert found[0] > 0.4 * 1500, "and no more than that"


def late_bloomers(seed, epochs):
    """Losses are noise about one for four epochs; then those of some configurations fall."""
    rng = np.random.default_rng(seed)
    candidates = [{"x": float(x), "y": float(y)} for x, y in rng.random((120, 2))]
    noise = 1 + 0.05 * rng.standard_normal((120, 10))
    blooms = np.array([c["x"] > 0.8 for c in candidates])
    noise[blooms, 4:] = 0.2
    rows = {tuple(c.values()): row for c, row in zip(candidates, noise, strict=True)}
    space = ft.Space(x=ft.Float(0.0, 1.0), y=ft.Float(0.0, 1.0))
    study = ft.Study(space, max_epochs=10, seed=seed, candidates=candidates, budget=epochs)
    for _ in range(epochs):
        d = study.ask()
        study.tell(d, rows[tuple(d.config.values())][d.from_epoch : d.to_epoch])
    return study


@pytest.mark.slow
def test_runs_that_fall_late_are_found(monkeypatch):
    study = late_bloomers(0, 100)
    assert min(min(run.losses) for run in study.runs) == 0.2
    reasons = [study.explain(number).decision.reason for number in range(1, 101)]
    assert any("too little has been spent on epochs 5 to 8" in reason for reason in reasons)
    monkeypatch.setattr(time, "DUE", 0.0)
    assert min(min(run.losses) for run in late_bloomers(0, 100).runs) > 0.2, "nobody looks otherwise"
