"""What a study is, as plain numbers and texts: kept in a store, and read back to decide as it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from freezethaw.records import Budget, Config, Prices
from freezethaw.space import Space


@dataclass(frozen=True)
class Rules:
    """How a study decides; with its space, the facts, the belief and the number of the decision this determines it."""

    maximize: bool
    seed: int
    policy: str
    model: str
    budget: Budget
    finish_best: bool
    prices: Prices
    repeats: int = 1  # how often a configuration may be started
    stopped: bool = False  # by the user
    banned: tuple[int, ...] = ()  # runs that the user wants advanced no more
    pinned: tuple[int, ...] = ()  # runs whose checkpoints stay whatever the disk budget

    @property
    def sign(self) -> float:
        """Losses times this are minimised."""
        return -1.0 if self.maximize else 1.0


def write(space: Space, max_epochs: int, candidates: Sequence[Config] | None, rules: Rules) -> dict[str, Any]:
    """The definition of a study; what the user did to a running one is said only where something was done."""
    steering = {"stopped": rules.stopped, "banned": list(rules.banned), "pinned": list(rules.pinned)}
    return {key: value for key, value in steering.items() if value} | {
        "space": space.to_dict(),
        "max_epochs": max_epochs,
        "direction": "maximize" if rules.maximize else "minimize",
        "seed": rules.seed,
        "policy": rules.policy,
        "model": rules.model,
        "candidates": None if candidates is None else [dict(config) for config in candidates],
        "budget": asdict(rules.budget),
        "finish_best": rules.finish_best,
        "prices": asdict(rules.prices),
        "repeats": rules.repeats,
    }


def read_kept(definition: Mapping[str, Any]) -> dict[str, Any]:
    """What stays of the user's doing when a study is continued by the same call."""
    return {key: tuple(definition.get(key, ())) for key in ("banned", "pinned")}


def read(definition: Mapping[str, Any]) -> tuple[Space, list[Config] | None, Rules]:
    """Space, candidates and rules that `write` wrote."""
    rules = Rules(
        definition["direction"] == "maximize",
        definition["seed"],
        definition["policy"],
        definition["model"],
        Budget(**definition["budget"]),
        definition["finish_best"],
        Prices(**definition.get("prices", {})),
        definition.get("repeats", 1),
        bool(definition.get("stopped")),
        tuple(definition.get("banned", ())),
        tuple(definition.get("pinned", ())),
    )
    return Space.from_dict(definition["space"]), definition["candidates"], rules
