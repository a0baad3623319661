"""What to train: a study file, a function or class by name, or a command after `--`.

A study file describes a study in TOML:

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
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from freezethaw.cli.app import UsageError
from freezethaw.errors import SpaceError, StudyError

if TYPE_CHECKING:
    from freezethaw.records import Checkpoints

COMMAND = "freezethaw.command"  # key of the arguments after -- in the context


class AcceptsCommand(TyperCommand):
    """A CLI command that accepts a training command after --."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Store the arguments after -- in the context."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Add the command to the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


TrainingArgument = Annotated[
    str | None,
    typer.Argument(metavar="STUDY.toml|TRAIN", help="A study file, train.py:function or package.module:function."),
]
SpaceOption = Annotated[
    Path | None, typer.Option("--space", metavar="FILE", help="TOML file with the parameters; see docs/cli.md.")
]
EveryOption = Annotated[int | None, typer.Option(min=1, help="Epochs between checkpoints while a run is trained.")]
InMemoryOption = Annotated[
    int | None, typer.Option(min=0, help="Frozen runs kept in memory if the training is a class.")
]
EpochLimitOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Time limit of one epoch; a run that exceeds it fails.")
]
GraceOption = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        metavar="SECONDS",
        help="Time from a signal to the end of the machine. Runs with longer epochs are saved after each of them; "
        "worker processes that have not saved by then are killed. By default they have as long as it takes.",
    ),
]


def read_entries(ctx: typer.Context, what: str | None) -> dict[str, Any]:
    """The entries of the study file, if one is given, with the training under the key `trainer`."""
    from freezethaw.trainers import command, named

    arguments: list[str] = ctx.meta.get(COMMAND, [])
    entries: dict[str, Any] = {}
    folder = Path()
    if what is not None and what.endswith(".toml"):
        entries = read_study(Path(what))
        folder = Path(what).parent
        entries.setdefault("name", Path(what).stem)
        what = None
    if what is not None and ":" not in what and Path(f"{what}.toml").is_file():
        raise UsageError(f"{what} is not a study file; did you mean {what}.toml?")
    if what is not None and arguments:
        raise UsageError("give a training function or a command after --, not both")
    if arguments:
        entries["trainer"] = command(arguments)
    elif what is not None:
        entries["trainer"] = named(what)
    elif "train" in entries:
        entries["trainer"] = named(entries["train"], folder)
    elif "command" in entries:
        entries["trainer"] = command(entries["command"], folder)
    else:
        raise UsageError("nothing to train: give train.py:function, a study file or a command after --")
    return entries


def with_space(entries: dict[str, Any], space: Path | None) -> dict[str, Any]:
    """The entries with the space from --space or from the study file."""
    from freezethaw.space import Space

    if space is None and "space" not in entries:
        raise UsageError("--space FILE is required, or the table [space] in the study file")
    described = entries["space"] if space is None else read_space(space)
    return entries | {"space": Space.from_dict(described)}


def default_store(study: str) -> str:
    """The SQLite file with the name of the study in the current folder."""
    file = "".join(c if c.isalnum() or c in "-_." else "-" for c in study) or "study"
    return f"sqlite:///{file}.db"


def checkpoints(entry: Any, **options: Any) -> Checkpoints:
    """The checkpoint settings of the study file, overridden by options."""
    from freezethaw.records import Checkpoints

    return Checkpoints(**merge("checkpoints", entry, "folder", options))


def given(**options: Any) -> dict[str, Any]:
    """The options that are not None."""
    return {key: value for key, value in options.items() if value is not None}


def merge(what: str, entry: Any, key: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A table of the study file, overridden by options. An entry that is not a table is the value of `key`."""
    fields: dict[str, Any] = dict(entry) if isinstance(entry, dict) else given(**{key: entry})
    fields |= given(**options)
    unknown = [name for name in fields if name not in options]
    if unknown:
        raise StudyError(f"{what}: unknown key {unknown[0]!r}; known keys: {', '.join(options)}")
    return fields


# Study files.


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
