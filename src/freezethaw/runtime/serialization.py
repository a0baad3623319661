"""How a training function is sent to a worker process: by name if it can be imported, else by value.

By value it goes through a pipe from the parent to its own child, with cloudpickle, and is never stored.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
from collections.abc import Callable
from typing import IO, Any

from freezethaw.errors import StudyError
from freezethaw.trainers.importing import importing


def dumps(function: Callable[..., Any]) -> dict[str, str]:
    """A function as plain text."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module not in (None, "__main__") and name and _found(module, name) is function:
        return {"by": "name", "module": str(module), "name": name}
    import cloudpickle

    try:
        code = cloudpickle.dumps(function)
    except Exception as error:
        raise StudyError(
            f"the training {name or function!r} cannot be sent to a worker process: {error}. It refers to something "
            "that exists in this process only, such as a lock, an open file or a connection: create it within the "
            "training, or use engine='inline'"
        ) from error
    return {"by": "value", "code": base64.b64encode(code).decode()}


def _found(module: str, name: str) -> object:
    """What another process would import under this name; None if it could not."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def message(function: Callable[..., Any]) -> bytes:
    """A function, and where to find modules, as one line."""
    return json.dumps({"path": [p for p in sys.path if p], "function": dumps(function)}).encode() + b"\n"


def receive(pipe: IO[bytes]) -> Callable[..., Any]:
    """Read what the process that started this one sent."""
    line = pipe.readline()
    if not line.endswith(b"\n"):
        raise StudyError("the process that started this worker is gone")
    sent = json.loads(line)
    sys.path.extend(p for p in sent["path"] if p not in sys.path)
    try:
        with importing(sent["function"].get("module", "the script of the training")):
            return _loads(sent["function"])
    except Exception as error:
        raise StudyError(
            f"the training function cannot be loaded in a worker process: {type(error).__name__}: {error}"
        ) from error


def _loads(what: dict[str, str]) -> Callable[..., Any]:
    if what["by"] == "name":
        found: Any = importlib.import_module(what["module"])
        for part in what["name"].split("."):
            found = getattr(found, part)
        return found  # type: ignore[no-any-return]
    import cloudpickle

    return cloudpickle.loads(base64.b64decode(what["code"]))  # type: ignore[no-any-return]
