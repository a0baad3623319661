"""Figures of studies, of the model and of its forecasts, for notebooks, reports and the dashboard.

Every function returns a `plotly.graph_objects.Figure`. Figures of a study also work if it has no runs, or only diverged
ones: they show a note. `write_png` renders a figure with the system's Chromium. plotly is imported on first use.
"""

from collections.abc import Callable
from typing import Any

from freezethaw.figures.history import basket, best_loss, comparison, study_progression, timeline
from freezethaw.figures.image import BROWSERS, write_png
from freezethaw.figures.learning_curves import curves, forecast_calibration, p_min, run_asymptotes
from freezethaw.figures.model import (
    OUTER_MARGIN,
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
from freezethaw.figures.parameters import importance, parallel_coordinates, slices
from freezethaw.figures.style import COLOURS

# the figures on the page and in the report of a study, in this order
STUDY_FIGURES: dict[str, Callable[..., Any]] = {
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
    "OUTER_MARGIN",
    "PANELS_BEYOND",
    "STUDY_FIGURES",
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
