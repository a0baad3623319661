"""Libraries that are extras: imported by one adapter each, and missed in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from freezethaw.errors import MissingLibrary


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Import what the extra of this name brings; where it is not there, or too old, the error says what to install."""
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
