"""What may change about the definition of a study when it is continued: pure functions.

A definition is a plain dict, as `StudyDefinition.to_dict` writes it. Every version is kept, and a decision names its
version. No decision depends on `tags`, the disk budget `disk_gb` and the name and hash of the `training`, so they
change without a new version. They, and
the runs that the user `banned` or `pinned`, are kept if a new definition does not mention them; `stopped` is not, so
that running the same command again continues the study.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from freezethaw.errors import StudyError
from freezethaw.space import Space
from freezethaw.store import documents
from freezethaw.store.storage import Definition

REQUIRED = ("space", "max_epochs", "direction")
FIXED = ("direction", "seed")  # with another one it would be another study
TAGS, DISK, TRAINING = "tags", "disk_gb", "training"
# if a new definition does not mention them
KEPT = (TAGS, DISK, TRAINING, "checkpoint_folder", "banned", "pinned")
LONGEST_TAG = 50


@dataclass(frozen=True)
class Amendment:
    """The definition to continue with, and how it differs from the one before, for people."""

    definition: Definition
    difference: str

    def __bool__(self) -> bool:
        return bool(self.difference)


def checked(definition: Definition) -> dict[str, Any]:
    """A definition as plain JSON returns it; raises StudyError if something is wrong with it."""
    missing = [key for key in REQUIRED if key not in definition]
    if missing:
        raise StudyError(f"the definition of a study lacks {', '.join(missing)}")
    most = definition["max_epochs"]
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise StudyError(f"max_epochs must be a positive integer, not {most!r}")
    plain: dict[str, Any] = documents.load(documents.dump(dict(definition)))
    return plain


def amend(old: Definition, new: Definition, name: str) -> Amendment:
    """Continue `old` with `new`; raises StudyError, with the difference, if that would be another study."""
    old, new = checked(old), checked(new)
    new = {key: old[key] for key in KEPT if key in old} | new
    new.pop("learn_from", None)  # chosen when the study is created
    new |= {key: old[key] for key in ("learn_from",) if key in old}
    for key in FIXED:
        if old.get(key) != new.get(key):
            raise _refused(name, f"its {key} is {old.get(key)!r}, not {new.get(key)!r}")
    if new["max_epochs"] < old["max_epochs"]:
        raise _refused(name, f"max_epochs may grow but not shrink from {old['max_epochs']} to {new['max_epochs']}")
    space = Space.from_dict(old["space"]).difference(Space.from_dict(new["space"]))
    if space.added or space.removed:
        raise _refused(name, f"its space has other parameters ({space})")
    changed = [f"space: {text}" for text in space.changed]
    changed += [_told(key, old, new) for key in _changed(old, new) if key not in ("space", *FIXED)]
    return Amendment(new, "; ".join(changed))


def checked_tags(tags: object) -> list[str]:
    """Tags as they are stored: short texts, without duplicates."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise StudyError(f"tags are a list of texts, such as ['mnist', 'first try'], not {tags!r}")
    found = list(dict.fromkeys(tags))
    for tag in found:
        if not isinstance(tag, str) or not 0 < len(tag.strip()) <= LONGEST_TAG or not tag.isprintable() or "," in tag:
            raise StudyError(f"a tag is a text of 1 to {LONGEST_TAG} characters without a comma, not {tag!r}")
    return found


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)]


def _told(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    before, after = old.get(key), new.get(key)
    if key == "candidates":
        return f"candidates: {_count(before)} to {_count(after)}"
    if isinstance(before, dict) and isinstance(after, dict):  # such as the budget: only what is another in it
        return "; ".join(f"{key} {_told(part, before, after)}" for part in _changed(before, after))
    return f"{key}: {before!r} to {after!r}"


def _count(candidates: Any) -> str:
    return "anywhere in the space" if candidates is None else f"a list of {len(candidates)}"


def _refused(name: str, difference: str) -> StudyError:
    return StudyError(f"the study {name!r} in this store is another one: {difference}. Choose another name")
