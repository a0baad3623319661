"""The coin between what pays and what tells."""

from __future__ import annotations

import numpy as np
import pytest

from freezethaw.policy import choice, entropy_search, mixed
from tests.policy.test_choice import forecaster, options

FOUND, MAY = forecaster(0, 12), options(12, np.random.default_rng(0))


def tossed(seed):
    """A generator from which the coin has been taken."""
    rng = np.random.default_rng(seed)
    return rng.random(), rng


def test_the_coin_falls_on_both_and_each_then_decides_as_it_would_alone():
    measures = []
    for seed in range(12):
        coin, rng = tossed(seed)
        alone = (entropy_search if coin < 0.5 else choice).choose(FOUND, MAY, rng)
        assert mixed.choose(FOUND, MAY, np.random.default_rng(seed)) == alone
        measures.append(alone.measure)
    assert 3 <= measures.count("entropy") <= 9


@pytest.mark.parametrize(("share", "measure"), [(0.0, "improvement"), (1.0, "entropy")])
def test_the_share_is_that_of_entropy_search(share, measure, monkeypatch):
    monkeypatch.setattr(mixed, "TELLING", share)
    assert {mixed.choose(FOUND, MAY, np.random.default_rng(seed)).measure for seed in range(4)} == {measure}
