"""Studies for the tests of the page."""

from __future__ import annotations

import math

import freezethaw as ft
from freezethaw.records import StudyState
from freezethaw.store import Store

SPACE = ft.Space(
    {
        "rate": ft.Float(1e-4, 1.0, log=True),
        "optimizer": ft.Choice("sgd", "adam"),
        "momentum": ft.Float(0.0, 0.9, when={"optimizer": "sgd"}),
        "width": ft.Int(1, 8),
    }
)


def loss(config, epoch):
    end = 0.1 + 0.05 * (math.log10(config["rate"]) + 2.0) ** 2 + 0.01 * config["width"]
    return end + (2.0 - end) * math.exp(-0.4 * epoch)


def advance(study, count, diverge=False):
    for _ in range(count):
        decision = study.ask()
        losses = [loss(decision.config, epoch) for epoch in range(decision.from_epoch + 1, decision.to_epoch + 1)]
        study.tell(decision, [*losses[:-1], float("nan")] if diverge else losses, 3.0)


def fill(url, name="searched", count=14, diverge=False, **options):
    study = ft.Study(SPACE, 8, name=name, store=url, **{"budget": 60, "seed": 1} | options)
    advance(study, count, diverge)
    study.close()


def fill_big(url, runs=1000, epochs=100):
    """Many long curves, as from elsewhere: no model is needed to make them."""
    import numpy as np

    rng = np.random.default_rng(0)
    study = ft.Study(SPACE, epochs, name="big")
    found = []
    for number in range(1, runs + 1):
        config = SPACE.sample(rng)
        at = np.arange(1, epochs + 1)
        end = 0.1 + 0.05 * (math.log10(config["rate"]) + 2.0) ** 2
        losses = end + (2.0 - end) * np.exp(-0.1 * at) + 0.003 * rng.standard_normal(epochs)
        state = "finished" if number % 4 else "frozen"
        length = epochs if state == "finished" else epochs - 1
        found.append(ft.Run(number, config, tuple(losses[:length].tolist()), (2.0,) * length, state))
    with Store(url) as store:
        store.save("big", StudyState(0, 1, study.definition.to_dict(), tuple(found), decisions=runs))
