"""A decider that is quick but looks at everything: a pure function of the state and the sampler state."""

from __future__ import annotations

import hashlib
from typing import Any

import freezethaw as ft
from freezethaw.errors import AllPending, StudyFinished
from freezethaw.records import DecisionDraft, StudyState

SPACE = ft.Space(rate=ft.Float(0.0, 1.0))
MOST = 7  # epochs granted at once


def definition(runs: int, max_epochs: int, seed: int = 0) -> dict[str, Any]:
    described = {"space": SPACE.to_dict(), "max_epochs": max_epochs, "direction": "minimize", "seed": seed}
    return described | {"budget": {"runs": runs}}


def decide(known: StudyState, state: Any) -> tuple[DecisionDraft, Any]:
    """What to do next and the state after it. Raises StudyFinished when all runs are trained to the end."""
    wanted, max_epochs = known.definition["budget"]["runs"], known.definition["max_epochs"]
    content = [(run.number, run.losses, run.state) for run in known.runs]
    pending = [(d.number, d.run, d.to_epoch) for d in known.pending]
    facts = repr((known.definition["seed"], known.decisions + 1, content, pending, state))
    draw = int(hashlib.sha256(facts.encode()).hexdigest()[:15], 16)
    after = {"turn": known.decisions + 1, "draws": [*(state or {"draws": [0] * 8})["draws"][1:], draw / 16**15]}
    frozen = [run for run in known.runs if run.state == "frozen"]
    if len(known.runs) < wanted and (not frozen or draw % 2):
        return DecisionDraft(None, {"rate": draw / 16**15}, min(max_epochs, 1 + draw % MOST), f"start, {draw}"), after
    if not frozen:
        if pending:
            raise AllPending("all runs are being trained")
        raise StudyFinished("all runs are trained")
    run = frozen[draw % len(frozen)]
    to_epoch = min(max_epochs, run.epoch + 1 + draw // 97 % MOST)
    return DecisionDraft(run.number, run.config, to_epoch, f"thaw, {draw}"), after
