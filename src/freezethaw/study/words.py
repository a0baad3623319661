"""Decisions in words that a person understands."""

from __future__ import annotations

from freezethaw.records import Config


def percent(chance: float) -> str:
    """A chance as people say it."""
    if chance >= 0.995:
        return "over 99 %"
    return f"{100 * chance:.0f} %" if chance >= 0.01 else f"{100 * chance:.1f} %" if chance >= 0.001 else "under 0.1 %"


def number(loss: float) -> str:
    """A loss with as many digits as are useful."""
    return f"{loss:.4g}"


def describe(config: Config) -> str:
    """A configuration on one line."""
    return ", ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in config.items())


def start_or_thaw(run: int | None, epoch: int) -> str:
    """The subject of a reason."""
    return "start a new run" if run is None or epoch == 0 else f"thaw run {run} at epoch {epoch}"


def rate_reason(subject: str, chance: float, best: float, ahead: int, rival: str) -> str:
    """Why the improvement rate chose this."""
    within = "in the next epoch" if ahead == 1 else f"within {ahead} epochs"
    return f"{subject}: {percent(chance)} chance to beat {number(best)} {within}{rival}"


def entropy_reason(subject: str, chance: float, gain: float, rival: str) -> str:
    """Why entropy search chose this."""
    told = f"its next loss tells most about where the minimum is ({gain:.3f} nats)"
    return f"{subject}: {told}; {percent(chance)} chance to have the lowest asymptote{rival}"
