"""`finish_best` keeps its word: whatever happens late, the run with the best loss is trained to the last epoch."""

from __future__ import annotations

import numpy as np
import pytest

import freezethaw as ft

SPACE = {"x": ft.Float(0.0, 1.0), "speed": ft.Float(0.1, 3.0)}
LAST = 15


def searched(seed, budget, workers, noise=0.05):
    """A search in which several runs improve late; with several workers, decisions are told in another order."""
    rng = np.random.default_rng(seed)
    study = ft.Study(SPACE, LAST, budget=budget, finish_best=True, seed=seed)
    pending = []
    while True:
        try:
            pending.append(study.ask())
            if len(pending) < workers:
                continue
        except ft.AllPending:
            assert pending, "nothing is pending, but the study waits"
        except ft.StudyFinished:
            return study
        decision = pending.pop(int(rng.integers(len(pending))))
        x, speed = decision.config["x"], decision.config["speed"]
        epochs = np.arange(decision.from_epoch + 1, decision.to_epoch + 1)
        losses = abs(x - 0.3) + 3 * np.exp(-epochs / 5 * speed) + noise * rng.standard_normal(len(epochs))
        study.tell(decision, losses.tolist())


@pytest.mark.parametrize("budget", [LAST + 1, 31, 50])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_winner_is_trained_to_the_end_within_the_budget(seed, budget, workers):
    study = searched(seed, budget, workers)
    winner = study.runs[study.best.run - 1]
    assert winner.epoch == LAST
    assert sum(run.epoch for run in study.runs) == budget


@pytest.mark.parametrize("budget", [31, 37, 40, 44])
def test_a_late_winner_is_trained_to_the_end(budget):
    """The later a run is trained, the better it does: the best run changes until the end of the search."""
    study = ft.Study(SPACE, LAST, budget=budget, finish_best=True, prices=ft.Prices())
    winners = set()
    try:
        while True:
            decision, trained = study.ask(), sum(run.epoch for run in study.runs)
            epochs = np.arange(decision.from_epoch + 1, decision.to_epoch + 1)
            study.tell(decision, (10.0 - 0.3 * epochs - 0.05 * (trained + epochs)).tolist())
            winners.add(study.best.run)
    except ft.StudyFinished:
        pass
    assert len(winners) > 2
    assert study.runs[study.best.run - 1].epoch == LAST
    assert sum(run.epoch for run in study.runs) == budget


def test_a_budget_without_room_for_a_search_is_shared():
    study = searched(0, LAST, 1, noise=0.0)
    assert len(study.runs) >= 3
    assert max(run.epoch for run in study.runs) >= LAST // 2
