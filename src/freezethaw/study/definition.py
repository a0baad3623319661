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

    @property
    def sign(self) -> float:
        """Losses times this are minimised."""
        return -1.0 if self.maximize else 1.0


def write(space: Space, max_epochs: int, candidates: Sequence[Config] | None, rules: Rules) -> dict[str, Any]:
    """The definition of a study."""
    return {
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
    )
    return Space.from_dict(definition["space"]), definition["candidates"], rules
