"""The definition of a study: its space and how it decides. Storage keeps it as plain JSON, one version per change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from freezethaw.decide.earlier import EarlierStudy
from freezethaw.errors import StudyError, TellError
from freezethaw.records import Budget, Config, Prices, direction_sign
from freezethaw.space import Space

Direction = Literal["minimize", "maximize"]
Bounds = tuple[float | None, float | None]
RESERVED = ("run", "epoch", "seconds", "state", "outcome", "epochs", "imported", "tags")  # columns of exported tables
LONGEST_METRIC = 60
MODELS = ("drift", "luck", "paper")


@dataclass(frozen=True)
class StudyDefinition:
    """With the state, the hyperparameter samples and the number of a decision, this determines the decision."""

    space: Space
    max_epochs: int
    metric: str = "loss"  # what users call the losses
    direction: Direction = "minimize"
    bounds: Bounds | None = None  # that no loss can leave; None: inferred where that is safe; (None, None): none
    seed: int = 0
    policy: str = "improvement_rate"
    model: str = "drift"
    candidates: tuple[Config, ...] | None = None  # None: anywhere in the space
    budget: Budget = field(default_factory=Budget)
    finish_best: bool = False  # keep enough of the budget to train the best run to the end
    prices: Prices | None = None  # None: measured
    repeats: int = 1  # how often one configuration may be started
    stopped: bool = False  # by the user
    banned: tuple[int, ...] = ()  # runs that the user does not want advanced
    pinned: tuple[int, ...] = ()  # runs whose checkpoints are kept regardless of the disk budget
    learn_from: tuple[EarlierStudy, ...] = ()  # summaries of earlier studies

    def __post_init__(self) -> None:
        _check_choice("direction", self.direction, ("minimize", "maximize"))
        _check_metric(self.metric)
        object.__setattr__(self, "bounds", _checked_bounds(self.bounds))
        _check_choice("model", self.model, MODELS)
        _check_positive("max_epochs", self.max_epochs)
        _check_positive("repeats", self.repeats)
        for what, kind in (("seed", int), ("finish_best", bool)):
            value = getattr(self, what)
            if type(value) is not kind:
                wanted = "an integer" if kind is int else "True or False"
                raise StudyError(f"{what} must be {wanted}, not {value!r}")

    @property
    def sign(self) -> float:
        """Losses times this are minimised."""
        return direction_sign(self.direction)

    @property
    def maximize(self) -> bool:
        """Whether large losses are good."""
        return self.direction == "maximize"

    def check_losses(self, losses: Sequence[float]) -> None:
        """Refuse losses outside the declared bounds."""
        low, high = self.bounds or (None, None)
        for loss in losses:
            if (low is not None and loss < low) or (high is not None and loss > high):
                raise TellError(f"the {self.metric} {loss!r} is outside bounds={self.bounds}; correct one of them")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings. What the user did to a running study is included only if something was done."""
        user: dict[str, Any] = {"stopped": self.stopped, "banned": list(self.banned), "pinned": list(self.pinned)}
        user |= {"metric": "" if self.metric == "loss" else self.metric, "bounds": list(self.bounds or ())}
        user |= {"learn_from": [earlier.to_dict() for earlier in self.learn_from]}
        return {key: value for key, value in user.items() if value} | {
            "space": self.space.to_dict(),
            "max_epochs": self.max_epochs,
            "direction": self.direction,
            "seed": self.seed,
            "policy": self.policy,
            "model": self.model,
            "candidates": None if self.candidates is None else [dict(config) for config in self.candidates],
            "budget": asdict(self.budget),
            "finish_best": self.finish_best,
            "prices": None if self.prices is None else asdict(self.prices),
            "repeats": self.repeats,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> StudyDefinition:
        """The definition that `to_dict` wrote."""
        space = Space.from_dict(plain["space"])
        return cls(
            space=space,
            max_epochs=plain["max_epochs"],
            metric=plain.get("metric", "loss"),
            direction=plain["direction"],
            bounds=plain.get("bounds"),
            seed=plain["seed"],
            policy=plain["policy"],
            model=plain["model"],
            candidates=validated(space, plain["candidates"]),
            budget=_budget(plain["budget"]),
            finish_best=plain["finish_best"],
            prices=None if plain.get("prices") is None else Prices(**plain["prices"]),
            repeats=plain.get("repeats", 1),
            stopped=bool(plain.get("stopped")),
            banned=tuple(plain.get("banned", ())),
            pinned=tuple(plain.get("pinned", ())),
            learn_from=tuple(EarlierStudy.from_dict(earlier) for earlier in plain.get("learn_from", ())),
        )


def _budget(plain: Mapping[str, Any]) -> Budget:
    """A stored budget; `training_hours` was called `hours` in version 0.1."""
    return Budget(**{("training_hours" if key == "hours" else key): value for key, value in plain.items()})


def validated(space: Space, candidates: Sequence[Config] | None) -> tuple[Config, ...] | None:
    """Candidates as configurations of the space."""
    listed: object = candidates
    if listed is not None and (isinstance(listed, str) or not isinstance(listed, Sequence)):
        raise StudyError(f"candidates must be a list of configurations or None, not {listed!r:.80}")
    return None if candidates is None else tuple(space.validate(config) for config in candidates)


def _check_positive(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise StudyError(f"{what} must be a positive integer, not {value!r}")


def _check_metric(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name.strip()) <= LONGEST_METRIC or not name.isprintable():
        raise StudyError(f"metric must be the name of what is reported, such as 'accuracy', not {name!r}")
    if name in RESERVED:
        raise StudyError(f"metric {name!r} is the name of another column of exported tables; choose another name")


def _checked_bounds(bounds: Any) -> Bounds | None:
    """A pair of finite numbers or None, the smaller one first; None if they are to be inferred."""
    if bounds is None:
        return None
    pair = tuple(bounds) if isinstance(bounds, list | tuple) else ()
    known = [b for b in pair if b is not None]
    numbers = all(isinstance(b, int | float) and not isinstance(b, bool) and math.isfinite(b) for b in known)
    if len(pair) != 2 or not numbers or (len(known) == 2 and not known[0] < known[1]):
        raise StudyError(
            f"bounds must be (low, high), with None where there is none, such as (0, None), not {bounds!r}"
        )
    low, high = (None if b is None else float(b) for b in pair)
    return low, high


def _check_choice(what: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise StudyError(f"{what} must be one of {', '.join(known)}, not {value!r}")
