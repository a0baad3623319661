"""The training function: how it is sent to a worker process, and how a changed version is detected.

It is sent by name if it can be imported, else by value: through a pipe from the parent to its own child, with
cloudpickle, and never stored. A hash of its source is stored: if it changes during a study, an event is recorded.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from types import CodeType, FunctionType
from typing import IO, Any

from freezethaw.errors import StudyError, TrainingError
from freezethaw.store import Storage
from freezethaw.trainers import ClassTrainer, CommandTrainer, NamedTrainer, Train
from freezethaw.trainers.importing import importing

CHANGED = "training changed"  # the kind of event
LARGEST_FILE = 1_000_000  # bytes; larger files named by a command are not part of its source


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


# Which training a study has.


def check_training(study: Storage, train: Train) -> str:
    """Record which training a study has; if it changed, record an event and return its text."""
    new, old = fingerprint(train), study.load().definition.get("training")
    if not new or new == old:
        return ""
    study.set_training(new)
    if not old:
        return ""
    text = (
        f"the study continues with another training: {new['name']} (source {new['sha256'][:8]}), so far {old['name']} "
        f"(source {old['sha256'][:8]}). Losses from before and after may not be comparable"
    )
    study.add_event(CHANGED, text, details={"before": old, "now": new})
    return text


def fingerprint(train: Train) -> dict[str, str]:
    """The name of a training and the hash of its source; empty if the source is not known."""
    try:
        name, source = _source(train)
    except (OSError, TypeError, SyntaxError, TokenError, IndexError, TrainingError):  # interactive, or written in C
        return {}
    return {"name": name, "sha256": hashlib.sha256(source.encode()).hexdigest()}


def _source(train: object) -> tuple[str, str]:
    match train:
        case NamedTrainer():
            return _source(train.function())
        case ClassTrainer():
            return _source(train.trained)
        case CommandTrainer():
            files = [Path(train.folder or ".") / word for word in train.command]
            small = [f for f in files[1:] or files if f.is_file() and f.stat().st_size < LARGEST_FILE]
            texts = [file.read_text(encoding="utf-8", errors="replace") for file in small]
            return str(train), "\0".join([*train.command[1:], *texts])
        case functools.partial():
            name, source = _source(train.func)
            return name, f"{source}\0{train.args!r}\0{sorted(train.keywords.items())!r}"
    found: object = inspect.unwrap(train) if callable(train) else train
    if isinstance(found, FunctionType) and found.__name__ == "<lambda>":  # its lines may contain more
        return found.__qualname__, _instructions(found.__code__)
    if not (inspect.isroutine(found) or inspect.isclass(found)):
        found = type(found)
    return str(getattr(found, "__qualname__", found)), textwrap.dedent(inspect.getsource(found))


def _instructions(code: CodeType) -> str:
    inner = [_instructions(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return "\0".join([code.co_code.hex(), *code.co_names, *inner])
