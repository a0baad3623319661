"""Freeze-thaw Bayesian optimisation: tunes anything that trains in epochs by forecasting its learning curves."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from freezethaw.errors import (
        AllPending,
        CheckpointError,
        CurveError,
        Diverged,
        FreezeThawError,
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
    from freezethaw.records import Best, Budget, Checkpoints, Decision, Notice, Prices, Result, Run
    from freezethaw.runtime.ray import RayEngine
    from freezethaw.space import Choice, Float, Int, Space
    from freezethaw.study import Study
    from freezethaw.tune import tune

# public name -> module; resolved on first use, so that `import freezethaw` is quick
_HOMES = {
    "AllPending": "errors",
    "Best": "records",
    "Budget": "records",
    "CheckpointError": "errors",
    "Checkpoints": "records",
    "Choice": "space",
    "Curve": "integrations",
    "CurveError": "errors",
    "Decision": "records",
    "Diverged": "errors",
    "Float": "space",
    "FreezeThawError": "errors",
    "Int": "space",
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
    "StudyError": "errors",
    "StudyFinished": "errors",
    "TellError": "errors",
    "export_optuna": "integrations",
    "forecast": "integrations",
    "import_optuna": "integrations",
    "ray_tune_config": "integrations.ray_tune",
    "tune": "tune",
}
__all__ = [
    "AllPending",
    "Best",
    "Budget",
    "CheckpointError",
    "Checkpoints",
    "Choice",
    "Curve",
    "CurveError",
    "Decision",
    "Diverged",
    "Float",
    "FreezeThawError",
    "Int",
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
    "StudyError",
    "StudyFinished",
    "TellError",
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


class _Package(ModuleType):
    """`freezethaw.tune` is the function, although a module has that name and importing it would put it in its place."""

    @property
    def tune(self) -> object:
        """The function."""
        return importlib.import_module("freezethaw.tune").tune

    @tune.setter
    def tune(self, module: object) -> None:
        """Nothing: it stays the function."""


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
