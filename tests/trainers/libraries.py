"""Libraries that an adapter needs: where one is absent its tests skip, but in CI they fail."""

from __future__ import annotations

import importlib.util
import os
import pickle
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def needs(*libraries):
    """Skip the rest of a module where one of them is not installed."""
    absent = [name for name in libraries if importlib.util.find_spec(name) is None]
    if absent and os.environ.get("FREEZETHAW_CI"):
        pytest.fail(f"CI installs every library, and {', '.join(absent)} is not there", pytrace=False)
    if absent:
        pytest.skip(f"{', '.join(absent)} is not installed", allow_module_level=True)


class Exploit:
    """A value that writes a file when it is unpickled."""

    def __init__(self, place):
        self.place = str(place)

    def __reduce__(self):
        return (Path.write_text, (Path(self.place), "executed"))


def exploit(place):
    """Bytes that are code to whoever unpickles them."""
    return pickle.dumps(Exploit(place))
