"""All errors of freezethaw. Catch `FreezeThawError` to catch them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class FreezeThawError(Exception):
    """Base of all errors of this package."""


class SpaceError(FreezeThawError, ValueError):
    """A search space or a configuration is not what it should be; the message names the parameter."""


class ModelError(FreezeThawError, ValueError):
    """The model was given something it cannot use; the message says what and what was expected."""


class SingularCovarianceError(ModelError):
    """A covariance is not positive definite in floating point: the hyperparameters are too extreme for these data."""


class FigureError(FreezeThawError, RuntimeError):
    """A figure cannot be drawn or written; the message says what is missing."""


class TellError(FreezeThawError, ValueError):
    """A `tell` that cannot be recorded. The study is unchanged."""


class StudyError(FreezeThawError, ValueError):
    """A study was asked for something it does not have or cannot do."""


class StudyFinished(FreezeThawError):  # noqa: N818 - an end, not a mistake
    """There is nothing left to decide; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AllPending(FreezeThawError):  # noqa: N818 - a state, not a mistake
    """Everything that could be advanced is being advanced already; ask again after the next tell."""


class CurveError(FreezeThawError, ValueError):
    """Curves from elsewhere cannot be read; the message names the file, the column or the run, and what is there."""


class TrainingError(FreezeThawError, RuntimeError):
    """A training does not do what the protocol asks of it, or failed; the message says what was seen and expected."""


class Diverged(TrainingError):  # noqa: N818 - what happened, not a mistake
    """Raise it in a training: this configuration has no future. The run is never thawed, and its like are avoided."""


class OutOfMemory(TrainingError):  # noqa: N818 - what happened, not a mistake
    """Raise it in a training: this configuration does not fit. The run has failed, and its like are avoided."""


class Preempted(TrainingError):  # noqa: N818 - what happened, not a mistake
    """Raise it in a training: the machine is wanted elsewhere. The run is frozen, and can be thawed."""


class MissingLibrary(TrainingError, ImportError):  # noqa: N818 - what is the matter
    """An adapter for a library that is not installed; the message says what to install."""


class StoreError(FreezeThawError, RuntimeError):
    """A store cannot be opened, read or written; the message says why and what to do. Passwords are masked in it."""


class LeaseLost(StoreError):  # noqa: N818 - what happened, not a mistake
    """A write under a lease that is no longer held: another worker took the run over. Nothing was recorded."""


class CheckpointError(StoreError):
    """A checkpoint cannot be saved, or none that can be trusted is there; the message says what was found."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Import optional libraries in this context: if one is missing or too old, the error names the extra to install."""
    try:
        yield
    except MissingLibrary:
        raise
    except ModuleNotFoundError as error:
        missing = (error.name or name).partition(".")[0]
        raise MissingLibrary(f'this needs {missing}: pip install "freezethaw[{name}]"') from None
    except ImportError as error:
        advice = f'pip install --upgrade "freezethaw[{name}]"'
        raise MissingLibrary(f"this needs another version of {error.name or name} ({error}): {advice}") from error
