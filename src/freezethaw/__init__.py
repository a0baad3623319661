"""Freeze-thaw Bayesian optimisation: tunes anything that trains in epochs by forecasting its learning curves."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from freezethaw.decide import StudyDefinition
    from freezethaw.errors import (
        AllPending,
        CheckpointError,
        CurveError,
        Diverged,
        FreezeThawError,
        Interrupted,
        LeaseLost,
        ModelError,
        OutOfMemory,
        Preempted,
        SpaceError,
        StoreError,
        StudyError,
        StudyFinished,
        TellError,
    )
    from freezethaw.integrations import Curve, export_optuna, forecast, import_optuna
    from freezethaw.integrations.ray_tune import ray_tune_config
    from freezethaw.losses import Forecast
    from freezethaw.records import (
        BasketEntry,
        Best,
        Budget,
        Checkpoints,
        Decision,
        Explanation,
        Notice,
        Prices,
        Result,
        Run,
    )
    from freezethaw.runtime.ray import RayEngine
    from freezethaw.space import Choice, Float, Int, Space
    from freezethaw.study import Study
    from freezethaw.trainers.protocol import TrainingRun
    from freezethaw.tuning import tune

# public name -> module; resolved on first use, so that `import freezethaw` is quick
_HOMES = {
    "AllPending": "errors",
    "BasketEntry": "records",
    "Best": "records",
    "Budget": "records",
    "CheckpointError": "errors",
    "Checkpoints": "records",
    "Choice": "space",
    "Curve": "integrations",
    "CurveError": "errors",
    "Decision": "records",
    "Diverged": "errors",
    "Explanation": "records",
    "Float": "space",
    "Forecast": "losses",
    "FreezeThawError": "errors",
    "Int": "space",
    "Interrupted": "errors",
    "LeaseLost": "errors",
    "ModelError": "errors",
    "Notice": "records",
    "OutOfMemory": "errors",
    "Preempted": "errors",
    "Prices": "records",
    "RayEngine": "runtime.ray",
    "Result": "records",
    "Run": "records",
    "Space": "space",
    "SpaceError": "errors",
    "StoreError": "errors",
    "Study": "study",
    "StudyDefinition": "decide",
    "StudyError": "errors",
    "StudyFinished": "errors",
    "TellError": "errors",
    "TrainingRun": "trainers.protocol",
    "export_optuna": "integrations",
    "forecast": "integrations",
    "import_optuna": "integrations",
    "ray_tune_config": "integrations.ray_tune",
    "tune": "tuning",
}
__all__ = [
    "AllPending",
    "BasketEntry",
    "Best",
    "Budget",
    "CheckpointError",
    "Checkpoints",
    "Choice",
    "Curve",
    "CurveError",
    "Decision",
    "Diverged",
    "Explanation",
    "Float",
    "Forecast",
    "FreezeThawError",
    "Int",
    "Interrupted",
    "LeaseLost",
    "ModelError",
    "Notice",
    "OutOfMemory",
    "Preempted",
    "Prices",
    "RayEngine",
    "Result",
    "Run",
    "Space",
    "SpaceError",
    "StoreError",
    "Study",
    "StudyDefinition",
    "StudyError",
    "StudyFinished",
    "TellError",
    "TrainingRun",
    "export_optuna",
    "forecast",
    "import_optuna",
    "ray_tune_config",
    "tune",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'freezethaw' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"freezethaw.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
