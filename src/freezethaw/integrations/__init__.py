"""Other tools: import and forecast their learning curves, export a study, log a search."""

from freezethaw.integrations.curves import Curve, read_table
from freezethaw.integrations.from_curves import add_curves, forecast, infer_space, study_from_curves
from freezethaw.integrations.optuna import export_optuna, import_optuna, read_optuna
from freezethaw.integrations.tensorboard import TensorBoardLog, read_tensorboard
from freezethaw.integrations.trackers import MLflowLog, WandbLog

__all__ = [
    "Curve",
    "MLflowLog",
    "TensorBoardLog",
    "WandbLog",
    "add_curves",
    "export_optuna",
    "forecast",
    "import_optuna",
    "infer_space",
    "read_optuna",
    "read_table",
    "read_tensorboard",
    "study_from_curves",
]
