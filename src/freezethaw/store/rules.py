"""Rules that the memory and the SQL storage share: pure functions.

What may be recorded, the messages if it may not, past states, and what may change in the definition of a study.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from freezethaw.errors import LeaseLost, StoreError, StudyError, TellError
from freezethaw.records import CLOSINGS, Checkpoint, Closing, DecisionRecord, Lease, Report, Run, State, closed_state
from freezethaw.space import Space
from freezethaw.store import documents
from freezethaw.store.storage import DECIDING, DROP_REASONS, Definition, LeaseState


def check_advance(run: Run, to_epoch: int, max_epochs: int) -> None:
    """Refuse to advance a run that is not frozen, or not further than it is."""
    if run.state != "frozen":
        raise StudyError(f"run {run.number} is {run.state}; only a frozen run can be advanced")
    if not run.epoch < to_epoch <= max_epochs:
        raise StudyError(f"run {run.number} is at epoch {run.epoch} of {max_epochs}; cannot train to {to_epoch}")


def check_request(epoch: int, to_epoch: int, max_epochs: int) -> None:
    """Refuse a request that cannot be fulfilled."""
    if not epoch < to_epoch <= max_epochs:
        raise StudyError(f"cannot train to epoch {to_epoch}: it must be between {epoch + 1} and {max_epochs}")


def check_closing(close: Closing | None) -> None:
    """Refuse an unknown way of closing a decision."""
    if close is not None and close not in CLOSINGS:
        raise TellError(f"a decision is closed as one of {', '.join(CLOSINGS)}, not {close!r}")


def check_has_loss(close: Closing | None, decision: int, from_epoch: int, epoch: int) -> None:
    """Refuse to close a decision as told if it has no loss."""
    if close == "told" and epoch <= from_epoch:
        raise TellError(f"decision {decision} has no loss yet; close it as interrupted or failed")


def check_checkpoint(checkpoint: Checkpoint | None, run: int, epoch: int) -> None:
    """Refuse a checkpoint of an epoch that is not recorded."""
    if checkpoint is not None and not 1 <= checkpoint.epoch <= epoch:
        raise StoreError(f"a checkpoint of epoch {checkpoint.epoch} cannot be recorded: run {run} is at epoch {epoch}")


def check_drop_reason(why: str) -> None:
    """Refuse an unknown reason for dropping a checkpoint."""
    if why not in DROP_REASONS:
        raise StoreError(f"a checkpoint is dropped as one of {', '.join(DROP_REASONS)}, not {why!r}")


def check_reason(reason: str) -> None:
    """Refuse a decision without a reason."""
    if not reason:
        raise StudyError("a decision needs a reason")


def not_waiting(request: int) -> StudyError:
    """A request is closed, or does not exist."""
    return StudyError(f"request {request} is not waiting")


def unknown_run(number: object, count: int) -> StudyError:
    """There is no such run."""
    return StudyError(f"there is no run {number!r}; the study has runs 1 to {count}")


def unknown_decision(number: object, count: int) -> StudyError:
    """There is no such decision."""
    return StudyError(f"there is no decision {number!r}; the study has decisions 1 to {count}")


def closed_before(lease: Lease) -> TellError:
    """The decision of a lease is no longer pending."""
    return TellError(f"decision {lease.decision} of run {lease.run} was told or cancelled before")


def differing_losses(run: int, report: Report, kept: Mapping[int, float]) -> tuple[str, dict[str, Any]]:
    """Text and details of the event that epochs were trained again with other losses; `kept` are those recorded."""
    again = {epoch: report.losses[epoch - report.first_epoch] for epoch in kept}
    first = min(kept)
    text = (
        f"run {run} was trained again from epoch {report.first_epoch} and {len(kept)} loss(es) differ; "
        f"at epoch {first} the recorded {kept[first]!r} is kept, {again[first]!r} was reported now"
    )
    return text, {"epochs": list(kept), "kept": list(kept.values()), "again": list(again.values())}


def dropped(gone: Checkpoint, why: str) -> tuple[str, str, int, int, dict[str, Any]]:
    """Kind, text, run, epoch and details of the event that a checkpoint was evicted or is damaged."""
    text = f"the checkpoint of run {gone.run} at epoch {gone.epoch} was {why}"
    return f"checkpoint {why}", text, gone.run, gone.epoch, {"place": gone.place, "bytes": gone.bytes}


def taken_over(seen: LeaseState) -> tuple[str, int | None, None, dict[str, Any]]:
    """Text, run, epoch and details of the event that a lease was taken over."""
    text = f"{seen} was taken over from {seen.holder}, which is dead or silent"
    return text, seen.run or None, None, {"token": seen.token + 1, "holder": str(seen.holder)}


def lost_lease(lease: Lease, now: LeaseState | None) -> LeaseLost:
    """Why a write under this lease is refused; `now` is the lease as it is."""
    what = "the decision lease" if lease.run == DECIDING else f"the lease of run {lease.run}"
    if now is None:
        return LeaseLost(f"{what} does not exist: the study was deleted, or the lease is of another study")
    if now.token == lease.token:
        return LeaseLost(f"{what} (token {lease.token}) was released before; nothing more can be written under it")
    by = f"is held by {now.holder}" if now.held else "was released since"
    return LeaseLost(
        f"{what} (token {lease.token}) was lost: token {now.token} {by}. This process sent no heartbeat for too long; "
        "what it did since is not recorded"
    )


def is_pending(decision: DecisionRecord, at: int) -> bool:
    """Whether a decision was pending at a change."""
    return decision.committed <= at and (decision.closed is None or decision.closed > at)


def state_at(run: Run, latest: DecisionRecord | None, epoch: int, at: int, max_epochs: int) -> tuple[State, str]:
    """State and outcome of a run at an earlier change; `latest` is its last decision by then."""
    if latest is None:  # only an imported run has no decision
        return run.state, run.outcome
    if is_pending(latest, at):
        return "pending", ""
    closing: Closing = latest.outcome  # type: ignore[assignment]
    return closed_state(closing, epoch, max_epochs)


# What may change in the definition of a study when it is continued.
#
# A definition is a plain dict, as `StudyDefinition.to_dict` writes it. Every version is kept, and a decision names its
# version. No decision depends on `tags`, the disk budget `disk_gb` and the name and hash of the `training`, so they
# change without a new version. They, and the runs that the user `banned` or `pinned`, are kept if a new definition does
# not mention them; `stopped` is not, so that running the same command again continues the study.

REQUIRED = ("space", "max_epochs", "direction")
FIXED = ("direction", "seed")  # with another value it would be another study
TAGS, DISK, TRAINING = "tags", "disk_gb", "training"
# if a new definition does not mention them
KEPT = (TAGS, DISK, TRAINING, "checkpoint_folder", "banned", "pinned")
LONGEST_TAG = 50


@dataclass(frozen=True)
class Amendment:
    """The definition to continue with, and how it differs from the one before, for people."""

    definition: Definition
    difference: str

    @property
    def event(self) -> tuple[str, str]:
        """Kind and text of the event."""
        return "definition changed", f"the study was continued with changes: {self.difference}"

    def __bool__(self) -> bool:
        return bool(self.difference)


def checked_definition(definition: Definition) -> dict[str, Any]:
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
    old, new = checked_definition(old), checked_definition(new)
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
    changed += [_change_text(key, old, new) for key in _changed(old, new) if key not in ("space", *FIXED)]
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


def _change_text(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    before, after = old.get(key), new.get(key)
    if key == "candidates":
        return f"candidates: {_count(before)} to {_count(after)}"
    if isinstance(before, dict) and isinstance(after, dict):  # such as the budget: only the entries that differ
        return "; ".join(f"{key} {_change_text(part, before, after)}" for part in _changed(before, after))
    return f"{key}: {before!r} to {after!r}"


def _count(candidates: Any) -> str:
    return "anywhere in the space" if candidates is None else f"a list of {len(candidates)}"


def _refused(name: str, difference: str) -> StudyError:
    return StudyError(f"the study {name!r} in this store is another one: {difference}. Choose another name")
