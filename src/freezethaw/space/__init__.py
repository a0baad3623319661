"""Search spaces.

A *configuration* is a dict of values. A *unit point* has one coordinate in [0, 1] per searched parameter: uniform
points give configurations that are uniform on the scale of each parameter. *Features* are the inputs of the model.
"""

from __future__ import annotations

from freezethaw.space.parameters import Choice, Config, Float, Int, Parameter
from freezethaw.space.space import Space, SpaceDifference

__all__ = ["Choice", "Config", "Float", "Int", "Parameter", "Space", "SpaceDifference"]
