"""Study files: a study described in TOML.

train = "train.py:train"          # or command = ["./train.sh", "--fast"]
max_epochs = 50
budget = 200                      # epochs; or a table: epochs, training_hours, target, worthwhile
store = "sqlite:///digits.db"

[space.learning_rate]
type = "float"
low = 1e-6
high = 0.1
log = true
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freezethaw.errors import SpaceError, StudyError

KEYS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "train": (str,),
    "command": (list, str),
    "max_epochs": (int,),
    "budget": (int, dict),
    "timeout": (int, float, str),
    "metric": (str,),
    "direction": (str,),
    "bounds": (list, str),
    "seed": (int,),
    "workers": (int,),
    "store": (str,),
    "finish_best": (bool,),
    "epoch_limit": (int, float),
    "grace": (int, float),
    "repeats": (int,),
    "learn_from": (str, list),
    "tags": (list,),
    "checkpoints": (dict, str),
    "space": (dict,),
}


def read_study(file: Path) -> dict[str, Any]:
    """The entries of a study file; keys and types are checked."""
    found = _read(file)
    for key, value in found.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(KEYS)}"
            raise StudyError(f"{file}: unknown key {key!r}; {hint}")
        if not isinstance(value, KEYS[key]) or (isinstance(value, bool) and bool not in KEYS[key]):
            wanted = " or ".join(kind.__name__ for kind in KEYS[key])
            raise StudyError(f"{file}: {key} is {value!r}; it must be of type {wanted}")
    if "train" in found and "command" in found:
        raise StudyError(f"{file}: give train or command, not both")
    return found


def read_space(file: Path) -> Mapping[str, Any]:
    """The parameters in a space file or in the table [space] of a study file."""
    found = _read(file)
    inner = found.get("space")
    described = inner if isinstance(inner, dict) and "type" not in inner else found
    if not described:
        raise SpaceError(f"{file} has no parameters; add tables such as [learning_rate] with type, low and high")
    return described


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StudyError(f"cannot read {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StudyError(f"{file} is not valid TOML: {error}") from None
