"""A fair coin decides whether an epoch is spent on what pays or on what tells.

The improvement rate trains what promises most for each epoch, and so trusts its forecasts: where all of them are
wrong in the same way, at a plateau say, it goes on with what it knows. Entropy search asks which loss would tell most
about where the minimum lies, whatever the size of the improvement, and so finds good configurations early; but it does
not train them. Each has the failing that the other mends, and no decision of either is lost: both learn from every
loss. Measured against either alone in docs/theory.md.
"""

from __future__ import annotations

import numpy as np

from freezethaw.model.forecaster import Forecaster
from freezethaw.policy import choice, entropy_search
from freezethaw.policy.choice import Choice, Options

TELLING = 0.5  # chance that an epoch is spent on what tells


def choose(forecaster: Forecaster, options: Options, rng: np.random.Generator) -> Choice:
    """The choice of the policy on which the coin falls."""
    decide = entropy_search.choose if rng.random() < TELLING else choice.choose
    return decide(forecaster, options, rng)
