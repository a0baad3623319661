"""Pictures of studies, of the model and of its forecasts, for notebooks, reports and the web page alike.

Every function returns a `plotly.graph_objects.Figure` in one common style; none reads a file, a clock or global random
state. Those of a study take it and a few options, and draw something true of a study with no run, one, or only diverged
ones. `write_png` turns a figure into an image with the system's Chromium. plotly is an extra, imported on first use.
"""

from collections.abc import Callable
from typing import Any

from freezethaw.figures.course import best_loss, comparison
from freezethaw.figures.image import BROWSERS, write_png
from freezethaw.figures.of_model import (
    OUTER_ROOM,
    PANELS_BEYOND,
    Axis,
    asymptotes,
    calibration,
    curves_with_forecasts,
    kernel_basis,
    lowest_losses,
    prior_draws,
    progression,
    realistic_draws,
)
from freezethaw.figures.of_space import importance, parallel_coordinates, slices
from freezethaw.figures.of_study import (
    basket,
    curves,
    forecast_calibration,
    p_min,
    run_asymptotes,
    study_progression,
    timeline,
)
from freezethaw.figures.style import COLOURS

# of a study: what a page or a report shows, in its order
OF_A_STUDY: dict[str, Callable[..., Any]] = {
    "curves": curves,
    "best_loss": best_loss,
    "run_asymptotes": run_asymptotes,
    "p_min": p_min,
    "basket": basket,
    "timeline": timeline,
    "slices": slices,
    "importance": importance,
    "forecast_calibration": forecast_calibration,
    "parallel_coordinates": parallel_coordinates,
    "study_progression": study_progression,
}

__all__ = [
    "BROWSERS",
    "COLOURS",
    "OF_A_STUDY",
    "OUTER_ROOM",
    "PANELS_BEYOND",
    "Axis",
    "asymptotes",
    "basket",
    "best_loss",
    "calibration",
    "comparison",
    "curves",
    "curves_with_forecasts",
    "forecast_calibration",
    "importance",
    "kernel_basis",
    "lowest_losses",
    "p_min",
    "parallel_coordinates",
    "prior_draws",
    "progression",
    "realistic_draws",
    "run_asymptotes",
    "slices",
    "study_progression",
    "timeline",
    "write_png",
]
