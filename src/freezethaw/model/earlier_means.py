"""What earlier studies expect of configurations, as a prior mean of the level. Not in the paper.

The last K columns of the configurations are the expected final losses in K earlier studies. The level of a run has the
prior mean  sum_k w_k e_k(x),  where e_k is that loss in standard deviations of study k. The weights are
hyperparameters: the evidence takes them to zero if losses here do not depend on those there, and with weights of zero
the model is the one without earlier studies.
"""

from __future__ import annotations

import numpy as np

from freezethaw.model.curves import Array
from freezethaw.model.specification import Geometry, Values

RANGE = 6.0  # standard deviations of an earlier study from 0 to 1 of its column


def expected_levels(configs: Array, geometry: Geometry, values: Values) -> Array:
    """(..., N) prior mean of the level, beside the constant one; zero without earlier studies."""
    if not geometry.expected:
        return np.zeros((*np.shape(values["noise"]), len(configs)))
    weights = np.stack([np.asarray(values[f"weight.{k}"]) for k in range(geometry.expected)], axis=-1)
    return np.asarray(weights @ (RANGE * (configs[:, -geometry.expected :] - 0.5)).T)
