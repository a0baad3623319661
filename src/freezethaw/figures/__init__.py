"""Figures of studies, of the model and of its forecasts, for notebooks, reports and the dashboard.

Every function returns a `plotly.graph_objects.Figure`. Figures of a study also work if it has no runs, or only diverged
ones: they show a note. `write_png` renders a figure with the system's Chromium. plotly is imported on first use.
"""

from collections.abc import Callable
from typing import Any

from freezethaw.figures.history import basket, best_loss, comparison, study_progression, time_spent, timeline
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
from freezethaw.figures.parameters import importance, parallel_coordinates, parameter_map, slices
from freezethaw.figures.replay import replay
from freezethaw.figures.style import BROWSERS, COLOURS, write_png

# the figures on the page and in the report of a study, in this order
STUDY_FIGURES: dict[str, Callable[..., Any]] = {
    "curves": curves,
    "best_loss": best_loss,
    "replay": replay,
    "study_progression": study_progression,
    "timeline": timeline,
    "time_spent": time_spent,
    "basket": basket,
    "parallel_coordinates": parallel_coordinates,
    "parameter_map": parameter_map,
    "importance": importance,
    "slices": slices,
    "run_asymptotes": run_asymptotes,
    "p_min": p_min,
    "forecast_calibration": forecast_calibration,
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
    "parameter_map",
    "prior_draws",
    "progression",
    "realistic_draws",
    "replay",
    "run_asymptotes",
    "slices",
    "study_progression",
    "time_spent",
    "timeline",
    "write_png",
]
