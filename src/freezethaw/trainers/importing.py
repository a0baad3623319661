"""Trainings by name: "package.module:function" or "train.py:function"; "train.py" means its `train`. Also for classes.

Unlike a function, a name can be passed to another process or machine and written in a study file. Only names given by
the user are imported, never names from a store.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from freezethaw.errors import TrainingError
from freezethaw.trainers.protocol import TrainingRun, function_of

EXAMPLES = "'train.py:train' or 'package.module:train'"
DEFAULT = "train"


@dataclass(frozen=True)
class NamedTrainer:
    """A training function that is imported when it is called."""

    module: str  # dotted, or the absolute path of a file
    name: str
    folder: str = ""  # searched first for modules

    def __call__(self, run: TrainingRun) -> object:
        """Import the function and train."""
        return self.function()(run)

    def function(self) -> Callable[[TrainingRun], object]:
        """The function with this name, or the training function of a class."""
        found = attribute(self._module(), self.name)
        if isinstance(found, type):
            return function_of(found)
        if not callable(found):
            raise TrainingError(f"{self} is {_kind(found)}, not a function or a class")
        function: Callable[[TrainingRun], object] = found
        return function

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    def _module(self) -> ModuleType:
        if self.folder and self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            with importing(Path(self.module).name):
                return _import_file(Path(self.module)) if self.module.endswith(".py") else _import_module(self.module)
        except TrainingError:
            raise
        except Exception as error:  # raised by the user's file
            raise TrainingError(f"importing {self.module} failed: {_where(error)}") from error


_importing: list[str] = []  # what this process is importing to get a training from it


@contextmanager
def importing(what: str) -> Iterator[None]:
    """A block that imports a module of the user to get a training from it: it must not start a search."""
    _importing.append(what)
    try:
        yield
    finally:
        _importing.pop()


def refuse_while_importing() -> None:
    """Raise if a search is started by a module that is imported for its training: each worker would start another."""
    if _importing:
        raise TrainingError(
            f"{_importing[-1]} starts a search while it is imported for its training; put what starts it under "
            '`if __name__ == "__main__":`'
        )


def named(text: str, folder: Path | None = None) -> NamedTrainer:
    """A training by name, imported now so that wrong names raise at once. Files are relative to `folder`."""
    module, _, name = text.partition(":")
    if not module or ":" in name:
        raise TrainingError(f"{text!r} is not the name of a training; expected {EXAMPLES}")
    home = (folder or Path()).absolute()
    if module.endswith(".py"):
        file = home / Path(module).expanduser()
        if not file.is_file():
            raise TrainingError(
                f"there is no file {module}" + (f" in {home}" if not Path(module).is_absolute() else "")
            )
        found = NamedTrainer(str(file), name or DEFAULT, str(file.parent))
    elif "/" in module or not all(part.isidentifier() for part in module.split(".")):
        raise TrainingError(f"{text!r} is not the name of a training; expected {EXAMPLES}")
    else:
        found = NamedTrainer(module, name or DEFAULT, str(home))
    found.function()
    return found


def attribute(module: ModuleType, name: str) -> Any:
    """An attribute of a module, by its dotted name."""
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [key for key, value in vars(found).items() if callable(value) and not key.startswith("_")]
            near = difflib.get_close_matches(part, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known)[:8]) or 'no functions'}"
            raise TrainingError(f"{Path(module.__file__ or module.__name__).name} has no {name!r}; {hint}")
        found = getattr(found, part)
    return found


def _import_file(file: Path) -> ModuleType:
    """Import a file under its own name if that is free, so that pickled classes can be found."""
    name = (
        file.stem
        if file.stem.isidentifier() and _free(file)
        else f"freezethaw_of_{re.sub(r'[^0-9a-zA-Z]', '_', file.stem)}"
    )
    known = sys.modules.get(name)
    if known is not None and _is_of(known, file):
        return known
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise TrainingError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _free(file: Path) -> bool:
    """Whether no other module has this name."""
    known = sys.modules.get(file.stem)
    if known is not None:
        return _is_of(known, file)
    found = importlib.util.find_spec(file.stem)
    return found is None or (found.origin is not None and Path(found.origin).resolve() == file.resolve())


def _is_of(module: ModuleType, file: Path) -> bool:
    origin = getattr(module, "__file__", None)
    return origin is not None and Path(origin).resolve() == file.resolve()


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        hint = f"; for a file, write {name}.py:function" if Path(f"{name}.py").is_file() else ""
        raise TrainingError(f"there is no module {name!r} here{hint}") from None


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if not frame.filename.startswith("<") and "importlib" not in frame.filename]
    location = f"{Path(ours[-1].filename).name}, line {ours[-1].lineno}: " if len(ours) > 1 else ""
    return f"{location}{type(error).__name__}: {error}"


def _kind(found: object) -> str:
    return "a module" if isinstance(found, ModuleType) else f"a {type(found).__name__}"
