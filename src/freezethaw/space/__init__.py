"""Search spaces: configurations, the unit cube they are drawn from, and the features by which a model compares them.

A *configuration* is a plain dict of values. A *unit* point has one coordinate in [0, 1] for each searched parameter;
uniform points give configurations that are uniform on each parameter's scale. *Features* are what the model sees.
"""

from __future__ import annotations

from freezethaw.space.parameters import Choice, Config, Float, Int, Parameter
from freezethaw.space.space import Space, SpaceDifference

__all__ = ["Choice", "Config", "Float", "Int", "Parameter", "Space", "SpaceDifference"]
