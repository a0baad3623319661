"""Rules that the memory and the SQL storage share: what may be recorded, what is said if not, and past states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freezethaw.errors import LeaseLost, StoreError, StudyError, TellError
from freezethaw.records import CLOSINGS, Checkpoint, Closing, DecisionRecord, Lease, Report, Run, State, closed_state
from freezethaw.store.storage import DECIDING, DROP_REASONS, LeaseState


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


def check_told(close: Closing | None, decision: int, from_epoch: int, epoch: int) -> None:
    """Refuse to close a decision as told if it has no loss."""
    if close == "told" and epoch <= from_epoch:
        raise TellError(f"decision {decision} has no loss yet; close it as interrupted or failed")


def check_checkpoint(checkpoint: Checkpoint | None, run: int, epoch: int) -> None:
    """Refuse a checkpoint of an epoch that is not recorded."""
    if checkpoint is not None and not 1 <= checkpoint.epoch <= epoch:
        raise StoreError(f"a checkpoint of epoch {checkpoint.epoch} cannot be recorded: run {run} is at epoch {epoch}")


def check_gone(why: str) -> None:
    """Refuse an unknown reason for dropping a checkpoint."""
    if why not in DROP_REASONS:
        raise StoreError(f"a checkpoint is dropped as one of {', '.join(DROP_REASONS)}, not {why!r}")


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
