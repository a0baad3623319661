"""What to train, as commands are told: a study file, a function or class by name, or a command after --."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from freezethaw.cli.app import UsageError
from freezethaw.errors import StudyError

if TYPE_CHECKING:
    from freezethaw.records import Checkpoints

COMMAND = "freezethaw.command"  # where words after -- are kept


class WithCommand(TyperCommand):
    """Takes the words after -- as a command to train with."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep what follows -- for later."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[COMMAND] = args[place + 1 :]
            args = args[:place]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Show the command in the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


WhatArgument = Annotated[
    str | None,
    typer.Argument(metavar="STUDY.toml|TRAIN", help="A study file, or train.py:function, or package.module:function."),
]
SpaceOption = Annotated[
    Path | None, typer.Option("--space", metavar="FILE", help="The parameters, in TOML; see docs/cli.md.")
]
EveryOption = Annotated[int | None, typer.Option(min=1, help="Epochs between checkpoints of a run in hand.")]
InMemoryOption = Annotated[
    int | None, typer.Option(min=0, help="Frozen runs that stay in memory, where a class is trained.")
]
EpochLimitOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="A run fails whose epoch takes longer than this.")
]


def entries_of(ctx: typer.Context, what: str | None) -> dict[str, Any]:
    """What the study file says, if there is one, and the training wherever it comes from, as `trainer`."""
    from freezethaw.cli import study_file
    from freezethaw.trainers import command, named

    words_after: list[str] = ctx.meta.get(COMMAND, [])
    entries: dict[str, Any] = {}
    folder = Path()
    if what is not None and what.endswith(".toml"):
        entries = study_file.read_study(Path(what))
        folder = Path(what).parent
        entries.setdefault("name", Path(what).stem)
        what = None
    if what is not None and ":" not in what and Path(f"{what}.toml").is_file():
        raise UsageError(f"what to train? {what} is no study file; did you mean {what}.toml?")
    if what is not None and words_after:
        raise UsageError("give a training function or a command after --, not both")
    if words_after:
        entries["trainer"] = command(words_after)
    elif what is not None:
        entries["trainer"] = named(what)
    elif "train" in entries:
        entries["trainer"] = named(entries["train"], folder)
    elif "command" in entries:
        entries["trainer"] = command(entries["command"], folder)
    else:
        raise UsageError("what to train? Name train.py:function or a study file, or give a command after --")
    return entries


def with_space(entries: dict[str, Any], space: Path | None) -> dict[str, Any]:
    """The same with the space, of the study file or a file of its own."""
    from freezethaw.cli import study_file
    from freezethaw.space import Space

    if space is None and "space" not in entries:
        raise UsageError("which parameters? --space FILE names them, or the study file's table [space]")
    described = entries["space"] if space is None else study_file.read_space(space)
    return entries | {"space": Space.from_dict(described)}


def store_of(study: str) -> str:
    """Where a study is unless said: an SQLite file of its name, here."""
    file = "".join(c if c.isalnum() or c in "-_." else "-" for c in study) or "study"
    return f"sqlite:///{file}.db"


def checkpoints_of(told: Any, **given: Any) -> Checkpoints:
    """What the study file and the options say of checkpoints."""
    from freezethaw.records import Checkpoints

    return Checkpoints(**merged("checkpoints", told, "folder", given))


def said(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {key: value for key, value in options.items() if value is not None}


def merged(what: str, told: Any, short: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A table of the study file, or the one value `short` in its place, with the options that were given over it."""
    fields: dict[str, Any] = dict(told) if isinstance(told, dict) else said(**{short: told})
    fields |= said(**given)
    unknown = [key for key in fields if key not in given]
    if unknown:
        raise StudyError(f"{what}: unknown key {unknown[0]!r}; known are {', '.join(given)}")
    return fields
