"""The prior mean from earlier studies: weights from the prior, losses from the model, and back by the sampler.

The method is that of `test_calibration`: the rank of the truth in a stationary chain through it is uniform. The mutant
samples the weights as if the expected losses had half their size.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare, norm

from freezethaw.model import inference
from freezethaw.model.curves import Curves
from freezethaw.model.earlier_means import RANGE, expected_levels
from freezethaw.model.inference import Target, moves
from freezethaw.model.specification import Geometry, paper

from .problems import draw_values, sweep_one
from .test_calibration import CAUGHT, DIMENSIONS, EPOCHS, KEPT, RUNS, draw_curves

STUDIES, LENGTH, DATASETS = 2, 5, 150
SPECIFICATION = paper((-1.0, 1.0))
GEOMETRY = replace(Geometry.plain(DIMENSIONS), expected=STUDIES)
PARAMETERS = SPECIFICATION.parameters(GEOMETRY)
NAMES = [f"weight.{k}" for k in range(STUDIES)]


def draw_with_expected(values, rng):
    """Losses of the model without earlier studies, moved by what they expect: dense, and by hand."""
    plain = draw_curves(values, rng)
    expected = rng.random((RUNS, STUDIES))
    level = sum(values[f"weight.{k}"] * RANGE * (expected[:, k] - 0.5) for k in range(STUDIES))
    losses = np.array([plain.observed(run)[1] for run in range(RUNS)]) + level[:, None]
    return Curves.of(np.hstack([plain.configs, expected]), losses.reshape(RUNS, EPOCHS))


def p_values(seed):
    """Of uniform ranks, and of their mean, for each weight."""
    rng = np.random.default_rng(seed)
    order = moves(PARAMETERS)
    ranks = np.empty((DATASETS, STUDIES), dtype=int)
    for i in range(DATASETS):
        truth = draw_values(PARAMETERS, rng)
        target = Target(draw_with_expected(truth, rng), SPECIFICATION, GEOMETRY)
        place, states = int(rng.integers(LENGTH)), []
        for steps, chosen in ((place, order[::-1]), (LENGTH - 1 - place, order)):
            state = truth
            for _ in range(steps):
                state = sweep_one(target, state, rng, chosen)
                states.append([state[name] for name in NAMES])
        ranks[i] = np.sum(np.array(states) < [truth[name] for name in NAMES], axis=0)
    found = {}
    for name, column in zip(NAMES, ranks.T, strict=True):
        found[f"{name} uniform"] = chisquare(np.bincount(column, minlength=LENGTH)).pvalue
        z = (column.mean() - (LENGTH - 1) / 2) / math.sqrt((LENGTH**2 - 1) / 12 / DATASETS)
        found[f"{name} mean"] = 2 * norm.sf(abs(z))
    return found


def test_weights_are_calibrated():
    found = p_values(1)
    assert min(found.values()) * len(found) > KEPT, found


def test_half_of_the_expected_losses_would_be_noticed(monkeypatch):
    def half(configs, geometry, values):
        return 0.5 * expected_levels(configs, geometry, values)

    monkeypatch.setattr(inference, "expected_levels", half)
    found = p_values(1)
    assert min(found.values()) * len(found) < CAUGHT, found


@pytest.mark.parametrize("studies", [1, 3])
def test_weights_are_one_move_whose_priors_do_not_grow_with_the_number_of_studies(studies):
    geometry = replace(GEOMETRY, expected=studies)
    weights = [p for p in SPECIFICATION.parameters(geometry) if p.name.startswith("weight.")]
    assert sum(math.exp(p.prior.location) for p in weights) == pytest.approx(0.6)
    assert sum(any(p in weights for p in move) for move in moves(SPECIFICATION.parameters(geometry))) == 1
