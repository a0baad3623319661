"""All errors of freezethaw. Catch `FreezeThawError` to catch them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXIT_STOPPED = 3  # exit code of a process that a signal has stopped; the same command continues


class FreezeThawError(Exception):
    """Base of all errors of this package."""


class SpaceError(FreezeThawError, ValueError):
    """A search space or a configuration is invalid; the message names the parameter."""


class ModelError(FreezeThawError, ValueError):
    """Invalid input of the model."""


class SingularCovarianceError(ModelError):
    """A covariance matrix is not positive definite in floating point."""


class FigureError(FreezeThawError, RuntimeError):
    """A figure cannot be drawn or written."""


class TellError(FreezeThawError, ValueError):
    """Losses that cannot be recorded. The study is unchanged."""


class StudyError(FreezeThawError, ValueError):
    """An invalid request to a study."""


class StudyFinished(FreezeThawError):  # noqa: N818
    """The study has ended, for the given `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AllPending(FreezeThawError):  # noqa: N818
    """All runs that could be trained are being trained; ask again after the next tell."""


class CurveError(FreezeThawError, ValueError):
    """Learning curves of another tool cannot be read; the message names the file, the column or the run."""


class TrainingError(FreezeThawError, RuntimeError):
    """A training failed or violates the protocol."""


class Diverged(TrainingError):  # noqa: N818
    """Raise this in a training that diverged. The run is never thawed, and similar configurations are avoided."""


class OutOfMemory(TrainingError):  # noqa: N818
    """Raise this in a training that ran out of memory. The run fails, and similar configurations are avoided."""


class Preempted(TrainingError):  # noqa: N818
    """Raise this in a training that is preempted. The run is frozen and can be thawed."""


class Interrupted(SystemExit, KeyboardInterrupt):
    """A signal ended `tune`: all runs are frozen, and the same call continues the study.

    A script that does not catch it ends with exit code 3 and without a traceback. `why` is the name of the signal.
    """

    def __init__(self, why: str) -> None:
        super().__init__(EXIT_STOPPED)
        self.why = why

    def __str__(self) -> str:
        return f"{self.why}: all runs are frozen; the same command continues the study"


class MissingLibrary(TrainingError, ImportError):  # noqa: N818
    """A library is not installed; the message names the package to install."""


class StoreError(FreezeThawError, RuntimeError):
    """A store cannot be opened, read or written. Passwords are masked in the message."""


class LeaseLost(StoreError):  # noqa: N818
    """A write with a lost lease: another worker took over the run. Nothing was recorded."""


class CheckpointError(StoreError):
    """A checkpoint cannot be saved, or there is no valid one."""


def described(error: BaseException) -> str:
    """The kind of an error, and what it says if it says anything."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


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
