"""Which code trains a study: another training function, or another version of it, is an event and not silence."""

from __future__ import annotations

import functools
import hashlib
import inspect
import textwrap
from pathlib import Path
from tokenize import TokenError
from types import CodeType, FunctionType

from freezethaw.errors import TrainingError
from freezethaw.store import Storage
from freezethaw.trainers import ClassTrainer, CommandTrainer, NamedTrainer, Train

CHANGED = "training changed"
LARGEST_FILE = 1_000_000  # bytes of a file named by a command that is taken for its source


def check_training(study: Storage, train: Train) -> str:
    """Remember what trains a study; if something else did before, record an event and return its text."""
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
    except (OSError, TypeError, SyntaxError, TokenError, IndexError, TrainingError):  # typed in, or written in C
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
    if isinstance(found, FunctionType) and found.__name__ == "<lambda>":  # its lines have more than itself on them
        return found.__qualname__, _instructions(found.__code__)
    if not (inspect.isroutine(found) or inspect.isclass(found)):
        found = type(found)
    return str(getattr(found, "__qualname__", found)), textwrap.dedent(inspect.getsource(found))


def _instructions(code: CodeType) -> str:
    inner = [_instructions(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return "\0".join([code.co_code.hex(), *code.co_names, *inner])
