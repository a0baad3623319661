"""Doors from other tools, whose curves become evidence or are just forecast, and to them."""

from freezethaw.doors.curves import Curve, read_table
from freezethaw.doors.elsewhere import add_curves, forecast, space_of, study_of
from freezethaw.doors.optuna import export_optuna, import_optuna, read_optuna
from freezethaw.doors.tensorboard import read_tensorboard
from freezethaw.doors.to_mlflow import MLflowLog
from freezethaw.doors.to_tensorboard import TensorBoardLog
from freezethaw.doors.to_wandb import WandbLog

__all__ = [
    "Curve",
    "MLflowLog",
    "TensorBoardLog",
    "WandbLog",
    "add_curves",
    "export_optuna",
    "forecast",
    "import_optuna",
    "read_optuna",
    "read_table",
    "read_tensorboard",
    "space_of",
    "study_of",
]
