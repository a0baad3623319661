"""Doors from other tools: their curves become evidence, or are just forecast."""

from freezethaw.doors.curves import Curve, read_table
from freezethaw.doors.elsewhere import add_curves, forecast, space_of, study_of
from freezethaw.doors.optuna import import_optuna, read_optuna
from freezethaw.doors.tensorboard import read_tensorboard

__all__ = [
    "Curve",
    "add_curves",
    "forecast",
    "import_optuna",
    "read_optuna",
    "read_table",
    "read_tensorboard",
    "space_of",
    "study_of",
]
