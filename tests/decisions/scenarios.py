"""Small studies whose decisions are recorded: the same public calls must lead to the same decisions.

Each scenario drives one study through `ask`, `tell` and the like on synthetic learning curves, and returns its
decisions. `python -m tests.decisions.scenarios` records them anew, which is right only where a change of the model or
of the policy is meant to change decisions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import freezethaw as ft

Config = Mapping[str, object]
FILE = Path(__file__).parent / "recorded.json"
EPOCHS = 12

SPACE = {
    "learning_rate": ft.Float(1e-4, 1.0, log=True, guess=1e-2),
    "width": ft.Int(4, 64, log=True),
    "momentum": ft.Float(0.0, 0.99),
}
CONDITIONAL = {
    "learning_rate": ft.Float(1e-4, 1.0, log=True),
    "optimizer": ft.Choice("sgd", "adam"),
    "momentum": ft.Float(0.0, 0.99, when={"optimizer": "sgd"}),
}


def loss(config: Config, epoch: int) -> float:
    """A curve that falls to an asymptote; both depend on the configuration."""
    x = math.log10(config["learning_rate"]) + 1.5
    rate = 0.15 + 0.5 * math.exp(-(x**2))
    floor = 0.1 + 0.08 * x * x + 0.003 * config.get("width", 16) ** 0.5 + 0.2 * (config.get("momentum", 0.5) - 0.8) ** 2
    wobble = 0.004 * math.sin(37.0 * epoch * (1.0 + x))
    return floor + (1.2 - floor) * math.exp(-rate * epoch) + wobble


def advance(study: ft.Study, decision: ft.Decision, seconds: bool = False) -> None:
    """Tell what a decision granted."""
    epochs = range(decision.from_epoch + 1, decision.to_epoch + 1)
    losses = [loss(decision.config, epoch) for epoch in epochs]
    spent = [0.01 * decision.config.get("width", 16) for _ in epochs] if seconds else None
    study.tell(decision, losses, spent)


def play(study: ft.Study, count: int, seconds: bool = False) -> None:
    """So many decisions, each told at once; fewer where the study ends."""
    for _ in range(count):
        try:
            advance(study, study.ask(), seconds)
        except ft.StudyFinished:
            return


def plain(url: str | None) -> ft.Study:
    study = ft.Study(ft.Space(SPACE), max_epochs=EPOCHS, seed=1, store=url)
    play(study, 30)
    return study


def maximize(url: str | None) -> ft.Study:
    study = ft.Study(ft.Space(SPACE), max_epochs=EPOCHS, seed=2, store=url, direction="maximize")
    for _ in range(20):
        decision = study.ask()
        study.tell(decision, -loss(decision.config, decision.to_epoch))
    return study


def candidates(url: str | None) -> ft.Study:
    space = ft.Space(CONDITIONAL)
    configs = [{"learning_rate": 10.0 ** -(k / 6), "optimizer": "adam"} for k in range(1, 20)]
    configs += [{"learning_rate": 10.0 ** -(k / 3), "optimizer": "sgd", "momentum": 0.1 * k} for k in range(1, 9)]
    study = ft.Study(space, max_epochs=EPOCHS, seed=3, store=url, candidates=configs)
    play(study, 30)
    return study


def diverging(url: str | None) -> ft.Study:
    study = ft.Study(ft.Space(SPACE), max_epochs=EPOCHS, seed=4, store=url)
    for _ in range(25):
        decision = study.ask()
        if decision.config["learning_rate"] > 0.1:
            study.tell(decision, math.nan)
        elif decision.config["width"] > 50:
            study.cancel(decision, "out_of_memory")
        else:
            advance(study, decision)
    return study


def pending(url: str | None) -> ft.Study:
    """Four workers: the oldest decision is told after three more are taken, every seventh is given back."""
    study = ft.Study(ft.Space(SPACE), max_epochs=EPOCHS, seed=5, store=url)
    under_way = []
    for number in range(28):
        under_way.append(study.ask())
        if len(under_way) == 4:
            decision = under_way.pop(0)
            study.cancel(decision) if number % 7 == 0 else advance(study, decision)
    return study


def requests(url: str | None) -> ft.Study:
    study = ft.Study(ft.Space(SPACE), max_epochs=EPOCHS, seed=6, store=url)
    study.enqueue({"learning_rate": 0.03, "width": 8, "momentum": 0.8}, to_epoch=3)
    play(study, 6)
    study.thaw(1, EPOCHS)
    study.enqueue({"learning_rate": 0.5, "width": 8, "momentum": 0.1})
    play(study, 12)
    return study


def raised_budget(url: str | None) -> ft.Study:
    """The budget is spent, and the study is continued with a larger one."""
    study = ft.Study(ft.Space(SPACE), max_epochs=EPOCHS, seed=7, store=url, budget=12, finish_best=True)
    play(study, 40)
    if url is None:
        study.set_budget(30)
    else:
        study.close()
        study = ft.Study(ft.Space(SPACE), max_epochs=EPOCHS, seed=7, store=url, budget=30, finish_best=True)
    play(study, 40)
    return study


def timed(url: str | None) -> ft.Study:
    """Seconds are told, and switching runs has a price."""
    prices = ft.Prices(start=0.3, save=0.2, load=0.2)
    study = ft.Study(ft.Space(SPACE), max_epochs=EPOCHS, seed=8, store=url, prices=prices)
    play(study, 20, seconds=True)
    return study


def added(url: str | None) -> ft.Study:
    """Curves from elsewhere come first."""
    study = ft.Study(ft.Space(CONDITIONAL), max_epochs=EPOCHS, seed=9, store=url)
    for k in range(1, 6):
        config = {"learning_rate": 10.0 ** (-0.6 * k), "optimizer": "adam"}
        study.add_run(config, [loss(config, epoch) for epoch in range(1, 2 * k)])
    play(study, 15)
    return study


def paper(url: str | None) -> ft.Study:
    study = ft.Study(
        ft.Space(SPACE), max_epochs=EPOCHS, seed=10, store=url, policy="entropy_search", model="paper", budget=25
    )
    play(study, 25)
    return study


def repeats(url: str | None) -> ft.Study:
    study = ft.Study(ft.Space(SPACE), max_epochs=EPOCHS, seed=11, store=url, repeats=2)
    play(study, 15)
    return study


SCENARIOS: tuple[Callable[[str | None], ft.Study], ...] = (
    plain,
    maximize,
    candidates,
    diverging,
    pending,
    requests,
    raised_budget,
    timed,
    added,
    paper,
    repeats,
)


class Recorder(ft.Study):
    """A study that remembers what it was asked."""

    def ask(self) -> ft.Decision:
        """As the study decides."""
        d = super().ask()
        entry = {"run": d.run, "kind": d.kind, "from": d.from_epoch, "to": d.to_epoch, "reason": d.reason}
        LOG.append(entry | {"config": dict(d.config)})
        return d


LOG: list[dict] = []


def record(scenario: Callable[[str | None], ft.Study], url: str | None) -> list[dict]:
    """All decisions of one scenario."""
    LOG.clear()
    study, original = None, ft.Study
    ft.Study = Recorder  # type: ignore[misc]
    try:
        study = scenario(url)
    finally:
        ft.Study = original  # type: ignore[misc]
        if study is not None:
            study.close()
    return list(LOG)


if __name__ == "__main__":
    found = {scenario.__name__: record(scenario, None) for scenario in SCENARIOS}
    FILE.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}\n")
