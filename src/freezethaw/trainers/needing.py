"""Libraries that are extras: imported by one adapter each, and missed in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from freezethaw.errors import MissingLibrary


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Import what the extra of this name brings; where it is not there, the error says what to install."""
    try:
        yield
    except ImportError as error:
        if isinstance(error, MissingLibrary):
            raise
        missing = (error.name or name).partition(".")[0]
        raise MissingLibrary(f'this needs {missing}: pip install "freezethaw[{name}]"') from None
